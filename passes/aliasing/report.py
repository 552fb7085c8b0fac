"""What `--explain` says of memory: how much, how little would do, and who shares with whom."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelink_ir.grammar.printer import print_expr
from pipelink_ir.ir.antichain import Bound, lower_bound
from pipelink_ir.ir.nodes import Expr, IntLit, Node, Pipeline
from pipelink_ir.ir.packing import Lifetime
from pipelink_ir.passes.aliasing.layout import Layout, Root, align_of, bytes_of, types_of

SHOWN = 8
"""Names that a line shows of those that share bytes."""

MOST = 2000
"""Buffers up to which every one has a line."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of an arena that belong to one buffer: the edges that lie there one after another, or side by side, or what a node needs while it runs."""

    name: str
    arena: str
    offset: int
    life: Lifetime

    @property
    def end(self) -> int:
        return self.offset + self.life.size


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory between nodes, for sizes that are known. `arenas` has the peak of each device's arena."""

    stretches: tuple[Stretch, ...]
    arenas: Mapping[str, int]

    @property
    def peak(self) -> int:
        """Bytes of all arenas together."""
        return sum(self.arenas.values())

    def bounds(self) -> dict[str, Bound]:
        """For each arena what no packing goes below."""
        return {arena: lower_bound([s.life for s in self.stretches if s.arena == arena], align_of(arena), peak) for arena, peak in self.arenas.items()}

    @property
    def lower_bound(self) -> int:
        """What no packing goes below, of all arenas together."""
        return sum(b.bytes for b in self.bounds().values())

    @property
    def ratio(self) -> float:
        """The peak as a multiple of the lower bound."""
        least = self.lower_bound
        return self.peak / least if least else 1.0

    def shared(self) -> dict[str, list[str]]:
        """For each buffer those that have some of its bytes at other times."""
        out: dict[str, list[str]] = {s.name: [] for s in self.stretches}
        open_: list[Stretch] = []
        for s in sorted(self.stretches, key=lambda s: (s.arena, s.offset)):
            open_ = [o for o in open_ if o.arena == s.arena and o.end > s.offset]
            for o in open_:
                out[o.name].append(s.name)
                out[s.name].append(o.name)
            if s.life.size:
                open_.append(s)
        return out

    def lines(self) -> Iterator[str]:
        """For people."""
        for arena, bound in self.bounds().items():
            peak, count = self.arenas[arena], sum(s.arena == arena for s in self.stretches)
            kind = "lower bound" if bound.exact else "at least"
            ratio = f", {peak / bound.bytes:.3f}x" if bound.bytes else ""
            yield f"memory: {arena}: peak {peak} bytes, {kind} {bound.bytes}{ratio}, {count} buffer{'s' * (count != 1)}"
        if not self.stretches:
            yield "memory: nothing lives between nodes"
        if len(self.stretches) <= MOST:
            shared = self.shared()
            for s in sorted(self.stretches, key=lambda s: (s.arena, s.offset)):
                yield f"memory:   {s.arena} {s.offset}..{s.end}: {s.name}" + _others(shared[s.name])


def _others(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", shares bytes with " + ", ".join(names[:SHOWN]) + more


def described(layout: Layout, root: Root) -> str:
    """The edges of a root, with how they come to lie there."""
    taken = [m for m in root.members if m != root.name and not layout.spots[m].offsets]
    parts = [m for m in root.members if layout.spots[m].offsets]
    text = f"%{root.name}"
    if taken:
        text += " then " + ", ".join(f"%{m}" for m in taken) + " in place"
    return text + (" made of " + ", ".join(f"%{m}" for m in parts) if parts else "")


def planned(pipeline: Pipeline, device: str = "") -> Memory | None:
    """The memory that the text of a plan describes; None where some place has no number yet."""
    layout = Layout.of(pipeline, device)
    types = types_of(pipeline)
    stretches, arenas = [], dict[str, int]()
    for root in layout.in_arena:
        size = _bytes(root, types[root.name] if root.name in types else None)
        if root.offset is None or not isinstance(size, IntLit):
            return None
        align = align_of(root.arena)
        stretches.append(Stretch(described(layout, root), root.arena, root.offset, layout.lifetime(root, size.value)))
        arenas[root.arena] = max(arenas.get(root.arena, 0), -(-(root.offset + size.value) // align) * align)
    return Memory(tuple(stretches), arenas)


def _bytes(root: Root, type: object) -> Expr | None:
    from pipelink_ir.ir.nodes import TensorType
    return root.bytes if root.bytes is not None else bytes_of(type) if isinstance(type, TensorType) else None


def lines(pipeline: Pipeline, device: str = "") -> Iterator[str]:
    """What is known of a pipeline's memory when it is compiled: numbers, or expressions where sizes are symbolic."""
    found = planned(pipeline, device)
    if found is not None:
        yield from found.lines()
        yield from _straight(Layout.of(pipeline, device))
        return
    layout = Layout.of(pipeline, device)
    types = types_of(pipeline)
    roots = layout.in_arena
    yield f"memory: {len(roots)} buffer{'s' * (len(roots) != 1)} whose sizes the call decides; offsets are found for each set of shapes"
    for root in roots[:MOST]:
        size = _bytes(root, types.get(root.name))
        life = layout.lifetime(root, 0)
        apart = [described(layout, r) for r in roots if r is not root and r.arena == root.arena and not layout.lifetime(r, 0).together(life)] if len(
            roots) <= 200 else []
        yield (f"memory:   {root.arena}: {described(layout, root)}: {print_expr(size) if size is not None else '?'} bytes"
               + _others(apart).replace("shares", "may share"))
    yield from _straight(layout)


def _straight(layout: Layout) -> Iterator[str]:
    for root in layout.roots.values():
        if root.result is not None and len(root.members) > 1:
            yield f"memory:   the caller's: {described(layout, root)}"


def planned_at_all(pipeline: Pipeline) -> bool:
    """Whether plans say anything of memory, or of the order of nodes."""
    return any(isinstance(n, Node) and n.plan is not None for n in pipeline.nodes)
