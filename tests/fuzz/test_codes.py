"""Random sums of products on random codes, against the same operator in f64 on the values that the codes stand for."""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pipelink_ir.grammar.printer import print_operator
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.quantised import quantised
from tests.fuzz.tape import Tape
from tests.unit.precision.coding import arguments, called, operator

Array = np.ndarray[Any, Any]
ROWS, SUMMED = {"i": "H", "j": "W"}, {"k": "K", "c": "C"}
_STEP: float | str = 2.0**-5
_ZEROS: tuple[int | str, ...] = (0, "tensor", 100)
DTYPES_OF_VALUES = ("f32", "f16", "f32", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Factor:
    """An operand, its indices, and how it is read."""

    name: str
    indices: tuple[str, ...]
    dtype: str
    codes: Codes | None
    text: str

    def type(self, dtype: str | None = None) -> str:
        dims = "x".join([*({**ROWS, **SUMMED}[i] for i in self.indices), dtype or self.dtype])
        return f"%{self.name}: tensor<{dims}>"


def codes_of(tape: Tape, rank: int, simple: bool) -> Codes:
    dtype = tape.choose(("i8", "u8", "i8", "u8", "i8", "i4", "f8e4m3"))
    scale: float | str = tape.choose((_STEP, "tensor")) if simple else tape.choose(("block", "channel", "block", "tensor"))
    axis = tape.below(rank)
    order = tuple(reversed(range(rank))) if tape.chance(3) else ()
    zero: int | str = tape.choose(_ZEROS) if dtype in ("i8", "u8") and scale in ("tensor", _STEP) else 0
    size = tape.between(1, 4) if scale == "block" else None
    return Codes(dtype, scale, zero, axis if isinstance(scale, str) and scale != "tensor" else None, size, tape.below(rank) if dtype == "i4" else None, order, tape.chance(2))


def factor(tape: Tape, name: str) -> Factor:
    indices = tuple(i for i in (*ROWS, *SUMMED) if i in SUMMED or tape.chance(2))
    indices = indices if not tape.chance(4) else tuple(reversed(indices))
    dtype = tape.choose(DTYPES_OF_VALUES)
    read = f"%{name}[{', '.join(indices)}]"
    text = tape.choose((read, read, read, read, read, read, f"-{read}", f"f32({read})" if dtype != "f64" else read, f"max({read}, 0)", f"select(k mod 2 == 0, {read}, 0)"))
    return Factor(name, indices, dtype, None if tape.chance(8) else codes_of(tape, len(indices), name == "p"), text)


def scales_of(f: Factor, x: Array) -> Any:
    c, top = f.codes, 448 if f.codes is not None and f.codes.dtype[0] == "f" else 7 if f.codes is not None and f.codes.dtype == "i4" else 127
    if c is None or not isinstance(c.scale, str):
        return None
    if c.scale == "tensor":
        return 2.0**-5
    assert c.axis is not None
    if c.scale == "channel":
        return np.abs(x).max(tuple(k for k in range(x.ndim) if k != c.axis)) / top
    assert c.size is not None
    n = x.shape[c.axis]
    return np.stack([np.abs(np.take(x, range(b, min(b + c.size, n)), c.axis)).max(c.axis) for b in range(0, n, c.size)], c.axis) / top


@pytest.mark.parametrize("seed", range(80))
def test_sums_of_products_on_codes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tape = Tape(rng.bytes(400))
    parts = [factor(tape, n) for n in ("p", "q", "r")[:tape.choose((2, 1, 2, 2, 3, 2))]]
    body = " * ".join(f.text for f in parts) + tape.choose(("", " / 3", " * %g[i]", ""))
    kind, where = tape.choose(("sum", "sum", "sum", "mean")), tape.choose(("", "", "", "", " where k + c != i", " where %on[k]"))
    value = f"{kind}[k < K, c < C{where}]({body})" + tape.choose(("", " + %g[i]"))
    signature = ", ".join([*(f.type() for f in parts), "%g: tensor<Hxf32>", "%on: tensor<Kxbool>", "%b: tensor<Wxf32>"])
    text = f"op @f({signature}) -> (%y: tensor<HxWxf64>) {{ compute {{ %y[i, j] = {value} + %b[j] }} }}"
    sizes = {d: tape.between(1, 6) for d in ("H", "W", "K", "C")}
    arrays: dict[str, Array] = {f.name: rng.normal(size=[sizes[{**ROWS, **SUMMED}[i]] for i in f.indices]).astype(DTYPES[f.dtype].numpy()).astype(np.float64) for f in parts}
    arrays |= {"g": rng.normal(size=sizes["H"]), "on": np.arange(sizes["K"]) % 3 != 1, "b": rng.normal(size=sizes["W"])}
    codes = {f.name: f.codes for f in parts if f.codes is not None}
    made = quantised(operator(text), codes, "f.1")
    if isinstance(made, str):
        assert re.search("does not follow from the bytes|is no i8", made), made
        return
    check(text, parts, codes, arrays, {f.name: scales_of(f, arrays[f.name]) for f in parts})


def check(text: str, parts: list[Factor], codes: Mapping[str, Codes], arrays: Mapping[str, Array], scales: Mapping[str, Any]) -> None:
    op = operator(text)
    made = quantised(op, codes, "f.1")
    assert not isinstance(made, str)
    given, real = arguments(op, made, codes, arrays, scales, dict.fromkeys(codes, -9))
    for k, o in enumerate(made.operands):
        if o.name.endswith(".sum"):
            # Sums of codes along the axes that the new type has not, block by block where it has one for blocks.
            given[k] = summed(given[k], next(f for f in parts if f"{f.name}.sum" == o.name), o.type.dims)
    wide = operator(re.sub(r"x(f16|bf16|f32|f64)>", "xf64>", text).replace("f32(", "f64("))
    want, = called(wide, *(real[o.name] for o in op.operands))
    # Every term may be off by the rounding of its factors; a f16 or bf16 that is made of a code and its scale by half a step of that dtype.
    terms = np.prod([max(1.0, float(np.abs(real[f.name]).max(initial=0))) for f in parts]) * np.prod(arrays[parts[0].name].shape) * 4
    rounded = re.findall(r"\b(b?f16)\((?:f32\(|%\w+\[[^\]]*\] \*|select|max)", print_operator(made))
    step = max([1e-7, *({"f16": 2.0**-11, "bf16": 2.0**-8}[d] for d in rounded)])
    for target in ("reference", "cpu"):
        got, = called(made, *given, target=target)
        same = np.isnan(got) == np.isnan(want)
        assert same.all(), text
        assert np.nan_to_num(np.abs(got - want)).max(initial=0) <= terms * step, text


def summed(q: Array, f: Factor, dims: Any) -> Array:
    assert f.codes is not None
    blocks = f.codes.scale == "block" and f.indices[f.codes.axis or 0] in SUMMED
    if blocks:
        axis, size = f.codes.axis or 0, f.codes.size or 1
        q = np.add.reduceat(q, np.arange(0, q.shape[axis], size), axis=axis)
    gone = tuple(k for k, i in enumerate(f.indices) if i in SUMMED and not (blocks and k == f.codes.axis))
    out = np.asarray(q.sum(gone)) if len(gone) == q.ndim - len(dims) else q
    assert out.ndim == len(dims)
    return out
