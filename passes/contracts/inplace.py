"""`%y { inplace = %x }`: whether a result may overwrite the operand it is computed from.

An element may be overwritten once nobody reads it any more. For a `compute` that holds if every read of the operand, through locals too, is at the very place
that is computed, outside of reductions. For a `graph` the node that makes the result must keep the rule for its own operator, and nobody may read the operand
who waits for the result.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Alias, Axis, Define, Dots, Dynamic, Expr, IntLit, Name, Node, Operand, Operator, Read, Reduce, Scoped, Setting
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import children, reads_in
from pipelink_ir.passes.scopes import consumed, produced


@dataclass(frozen=True, slots=True)
class Hazard:
    """Why memory cannot be shared, and where it shows."""

    why: str
    place: Span | None = None


LATER = "an element would be read after it is overwritten"


def check_inplace(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    """What the declaration itself says against sharing memory. Graphs are looked into by `check_graph_inplace`."""
    declared = Note(f"'@{op.name}' is declared here", op.signature)
    operand = next((o for o in op.operands if isinstance(s.value, Read) and o.name == s.value.tensor), None)
    result = next((r for r in op.results if r.name == scope), None)
    if operand is None or result is None:
        x, y = (op.operands[0].name if op.operands else "x"), (op.results[0].name if op.results else "y")
        report.error("inplace", s.span, "'inplace' names the operand whose memory a result takes over", [declared], f"write '%{y} {{ inplace = %{x} }}'")
        return
    other = _other(op, result, operand)
    if other is not None:
        if other.span.start < s.span.start:
            report.error("inplace", s.span, f"two results cannot both take over the memory of '%{operand.name}'", [Note("the other one", other.span), declared],
                         "drop one of the two")
        return
    hazard = _sizes(result, operand) or (_in_compute(op, result, operand) if op.compute is not None else None)
    if hazard is not None:
        _report(s, result, operand, hazard, declared, report)


def _report(s: Setting, result: Operand, operand: Operand, hazard: Hazard, declared: Note, report: Report) -> None:
    report.error("inplace", s.span, f"'%{result.name}' cannot take over the memory of '%{operand.name}': {hazard.why}",
                 [declared, *([Note("it is read here", hazard.place)] if hazard.place is not None else [])], "drop 'inplace'")


def _settings(op: Operator) -> Iterator[tuple[str, Setting]]:
    """(result, setting) of every `inplace`."""
    for section in op.sections:
        if section.name == "memory":
            for entry in section.entries:
                for s in entry.settings if isinstance(entry, Scoped) else ():
                    if s.key == "inplace" and isinstance(entry, Scoped):
                        yield entry.tensor, s


def _other(op: Operator, result: Operand, operand: Operand) -> Setting | None:
    """The setting by which another result takes over the same operand."""
    for name, s in _settings(op):
        if name != result.name and isinstance(s.value, Read) and s.value.tensor == operand.name:
            return s
    return None


def _sizes(result: Operand, operand: Operand) -> Hazard | None:
    if operand.type.dtype != result.type.dtype:
        a, b = DTYPES.get(operand.type.dtype), DTYPES.get(result.type.dtype)
        if a is None or b is None or a.bytes != b.bytes:
            return Hazard(f"one holds {operand.type.dtype}, the other {result.type.dtype}")
    if tuple(map(_dim, operand.type.dims)) != tuple(map(_dim, result.type.dims)):
        return Hazard("their shapes differ")
    return None


def _dim(d: Expr) -> Expr:
    return d if isinstance(d, Dots | Dynamic) else normal(d)


# ------------------------------------------------------------------------------------------------------------------------- compute


def _in_compute(op: Operator, result: Operand, operand: Operand) -> Hazard | None:
    assert op.compute is not None
    items = [d for d in op.compute.body if isinstance(d, Define)]
    body: dict[str, list[Define]] = {}
    for d in items:
        body.setdefault(d.tensor, []).append(d)
    # What holds elements of the operand, directly or through locals.
    touched = _readers(operand.name, items)
    reached: set[str] = set()
    left = [result.name]
    while left:
        name = left.pop()
        reached.add(name)
        for d in body.get(name, ()):
            own = tuple(Name(a.index) if isinstance(a, Axis) else a if isinstance(a, Dots) else IntLit(a.value) for a in d.axes)
            for read, summed in _reads(d.value, False):
                if read.tensor not in touched or read.tensor == result.name:
                    continue
                if summed or not _same_place(read, own, operand.type.dims):
                    return Hazard(LATER, read.span)
                if read.tensor != operand.name and read.tensor not in reached:
                    left.append(read.tensor)
    for r in op.results:
        # Another result may be computed after this one.
        if r.name != result.name and r.name in touched and r.name not in reached:
            read = next(x for d in body.get(r.name, ()) for x in reads_in(d.value) if x.tensor in touched)
            return Hazard(LATER, read.span)
    return None


def _same_place(read: Read, own: tuple[Expr, ...], dims: tuple[Expr, ...]) -> bool:
    """Whether a read is at the place that is computed: of an axis with one place it may be called 0 as well."""
    alone = [normal(d) == IntLit(1) if not isinstance(d, Dots | Dynamic) else False for d in dims]
    return read.indices == own or (len(read.indices) == len(own) == len(dims) and all(
        i == o or (one and i == IntLit(0)) for i, o, one in zip(read.indices, own, alone, strict=True)))


def _readers(operand: str, items: Sequence[Define]) -> set[str]:
    """The operand, and every tensor that is computed from it."""
    readers: dict[str, list[str]] = {}
    for d in items:
        for r in reads_in(d.value):
            readers.setdefault(r.tensor, []).append(d.tensor)
    out, left = {operand}, [operand]
    while left:
        more = [n for n in readers.get(left.pop(), ()) if n not in out]
        out |= set(more)
        left += more
    return out


def _reads(e: Expr, summed: bool) -> Iterator[tuple[Read, bool]]:
    """Every read, and whether it stands inside a reduction or an index."""
    if isinstance(e, Read):
        yield e, summed
    for child in children(e):
        yield from _reads(child, summed or isinstance(e, Reduce | Read))


# --------------------------------------------------------------------------------------------------------------------------- graph


def check_graph_inplace(op: Operator, operators: Mapping[str, Operator], report: Report) -> None:
    """The same of a graph whose nodes name operators in `operators`."""
    for name, s in _settings(op):
        operand = next((o for o in op.operands if isinstance(s.value, Read) and o.name == s.value.tensor), None)
        result = next((r for r in op.results if r.name == name), None)
        hazard = _in_graph(op, result, operand, operators) if operand is not None and result is not None else None
        if operand is not None and result is not None and hazard is not None:
            _report(s, result, operand, hazard, Note(f"'@{op.name}' is declared here", op.signature), report)


def _hazard(op: Operator, result: Operand, operand: Operand, operators: Mapping[str, Operator]) -> Hazard | None:
    found = _sizes(result, operand)
    if found is not None:
        return found
    return _in_compute(op, result, operand) if op.compute is not None else _in_graph(op, result, operand, operators) if op.graph is not None else None


def _in_graph(op: Operator, result: Operand, operand: Operand, operators: Mapping[str, Operator]) -> Hazard | None:
    assert op.graph is not None
    nodes = op.graph.nodes
    made = {e.name: n for n in nodes for e in produced(n)}
    same = _aliases(operand.name, nodes)
    edge = result.name
    while isinstance(made.get(edge), Alias):
        edge = made[edge].of.name  # type: ignore[union-attr]
    maker = made.get(edge)
    if edge == operand.name or not isinstance(maker, Node):
        return None
    for n in nodes:
        if isinstance(n, Node) and n is not maker and any(e.name in same for e in consumed(n)) and _waits(n, maker, made):
            return Hazard(LATER, n.span)
    for r in op.results:
        if r.name in same:
            return Hazard(f"'%{r.name}' is '%{operand.name}' itself", made[r.name].span)
    callee = operators.get(maker.op)
    if callee is None:
        return None
    written = callee.results[next(k for k, e in enumerate(maker.results) if e.name == edge)]
    for o, e in zip(callee.operands, consumed(maker), strict=False):
        if e.name in same:
            inner = _hazard(callee, written, o, operators)
            if inner is not None:
                return Hazard(inner.why, maker.span)
    return None


def _aliases(name: str, nodes: tuple[Node | Alias, ...]) -> set[str]:
    out = {name}
    for _ in nodes:
        more = {n.name.name for n in nodes if isinstance(n, Alias) and n.of.name in out}
        if more <= out:
            break
        out |= more
    return out


def _waits(n: Node, maker: Node, made: Mapping[str, Node | Alias]) -> bool:
    """Whether `n` runs after `maker`, by data or by `after`."""
    left: list[Node | Alias] = [n]
    seen: set[int] = set()
    while left:
        item = left.pop()
        if item is maker:
            return True
        if id(item) in seen:
            continue
        seen.add(id(item))
        left += [made[e.name] for e in (*consumed(item), *(item.after if isinstance(item, Node) else ())) if e.name in made]
    return False


def hazard_of(op: Operator, result: Operand, operand: Operand) -> str | None:
    """Why a result cannot take over the memory of an operand; None if it can. What a user's kernel does, its contract says."""
    asked = any(name == result.name and isinstance(s.value, Read) and s.value.tensor == operand.name for name, s in _settings(op))
    if op.kernel is not None or op.compute is None:
        return None if asked else f"'@{op.name}' is a kernel that does not say so"
    found = _sizes(result, operand) or _in_compute(op, result, operand)
    return found.why if found is not None else None
