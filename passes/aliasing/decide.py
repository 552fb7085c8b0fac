"""Which edges share the memory of others by what is done to them, not by when they live: results in the place of an operand, parts of a join in their slices.

A result takes over the bytes of an operand if its operator reads each element for that element of the result alone (`access.py`), and everybody else who
touches these bytes is done before. A join (a concatenation, a stack) is not run where what it joins can be written to its place at once: every part is made by
a node for the arena of the same device, is nobody's result, and is joined only here.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Node, Operator, Pipeline, TensorType
from pipelink_ir.ir.system import System
from pipelink_ir.passes.aliasing.access import Access, Join, access_of
from pipelink_ir.passes.aliasing.layout import arena_of, asked_align, is_true, product, types_of
from pipelink_ir.passes.aliasing.order import Clocks, arguments, claimed, origins, places

SLICE_ALIGN = 16
"""What a slice on a GPU begins at a multiple of, so that it is written in whole vectors."""


@dataclass(slots=True)
class Decision:
    """`inplace`: an edge and the one whose bytes it takes over. `within`: an edge, the join that it is part of, and where in that. `elided`: the nodes of such
    joins. `align`: what contracts ask of each edge's memory."""

    inplace: dict[str, str] = field(default_factory=dict)
    within: dict[str, tuple[str, Expr]] = field(default_factory=dict)
    elided: set[int] = field(default_factory=set)
    align: dict[str, int] = field(default_factory=dict)


def decide(pipeline: Pipeline, operators: Mapping[str, Operator], known: dict[str, Access], device: str = "", inplace: bool = True,
           slices: bool = True) -> Decision:
    """What shares memory in a pipeline. `known` keeps what was found out about operators."""
    return _Deciding(pipeline, operators, known, device).run(inplace, slices)


class _Deciding:
    def __init__(self, pipeline: Pipeline, operators: Mapping[str, Operator], known: dict[str, Access], device: str) -> None:
        self.pipeline, self.operators, self.known, self.device = pipeline, operators, known, device
        self.out = Decision()
        self.clocks = Clocks.of(pipeline)
        self.types = types_of(pipeline)
        self.straight = claimed(pipeline)
        self.origin = origins(pipeline)
        self.said = {s.tensor for node in pipeline.nodes if isinstance(node, Node) for s in places(node.plan)}
        self.maker: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.touched: dict[str, tuple[int, ...]] = {}
        """For each edge in an arena who touches its bytes, as the place on each stream behind the last one: those of a join are touched by whoever touches a
        part."""

    def run(self, inplace: bool, slices: bool) -> Decision:
        self._read()
        nodes = [(n, node) for n, node in enumerate(self.pipeline.nodes) if isinstance(node, Node)]
        for n, node in nodes if slices else ():
            self._slices(n, node)
        for n, node in nodes if inplace else ():
            self._in_place(n, node)
        return self.out

    def _access(self, op: str) -> Access:
        found = self.known.get(op)
        if found is None:
            found = self.known[op] = access_of(self.operators[op])
        return found

    def _read(self) -> None:
        self.out.align = asked_align(self.pipeline, self.operators)
        for n, node in enumerate(self.pipeline.nodes):
            if not isinstance(node, Node):
                continue
            self.maker.update((e.name, n) for e in node.results)
            for a in arguments(node):
                self.readers.setdefault(self._edge(a.name), []).append(n)
        for edge, n in self.maker.items():
            self.touched[edge] = self.clocks.behind((n, *self.readers.get(edge, ())))

    def _edge(self, name: str) -> str:
        return self.origin.get(name, name)

    def _arena(self, edge: str) -> str:
        node = self.pipeline.nodes[self.maker[edge]]
        assert isinstance(node, Node)
        return arena_of(node.device or self.pipeline.device, self.device)

    def _free(self, edge: str) -> bool:
        """Whether an edge lies in an arena, and nothing is said of its place."""
        return edge in self.maker and edge not in self.straight and edge not in self.said

    # -------------------------------------------------------------------------------------------------------------------- slices

    def _slices(self, n: int, node: Node) -> None:
        join = self._access(node.op).join
        whole = node.results[0].name
        if join is None or is_true(node, "elided") or whole in self.said:
            return
        names = [self._edge(e.name) for e in arguments(node)]
        type = self.types[whole]
        if len(set(names)) != len(names) or any(d != IntLit(1) for d in type.dims[:join.axis]):
            return
        parts = [names[o] for o in join.parts]
        if not all(self._part_fits(p, whole) for p in parts):
            return
        offsets = self._offsets(join, parts, type)
        if not all(_multiple(o, self._slice_align(p)) for p, o in zip(parts, offsets, strict=True)):
            return
        self.out.elided.add(n)
        for p, o in zip(parts, offsets, strict=True):
            self.out.within[p] = whole, o
            self.touched[whole] = tuple(map(max, self.touched[whole], self.touched[p]))
        self.out.align[whole] = max(self.out.align.get(whole, 1), *(self.out.align.get(p, 1) for p in parts))

    def _part_fits(self, part: str, whole: str) -> bool:
        made = self.pipeline.nodes[self.maker[part]] if part in self.maker else None
        return (self._free(part) and part not in self.out.within and self.maker[part] not in self.out.elided and self._arena(part) == self._arena(whole)
                and isinstance(made, Node) and not is_true(made, "elided") and self.types[part].dtype == self.types[whole].dtype)

    def _slice_align(self, part: str) -> int:
        size = DTYPES[self.types[part].dtype].bytes
        return max(self.out.align.get(part, 1), size if self._arena(part) == "cpu" else SLICE_ALIGN)

    def _offsets(self, join: Join, parts: list[str], type: TensorType) -> list[Expr]:
        """Where each part begins, in bytes."""
        inner = product((IntLit(DTYPES[type.dtype].bytes), *type.dims[join.axis + 1:]))
        at: Expr = IntLit(0)
        out: list[Expr] = []
        for p in parts:
            out.append(product((inner, at)))
            at = normal(Apply("+", (at, IntLit(1) if join.stacked else self.types[p].dims[join.axis])))
        return out

    # ------------------------------------------------------------------------------------------------------------------ in place

    def _in_place(self, n: int, node: Node) -> None:
        if n in self.out.elided or is_true(node, "elided"):
            return
        over = self._access(node.op).over
        if not over:
            return
        names = [self._edge(e.name) for e in arguments(node)]
        taken: set[str] = set()
        for r, e in enumerate(node.results):
            if not self._free(e.name) or e.name in self.out.within:
                continue
            able = [(not wished, o) for (result, o), wished in over.items() if result == r]
            for _, o in sorted(able):
                x = names[o]
                if x not in taken and self._may_end(n, x, e.name, [k for k, name in enumerate(names) if name == x], r, over):
                    taken.add(x)
                    self.out.inplace[e.name] = x
                    self.touched[e.name] = self.touched[x] = tuple(map(max, self.touched[x], self.touched[e.name]))
                    self.out.align[x] = self.out.align[e.name] = max(self.out.align.get(x, 1), self.out.align.get(e.name, 1))
                    self._widen(x)
                    break

    def _widen(self, edge: str) -> None:
        """What lies in one place has one alignment: if that of the edge below is enough, so is that of all below it."""
        align = self.out.align[edge]
        while (below := self.out.inplace.get(edge)) is not None and self.out.align.get(below, 1) < align:
            self.out.align[below] = align
            edge = below

    def _may_end(self, n: int, x: str, edge: str, operands: list[int], r: int, over: Mapping[tuple[int, int], bool]) -> bool:
        """Whether node `n` may write the bytes of `x`: it reads them so that it can, and everybody else is done with them."""
        if not self._free(x) or x in self.out.within or self._arena(x) != self._arena(edge) or any((r, o) not in over for o in operands):
            return False
        return self.clocks.done_but(n, self.touched[x])


def _multiple(offset: Expr, align: int) -> bool:
    """Whether an offset is a multiple for all sizes."""
    if isinstance(offset, IntLit):
        return offset.value % align == 0
    form = System().translate.integer(offset)
    return form is not None and all(c % align == 0 for c in form.terms.values())

