"""`padding = same | valid` against the reads and the shapes of an operator.

`same`: the result is as large as the operand, and the window lies around the index (`h + i - 1`). `valid`: the window begins at the index (`h + i`), and the
result is smaller by what the window reaches beyond it. Only axes along which an operand is read through a window are looked at: the number of channels is no
matter of padding.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipelink_ir.ir import contracts
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Apply, Axis, Define, Dots, Expr, IntLit, Name, Operator, Range, Read, Reduce, Setting
from pipelink_ir.ir.prover import Facts
from pipelink_ir.ir.walk import children, names_in
from pipelink_ir.passes.infer.text import show


@dataclass(frozen=True, slots=True)
class Window:
    """One axis of one read: which axis of the definition it follows, and from where to where (None: not a constant) it reaches around that index."""

    read: Read
    axis: int
    own: int
    lo: int | None
    hi: int | None


def check_padding(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    """Report a `padding` that the reads or the shapes of the operator contradict."""
    mode = contracts.word(s.value)
    if mode not in ("same", "valid"):
        return
    declared = Note(f"'@{op.name}' is declared here", op.signature)
    for item in op.compute.body if op.compute is not None else ():
        if not isinstance(item, Define):
            continue
        for w in _windows(op, item, scope):
            found = _place(mode, w) or _size(op, item, w, mode)
            if found is not None:
                message, help = found
                report.error("padding", s.span, message, [declared, Note("it is read here", w.read.span)], help)
                return
    if op.compute is None and mode == "same":
        _check_shapes(op, s, report, declared)


def _windows(op: Operator, item: Define, scope: str | None) -> Iterator[Window]:
    """The windows through which a definition reads operands; a read at the index itself is none."""
    operands = {o.name for o in op.operands if scope is None or scope == o.name or all(scope != p.name for p in op.operands)}
    own = {a.index: k for k, a in enumerate(item.axes) if isinstance(a, Axis)}
    for read, ranges in _reads(item.value, ()):
        if read.tensor not in operands or any(isinstance(i, Dots) for i in read.indices):
            continue
        for axis, index in enumerate(read.indices):
            mine = names_in(index) & set(own)
            if len(mine) != 1 or isinstance(index, Name):
                continue
            name = mine.pop()
            offset = normal(Apply("-", (index, Name(name))))
            if names_in(offset) & set(own):
                continue
            facts = Facts(names_in(offset) - {r.index for r in ranges})
            for r in ranges:
                facts = facts.with_range(r.index, r.lo, r.hi)
            lo, hi = facts.bounds(offset, ())
            yield Window(read, axis, own[name], lo.value if isinstance(lo, IntLit) else None, hi.value - 1 if isinstance(hi, IntLit) else None)


def _reads(e: Expr, ranges: tuple[Range, ...]) -> Iterator[tuple[Read, tuple[Range, ...]]]:
    if isinstance(e, Reduce):
        ranges = (*ranges, *(r for r in e.ranges if isinstance(r, Range)))
    if isinstance(e, Read):
        yield e, ranges
    for child in children(e):
        yield from _reads(child, ranges)


def _place(mode: str, w: Window) -> tuple[str, str] | None:
    """What is wrong with where the window lies."""
    if mode == "valid" and w.lo is not None and w.lo < 0:
        return "'valid' reads from the index on, but this operator reads before it", "write 'padding = same', or shift the reads"
    if mode == "same" and w.lo == 0 and w.hi is not None and w.hi >= 2:
        middle = w.hi // 2
        return (f"'same' reads around the index, but this window begins at it and reaches {w.hi} beyond",
                f"shift the window by {middle}, as in 'h + i - {middle}', or write 'padding = valid'")
    return None


def _size(op: Operator, item: Define, w: Window, mode: str) -> tuple[str, str] | None:
    """What is wrong with the size of the result along the axis of the window."""
    result = next((r for r in op.results if r.name == item.tensor), None)
    operand = next(o for o in op.operands if o.name == w.read.tensor)
    if result is None or w.own >= len(result.type.dims) or w.axis >= len(operand.type.dims):
        return None
    have, given = result.type.dims[w.own], operand.type.dims[w.axis]
    if isinstance(have, Dots) or isinstance(given, Dots):
        return None
    more = normal(Apply("-", (have, given)))
    if not isinstance(more, IntLit):
        return None
    if mode == "same" and more.value != 0:
        return (f"'same' keeps the size, but '%{result.name}' has {show(have)} where '%{operand.name}' has {show(given)}",
                f"write 'padding = valid', or give '%{result.name}' the dimension {show(given)}")
    # Where nothing answers outside, a window that is too large is a read out of bounds, and told as one.
    if mode == "valid" and w.hi is not None and more.value > -w.hi and (more.value == 0 or contracts.setting(op, "memory", "border", operand.name)):
        less = show(normal(Apply("-", (given, IntLit(w.hi)))))
        return (f"'valid' leaves out what the window reaches beyond the index, {w.hi}, but '%{result.name}' has {show(have)} where '%{operand.name}' has "
                f"{show(given)}", f"write 'padding = same', or give '%{result.name}' the dimension ({less})")
    return None


def _check_shapes(op: Operator, s: Setting, report: Report, declared: Note) -> None:
    """Without a definition the shapes alone speak: `same` and a size that differs by a constant contradict each other."""
    for o in op.operands:
        for r in op.results:
            if len(o.type.dims) != len(r.type.dims):
                continue
            for given, have in zip(o.type.dims, r.type.dims, strict=True):
                if isinstance(given, Dots) or isinstance(have, Dots):
                    continue
                more = normal(Apply("-", (have, given)))
                if isinstance(more, IntLit) and more.value != 0 and names_in(given):
                    report.error("padding", s.span, f"'same' keeps the size, but '%{r.name}' has {show(have)} where '%{o.name}' has {show(given)}", [declared],
                                 f"write 'padding = valid', or give '%{r.name}' the dimension {show(given)}")
                    return
