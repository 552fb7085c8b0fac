"""Operators and pipelines as they are put together by the generators, and what is common to all of them: dimensions, sizes, samples."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from pipelink_ir.ir.dtypes import DTYPES
from tests.fuzz.data import PALETTES, Input, Program, Sample
from tests.fuzz.expressions import NARROW_INTS, Writer, kind_of
from tests.fuzz.tape import Tape

DIMS = ("H", "W", "C")
INDEX = {"H": "h", "W": "w", "C": "c"}
DTYPE_NAMES = tuple(DTYPES)


@dataclass(frozen=True)
class Tensor:
    """An operand, a result or an edge. `dims` are texts of the language."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    fill: str = "any"
    within: str = "1"

    def type(self) -> str:
        return f"tensor<{'x'.join((*self.dims, self.dtype))}>"

    def declared(self) -> str:
        return f"%{self.name}: {self.type()}"

    def at(self, *indices: str) -> str:
        return f"%{self.name}[{', '.join(indices)}]" if indices else f"%{self.name}"


@dataclass
class Op:
    """An operator being written. `attrs` are (name, type, default, value at the call)."""

    name: str
    operands: list[Tensor]
    results: list[Tensor] = field(default_factory=list)
    attrs: list[tuple[str, str, str, str]] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    semantic: list[str] = field(default_factory=list)
    compile: list[str] = field(default_factory=list)
    schedule: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        params = [o.declared() for o in self.operands] + [f"{n}: {t}" + (f" = {d}" if d else "") for n, t, d, _ in self.attrs]
        out = [f"op @{self.name}({', '.join(params)}) -> ({', '.join(r.declared() for r in self.results)}) {{"]
        if self.where:
            out.append(f"  where {', '.join(self.where)}")
        for name in ("memory", "semantic", "compile", "schedule"):
            entries: list[str] = getattr(self, name)
            if entries:
                out.append(f"  {name} {{ {', '.join(entries)} }}")
        return "\n".join([*out, "  compute {", *(f"    {line}" for line in self.lines), "  }", "}"])

    def call(self, results: Sequence[str], arguments: Sequence[str]) -> str:
        given = ", ".join(f"{n} = {v}" for n, _, _, v in self.attrs if v)
        return f"{', '.join('%' + r for r in results)} = @{self.name}({', '.join(arguments)})" + (f" {{{given}}}" if given else "")

    def writer(self, tape: Tape, names: Iterator[int], indices: dict[str, str], more: dict[str, list[str]] | None = None,
               dims: bool = True) -> Writer:
        """Reads of all operands whose dimensions have an index, each at its own place, indices, dimensions, and attributes."""
        leaves: dict[str, list[str]] = {}
        narrow: dict[str, list[str]] = {}
        for o in self.operands:
            if all(d in indices for d in o.dims) and len(set(o.dims)) == len(o.dims):
                text = o.at(*(indices[d] for d in o.dims))
                leaves.setdefault(kind_of(o.dtype), []).append(text)
                if o.dtype in NARROW_INTS:
                    narrow.setdefault(o.dtype, []).append(text)
        for name, type_, _, _ in self.attrs:
            if type_ in DTYPES:
                leaves.setdefault(kind_of(type_), []).append(name)
        leaves.setdefault("i64", []).extend([*indices.values(), *(d for d in indices if dims)])
        for kind, texts in (more or {}).items():
            leaves.setdefault(kind, []).extend(texts)
        return Writer(tape, leaves, names, narrow)


def names() -> Iterator[int]:
    """Numbers for fresh names."""
    return count(1)


def attributes(tape: Tape) -> list[tuple[str, str, str, str]]:
    """A few scalar attributes, some with a value at the call."""
    known = [("gain", "f32", "1.5", "0.25"), ("bias", "f64", "0.1", "-2.5"), ("shift", "i32", "3", "-7"), ("big", "i64", "4000000000", "12"),
             ("half", "f16", "0.333", "0.1"), ("small", "u8", "200", "17"), ("flag", "bool", "true", "false")]
    return [(n, t, default, value if tape.chance(2) else "") for n, t, default, value in tape.some(known, 2)]


SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7)


def samples(tape: Tape, dims: Sequence[str], n: int = 3, least: int = 0, wide: bool = True, stray: bool = False,
            large: bool = False) -> tuple[Sample, ...]:
    """Calls with sizes from 0 (or `least`) to 7, by chance one dimension large enough for vectors and their tails; `large`: by chance all of them together
    large enough for several threads."""
    out = []
    for _ in range(n):
        sizes = {d: tape.choose([s for s in SIZES if s >= least]) for d in dims}
        if wide and dims and tape.chance(4):
            sizes[tape.choose(dims)] = tape.choose((16, 17, 33, 40))
        if large and 0 < len(dims) <= 2 and tape.chance(12):
            sizes = dict(zip(dims, (150, 131) if len(dims) == 2 else (20000,), strict=True))
        palette = tape.choose(("tame", "tame", *PALETTES))
        out.append(Sample(sizes, tape.below(2**16), palette, stray and tape.chance(2)))
    return tuple(out)


def single(op: Op, calls: tuple[Sample, ...], tags: tuple[str, ...] = ()) -> Program:
    """A pipeline of one node that has the signature of the operator."""
    head = f"pipeline @p({', '.join(o.declared() for o in op.operands)}) -> ({', '.join(r.declared() for r in op.results)}) {{"
    node = "  " + op.call([r.name for r in op.results], [f"%{o.name}" for o in op.operands])
    return Program("\n".join([op.text(), head, node, "}", ""]), inputs_of(op.operands), calls, tags)


def inputs_of(tensors: Sequence[Tensor]) -> tuple[Input, ...]:
    return tuple(Input(t.name, t.dtype, tuple(d.replace("floordiv", "//") for d in t.dims), t.fill, t.within) for t in tensors)
