"""A construct of the language in a small program: what it is called with, and what comes out, by hand or from NumPy and SciPy."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pipelink_ir.ir.dtypes import DTYPES
from tests.emulated import EMULATED

Array = NDArray[Any]

TARGETS = ("reference", "cpu", EMULATED)
"""The backends that every program runs on: another one is one more name here."""


@dataclass(frozen=True)
class Case:
    """`covers` names constructs of `checklist.py`. `want` holds values of any type; they are rounded to the result's dtype and must be met exactly (signs of
    zeros too), or within `ulp` units of its last place, or `atol`. `fails` is part of the message where the call must fail. `files` lie beside the program."""

    name: str
    covers: str | Sequence[str]
    text: str | bytes
    inputs: Mapping[str, Any] = field(default_factory=dict)
    want: Mapping[str, Any] = field(default_factory=dict)
    ulp: float = 0.0
    atol: float = 0.0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    fails: str = ""
    pipeline: str | None = None

    @property
    def constructs(self) -> tuple[str, ...]:
        return (self.covers,) if isinstance(self.covers, str) else tuple(self.covers)

    @property
    def source(self) -> str:
        """The text without what only the reader of files sees."""
        return self.text if isinstance(self.text, str) else self.text.decode("utf-8-sig")

    def write(self, folder: Path) -> Path:
        """Puts the program and what lies beside it into a folder."""
        for name, content in {"main.plir": self.text, **self.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return folder / "main.plir"

    def run(self, target: str, folder: Path) -> dict[str, Array]:
        """The results on a backend."""
        import pipelink_ir
        compiled = pipelink_ir.compile(self.write(folder), target=target, pipeline=self.pipeline, **self.attributes)
        dtypes = {i.name: DTYPES[i.type.dtype].numpy() for i in compiled.inputs}
        with np.errstate(all="ignore"):
            given = {n: a if isinstance(a, np.ndarray) and a.dtype == dtypes[n] else np.asarray(a).astype(dtypes[n]) for n, a in self.inputs.items()}
        before = {n: a.copy() for n, a in given.items()}
        out = dict(compiled(**given).items())
        for n, a in given.items():
            assert a.tobytes() == before[n].tobytes(), f"the input %{n} was written"
        arrays = [*given.values(), *out.values()]
        for k, r in enumerate(compiled.results):
            assert out[r.name].dtype == DTYPES[r.type.dtype].numpy()
            assert not any(np.shares_memory(out[r.name], a) for a in arrays[:len(given) + k]), f"%{r.name} shares memory"
        return out

    def compare(self, got: Mapping[str, Array]) -> None:
        """Every result against what is wanted."""
        assert sorted(got) == sorted(self.want)
        for name, want in self.want.items():
            _compare(name, got[name], np.asarray(want), self.ulp, self.atol)


def _compare(name: str, got: Array, want: Array, ulp: float, atol: float) -> None:
    assert got.shape == want.shape, f"%{name} has the shape {got.shape}, not {want.shape}"
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want.astype(object), err_msg=f"%{name}")
        return
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype).astype(np.float64)
    values = got.astype(np.float64)
    if not ulp and not atol:
        np.testing.assert_array_equal(values, rounded, err_msg=f"%{name}")
        number = ~np.isnan(rounded)
        np.testing.assert_array_equal(np.signbit(values[number]), np.signbit(rounded[number]), err_msg=f"signs of %{name}")
        return
    eps = float(ml_dtypes.finfo(got.dtype).eps)
    want = np.where(np.isinf(rounded), rounded, want.astype(np.float64))
    np.testing.assert_allclose(values, want, rtol=ulp * eps, atol=atol, err_msg=f"%{name}")


# ----------------------------------------------------------------------------------------------------------------- writing programs


def op(signature: str, body: str, sections: str = "", pipeline: str = "", call: str = "", name: str = "f") -> str:
    """An operator `(operands and attributes) -> (results)` that computes `body`, and a pipeline that calls it: with the same types, or those of the
    signature `pipeline`. `call` is what follows the call, attributes for example."""
    operands, _, results = signature.partition("->")
    taken, _, given = (pipeline or signature).partition("->")
    inputs = [p for p in split(taken) if p.startswith(("%", "param"))]
    names = [p.partition(":")[0].strip() for p in split(operands) if p.startswith("%")]
    outs = [p.partition(":")[0] for p in split(results)]
    return (f"op @{name}({operands.strip()}) -> ({results.strip()}) {{\n{sections}\ncompute {{\n{body}\n}} }}\n"
            f"pipeline @main({', '.join(inputs)}) -> ({given.strip()}) {{\n  {', '.join(outs)} = @{name}({', '.join(names)}) {call}\n}}\n")


def split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "(<[") - (c in ")>]" and not parts[-1].endswith("-"))
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def program(ops: str, signature: str, nodes: str, head: str = "") -> str:
    """Operators and a pipeline `(inputs) -> (results)` of nodes."""
    inputs, _, results = signature.partition("->")
    return f"{ops}\npipeline @main({inputs.strip()}) -> ({results.strip()}) {head} {{\n{nodes}\n}}\n"


def loops(shape: Sequence[int], value: Callable[..., Any]) -> Array:
    """An array from a function of its indices."""
    out = np.empty(tuple(shape), object)
    for at in np.ndindex(*shape):
        out[at] = value(*at)
    return out.astype(np.float64)
