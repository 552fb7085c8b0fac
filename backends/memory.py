"""The arena of one plan: places of edges and of what a node needs while it runs, for sizes that are known.

Places that the text of the plan gives are kept. Everything else is packed around them: edges whose sizes the call decides, and temporaries of operators, which
live while the kernels of their node that use them run and go where edges leave room then. However the places were found, the proof of `passes/proof` looks at
them once more before anything runs. A pipeline on several devices that runs on one has their arenas one behind another.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelink_ir.ir.diagnostics import ExecutionError, Report, internal_error
from pipelink_ir.ir.nodes import IntLit, Node, Pipeline
from pipelink_ir.ir.packing import Lifetime, pack, rounded
from pipelink_ir.passes.aliasing.layout import Layout, Root, align_of, arena_of
from pipelink_ir.passes.aliasing.report import Memory, Stretch, described
from pipelink_ir.passes.proof.memory import MemoryProof, Scratch, happens_before

MOST = 1 << 62
"""No memory has so many bytes, and addresses beyond are no longer numbers of 64 bits."""


@dataclass(frozen=True, slots=True)
class Placed:
    """`offsets` of all stretches from the beginning of the one block of `bytes` that holds every arena, and what it has to be aligned to."""

    offsets: Sequence[int]
    bytes: int
    align: int
    memory: Memory


@dataclass(slots=True)
class _Stretch:
    """A root with its edges (name, offset, bytes), or a temporary that kernels `first` to `last` of node `node` use."""

    name: str
    arena: str
    size: int
    root: Root | None = None
    node: int = 0
    first: int = 0
    last: int = 0
    edges: list[tuple[str, int, int]] = field(default_factory=list)


class Arenas:
    """What one plan puts into arenas. Stretches are numbered as they come."""

    def __init__(self, pipeline: Pipeline, layout: Layout) -> None:
        self.pipeline, self.layout = pipeline, layout
        self.stretches: list[_Stretch] = []
        self.of: dict[str, int] = {}
        devices = {r.arena for r in layout.in_arena}
        self.only = devices.pop() if len(devices) == 1 else None
        """The one arena that there is: then temporaries go there too, whatever their node says."""

    def edge(self, name: str, root: Root, offset: int, size: int) -> int:
        """An edge that lies `offset` bytes behind the beginning of its root; the number of the stretch."""
        number = self.of.get(root.name)
        if number is None:
            number = self.of[root.name] = len(self.stretches)
            self.stretches.append(_Stretch(described(self.layout, root), root.arena, 0, root))
        stretch = self.stretches[number]
        stretch.edges.append((name, offset, size))
        stretch.size = max(stretch.size, offset + size)
        return number

    def temporary(self, node: int, name: str, size: int, kernels: tuple[int, int]) -> int:
        """What lives while some kernels of a node run, from the first to the last of these numbers; the number of the stretch."""
        item = self.pipeline.nodes[node]
        assert isinstance(item, Node)
        self.stretches.append(_Stretch(name, self.only or arena_of(item.device or self.pipeline.device, self.layout.device), size, None, node, *kernels))
        return len(self.stretches) - 1

    def place(self) -> Placed:
        """Find the places, and prove them."""
        arenas: dict[str, list[int]] = {}
        total = sum(s.size for s in self.stretches)
        if total > MOST:
            report = Report()
            report.error("PL6201", self.pipeline.name_span, f"what lives between the nodes of '@{self.pipeline.name}' has {total} bytes for these sizes, more "
                         "than memory can have", (), "give smaller arrays")
            raise ExecutionError(report.diagnostics)
        for n, s in enumerate(self.stretches):
            arenas.setdefault(s.arena, []).append(n)
        offsets, begin, align = [0] * len(self.stretches), 0, 1
        seen: list[Stretch] = []
        peaks: dict[str, int] = {}
        for arena, numbers in arenas.items():
            lives = [self._life(self.stretches[n]) for n in numbers]
            found, total = pack(lives, align_of(arena), self._given(numbers))
            peaks[arena] = total
            seen += [Stretch(self.stretches[n].name, arena, o, life) for n, o, life in zip(numbers, found, lives, strict=True)]
            align = max(align, align_of(arena), *(life.align for life in lives))
            begin = rounded(begin, align)
            for n, o in zip(numbers, found, strict=True):
                offsets[n] = begin + o
            begin += total
        self._prove(offsets, begin)
        return Placed(offsets, begin, align, Memory(tuple(seen), peaks))

    def _life(self, s: _Stretch) -> Lifetime:
        if s.root is None:
            return self.layout.clocks.moment(s.size, s.node, s.first, s.last)
        return self.layout.lifetime(s.root, s.size)

    def _given(self, numbers: Sequence[int]) -> dict[int, int]:
        """Offsets that the text has. A size there that is too small for this call is the fault of who wrote it."""
        out: dict[int, int] = {}
        for k, n in enumerate(numbers):
            root = self.stretches[n].root
            if root is None or root.offset is None:
                continue
            out[k] = root.offset
            if isinstance(root.bytes, IntLit) and root.bytes.value < self.stretches[n].size:
                report = Report()
                report.error("arena", root.bytes.span, f"the plan gives '%{root.name}' {root.bytes.value} bytes, and it has {self.stretches[n].size} in this "
                             "call", (), "write more, or leave the place to the compiler")
                raise ExecutionError(report.diagnostics)
        return out

    def _prove(self, offsets: Sequence[int], total: int) -> None:
        """Look at every place once more, with code that has no part in finding them."""
        nodes = [n for n in self.pipeline.nodes if isinstance(n, Node)]
        launch = {n: k for k, n in enumerate(i for i, node in enumerate(self.pipeline.nodes) if isinstance(node, Node))}
        places = {name: ("arena", offsets[n] + o, offsets[n] + o + size) for n, s in enumerate(self.stretches) for name, o, size in s.edges}
        more = [Scratch(launch[s.node], s.name, "arena", offsets[n], offsets[n] + s.size, s.first, s.last) for n, s in enumerate(self.stretches)
                if s.root is None]
        proof = MemoryProof(self.pipeline, nodes, happens_before(self.pipeline, nodes), {})
        faults = proof.check(places, more, {"arena": total})
        if faults:
            internal_error(f"the memory of '@{self.pipeline.name}': {faults[0].message}")
