"""Definitions that read themselves one or two steps earlier: upwards and downwards, along any axis, with other axes and guards, two or three tensors that
read each other, through locals, of every compute type."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.fuzz.data import Program
from tests.fuzz.expressions import Writer, kind_of
from tests.fuzz.operators import DTYPE_NAMES, Op, Tensor, names, samples, single
from tests.fuzz.tape import Tape

KINDS = ("f32", "i32", "f64", "bool", "i64")


@dataclass(frozen=True)
class Line:
    """How the recurrence runs: the axes with their indices, the place of the recurring one, how many base cases there are, and the direction."""

    dims: tuple[str, ...]
    indices: tuple[str, ...]
    axis: int
    lag: int
    up: bool
    bounded: bool
    """Whether left sides write the extents of the other axes: a ring of several locals asks for it."""

    def left(self, t: str) -> tuple[str, ...]:
        """The left side of a definition with `t` on the recurring axis."""
        return tuple(t if k == self.axis else f"{i} < {d}" if self.bounded else i for k, (i, d) in enumerate(zip(self.indices, self.dims, strict=True)))

    def place(self, t: str, **others: str) -> tuple[str, ...]:
        """Indices with `t` on the recurring axis."""
        return tuple(t if k == self.axis else others.get(i, i) for k, i in enumerate(self.indices))

    def back(self, n: int) -> str:
        """The index `n` steps earlier."""
        return f"t {'-' if self.up else '+'} {n}"

    def bases(self) -> list[str]:
        """Left sides of the base cases on the recurring axis, with the index that they bind."""
        if self.up:
            return [str(k) for k in range(self.lag)]
        return [f"t in T - {self.lag}..T"]

    def step(self) -> str:
        return ("t < T" if self.up else f"t in 0..T - {self.lag}")


def program(tape: Tape) -> Program:
    """A recurrence of 1 to 3 tensors over T and up to two other axes."""
    dims = tape.choose((("T",), ("T", "C"), ("C", "T"), ("H", "T", "C")))
    n = tape.between(1, 3) if tape.chance(2) else 1
    line = Line(dims, tuple({"T": "t", "C": "c", "H": "h"}[d] for d in dims), dims.index("T"), tape.between(1, 2), not tape.chance(2), n > 1 or tape.chance(2))
    op = Op("f", [Tensor("x0", tape.choose(DTYPE_NAMES), dims)])
    if tape.chance(2):
        op.operands.append(Tensor("x1", tape.choose(DTYPE_NAMES), tuple(d for d in dims if d != "C") if tape.chance(2) else dims))
    op.where.append(f"T >= {line.lag}")
    numbers = names()
    group = [Tensor(name, tape.choose(KINDS), dims) for name in ("a", "b", "s")[:n]]
    for k, t in enumerate(group):
        _define(tape, op, line, t, group[:k], group, numbers)
    _results(tape, op, line, group, numbers)
    op.lines = tape.shuffled(op.lines) if tape.chance(2) else op.lines
    return single(op, samples(tape, sorted(set(dims)), least=0), (f"lag {line.lag}",))


def _define(tape: Tape, op: Op, line: Line, t: Tensor, before: list[Tensor], group: list[Tensor], numbers: Iterator[int]) -> None:
    """Base cases from the operands, and a step from what is earlier: any tensor of the group some steps before, those that stand before at this step too."""
    for base in line.bases():
        index = base.split()[0] if base[0] == "t" else base
        writer = Writer(tape, _operand_reads(op, line, index), numbers)
        op.lines.append(f"{t.at(*line.left(base))} = {writer.text(t.dtype, 1, firm=True)}")
    leaves = _operand_reads(op, line, "t")
    for other in group:
        for n in range(1, line.lag + 1):
            if other is t or tape.chance(2):
                leaves.setdefault(other.dtype, []).extend(_earlier(tape, other, line, n))
    for other in before:
        leaves.setdefault(other.dtype, []).append(other.at(*line.place("t")))
    back = line.place(line.back(tape.between(1, line.lag)))
    other = group[(group.index(t) + 1) % len(group)]
    own = t.at(*back) if other is t or tape.chance(3) else f"{t.dtype}({other.at(*back)})"
    writer = Writer(tape, leaves, numbers)
    if t.dtype == "bool":
        value = f"{own} {tape.choose(('and', 'or', '==', '!='))} ({writer.text('bool', 2)})"
    else:
        half = "0.5 * " if t.dtype[0] == "f" else ""
        value = tape.choose((f"{half}{own} + ({writer.text(t.dtype, 2, firm=True)})", f"max({own}, {writer.text(t.dtype, 2, firm=True)})",
                             f"select({writer.text('bool', 2)}, {own}, {writer.text(t.dtype, 2, firm=True)})"))
    op.lines.append(f"{t.at(*line.left(line.step()))} = {value}")


def _operand_reads(op: Op, line: Line, t: str) -> dict[str, list[str]]:
    # A bare number would take the type of what is beside it.
    out: dict[str, list[str]] = {"i64": [f"i64({t})" if t.isdigit() else t, *(i for k, i in enumerate(line.indices) if k != line.axis)]}
    for o in op.operands:
        indices = [t if d == "T" else {"C": "c", "H": "h"}[d] for d in o.dims]
        out.setdefault(kind_of(o.dtype), []).append(o.at(*indices))
    return out


def _earlier(tape: Tape, t: Tensor, line: Line, n: int) -> list[str]:
    """Reads `n` steps earlier, at the same place of the other axes or beside it, where a guard says that there is one."""
    out = [t.at(*line.place(line.back(n)))]
    if "C" in line.dims:
        other = {"bool": "false", "i32": "-1", "i64": "2"}.get(t.dtype, "0.25")
        out.append(f"select(c >= 1, {t.at(*line.place(line.back(n), c='c - 1'))}, {other})")
        if tape.chance(2):
            out.append(f"select(c + 1 < C, {t.at(*line.place(line.back(n), c='c + 1'))}, {other})")
    return out


def _results(tape: Tape, op: Op, line: Line, group: list[Tensor], numbers: Iterator[int]) -> None:
    """The tensors of the group as they are, or what is computed of them: everywhere, at the last step, reduced."""
    for k, t in enumerate(group):
        name = f"y{k}"
        end = "T - 1" if line.up else "0"
        left = tuple(i for j, i in enumerate(line.indices) if j != line.axis)
        rest = tuple(d for d in line.dims if d != "T")
        form = tape.choose(("all", "itself", "last", "reduced"))
        if form == "itself" and t.dtype != "bool":
            # The result is the tensor: rounded to its dtype at each step.
            op.lines = [text.replace(f"%{t.name}[", f"%{name}[") for text in op.lines]
            group[k] = Tensor(name, t.dtype, t.dims)
            op.results.append(group[k])
        elif form == "last":
            op.results.append(Tensor(name, t.dtype, rest))
            op.lines.append(f"{Tensor(name, '', ()).at(*left)} = {t.at(*line.place(end))}")
        elif form == "reduced" and t.dtype != "bool":
            fn = tape.choose(("sum", "max", "mean", "min"))
            op.results.append(Tensor(name, "f32" if fn == "mean" and t.dtype[0] == "i" else t.dtype, rest))
            op.lines.append(f"{Tensor(name, '', ()).at(*left)} = {fn}[t < T]({t.at(*line.indices)})")
        else:
            r = Tensor(name, tape.choose(DTYPE_NAMES), line.dims)
            op.results.append(r)
            read, zero = t.at(*line.indices), "false" if t.dtype == "bool" else "0"
            writer = Writer(tape, {t.dtype: [read]}, numbers)
            value = f"{read} != {zero}" if r.dtype == "bool" else writer.stored(r.dtype, 1) if t.dtype != "bool" and tape.chance(2) else f"{r.dtype}({read})"
            op.lines.append(f"{r.at(*line.indices)} = {value}")
