"""Where the edges of a pipeline lie: who shares memory with whom, and at which offset of which arena.

Before:  %a = @norm(%x) plan { stream = 0 }
         %b = @relu(%a) plan { stream = 0 }
         %c = @norm(%b) plan { stream = 0 }
After:   %a = @norm(%x) plan { stream = 0, %a { arena = "cuda:0", offset = 0, bytes = 4194304 } }
         %b = @relu(%a) plan { stream = 0, %b { arena = "cuda:0", offset = 0, bytes = 4194304, inplace = %a } }
         %c = @norm(%b) plan { stream = 0, %c { arena = "cuda:0", offset = 4194304, bytes = 4194304 } }

Two edges may share bytes only if everything that touches the one is done before the other is first written, whatever the streams do meanwhile. Beyond that
- a result takes over the bytes of an operand (`inplace = %a`) that its operator reads at the same index only and that nobody needs any more; first where the
  contract asks for it;
- what a node would only join along the outermost axis is written to its slice at once (`within = %y, offset = 1024`), and the node is `elided`, also where
  the joined tensor is the caller's;
- an edge that is a result of the pipeline is computed into the caller's memory and has no place here.

Each device has one arena. Offsets are multiples of 256 (64 in memory of the host), or of a larger `align` that a contract asks for. Several ways to pack are
tried against the lower bound, the heaviest set of buffers that are pairwise live together. Where sizes are symbolic the text has `bytes` as an expression
and no offset: those are packed for each set of shapes when it first comes, without compiling anything, and proven again.

What depends on `param` inputs alone is marked `once = true`: it runs when parameters are bound.

Requires: a flat pipeline in launch order, types.
Keeps: the order of nodes, what they compute; places that are written already.
Adds: `%edge { … }`, `elided` and `once` to plans.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.antichain import lower_bound
from pipelink_ir.ir.diagnostics import Report, UsageError
from pipelink_ir.ir.nodes import Alias, Const, Expr, IntLit, Module, Node, Operator, Pipeline, Read, Scoped, Section, Setting, Text, Value
from pipelink_ir.ir.packing import pack
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.aliasing.access import Access
from pipelink_ir.passes.aliasing.decide import Decision, decide
from pipelink_ir.passes.aliasing.layout import Layout, Root, align_of, arena_of, bytes_of, is_true, types_of
from pipelink_ir.passes.aliasing.once import once_nodes
from pipelink_ir.passes.aliasing.order import claimed, places
from pipelink_ir.passes.manager import register_pass


@dataclass(frozen=True, slots=True)
class Options:
    """What may share memory."""

    device: str = ""
    """The arena of all nodes, `cpu` where everything runs there; otherwise each device has its own."""
    inplace: bool = True
    """Whether results take over the bytes of operands."""
    slices: bool = True
    """Whether what is joined is written to its slice at once."""


@register_pass("alias-buffers", "who shares memory with whom, and where in the arena", Options, typed=True)
def alias_buffers(module: Module, options: Options, report: Report) -> Module:
    """Give every edge a place; see the page above."""
    if options.device not in ("", "cpu"):
        raise UsageError(f"alias-buffers: 'device' is cpu, or left out, not '{options.device}'")
    operators = {o.name: o for o in module.operators}
    known: dict[str, Access] = {}
    with deep():
        items = tuple(_Aliasing(i, operators, options, known).run() if isinstance(i, Pipeline) else i for i in module.items)
    return module if all(a is b for a, b in zip(items, module.items, strict=True)) else replace(module, items=items)


@dataclass(slots=True)
class _Aliasing:
    pipeline: Pipeline
    operators: dict[str, Operator]
    options: Options
    known: dict[str, Access]
    placed: dict[str, Scoped] = field(default_factory=dict)

    def run(self) -> Pipeline:
        p = self.pipeline
        said = {s.tensor: s for node in p.nodes if isinstance(node, Node) for s in places(node.plan)}
        straight = claimed(p)
        left = {e.name for node in p.nodes if isinstance(node, Node) for e in node.results if e.name not in said and e.name not in straight}
        once = [n for n in once_nodes(p) if not is_true(_node(p, n), "once")]
        decision = decide(p, self.operators, self.known, self.options.device, self.options.inplace, self.options.slices) if left else Decision()
        for node in p.nodes if left else ():
            if isinstance(node, Node):
                self._entries(node, left, decision)
        laid = self._written(p, self.placed, decision.elided, set(once))
        offsets = self._packed(Layout.of(laid, self.options.device, self.operators))
        return laid if not offsets else self._written(laid, {e: _with_offset(s, offsets) for e, s in _all(laid) if _root(s, offsets) is not None}, set(), set())

    def _entries(self, node: Node, left: set[str], decision: Decision) -> None:
        """What is known of a node's results before anything is packed. `left` are edges in an arena of which nothing is said."""
        arena = arena_of(node.device or self.pipeline.device, self.options.device)
        for e, t in zip(node.results, node.types, strict=True):
            if e.name not in left:
                continue
            size = Setting("bytes", bytes_of(t))
            if e.name in decision.within:
                whole, offset = decision.within[e.name]
                self.placed[e.name] = Scoped(e.name, (Setting("within", Read(whole)), Setting("offset", offset), size))
                continue
            over = decision.inplace.get(e.name)
            self.placed[e.name] = Scoped(e.name, (Setting("arena", Text(arena)), size, *((Setting("inplace", Read(over)),) if over is not None else ())))

    def _packed(self, layout: Layout) -> dict[str, int]:
        """The offset of every edge in an arena whose sizes are all known; none that has one."""
        types = types_of(self.pipeline)
        arenas: dict[str, list[Root]] = {}
        for root in layout.in_arena:
            arenas.setdefault(root.arena, []).append(root)
        out: dict[str, int] = {}
        for arena, roots in arenas.items():
            sizes = [_static(root, types) for root in roots]
            if any(s is None for s in sizes) or all(r.offset is not None for r in roots):
                continue
            lives = [layout.lifetime(r, s or 0) for r, s in zip(roots, sizes, strict=True)]
            align = align_of(arena)
            offsets, _ = pack(lives, align, {n: r.offset for n, r in enumerate(roots) if r.offset is not None}, lower_bound(lives, align).bytes)
            for root, offset in zip(roots, offsets, strict=True):
                out.update((m, offset) for m in root.members)
        return out

    def _written(self, p: Pipeline, entries: dict[str, Scoped], elided: set[int], once: set[int]) -> Pipeline:
        nodes: list[Node | Alias] = []
        for n, node in enumerate(p.nodes):
            mine = [entries[e.name] for e in node.results if e.name in entries] if isinstance(node, Node) else []
            if not isinstance(node, Node) or not (mine or n in elided or n in once):
                nodes.append(node)
                continue
            named = {s.tensor for s in mine}
            kept = [e for e in (node.plan.entries if node.plan is not None else ()) if not (isinstance(e, Scoped) and e.tensor in named)]
            flags = [*([Setting("once", _TRUE)] if n in once else []), *([Setting("elided", _TRUE)] if n in elided else [])]
            plain = [e for e in kept if isinstance(e, Setting)]
            span = {"span": node.plan.span} if node.plan is not None else {}
            nodes.append(replace(node, plan=Section("plan", (*plain, *flags, *(e for e in kept if isinstance(e, Scoped)), *mine), **span)))
        same = all(a is b for a, b in zip(nodes, p.nodes, strict=True))
        return p if same else replace(p, nodes=tuple(nodes))


_TRUE = Const("true")


def _node(p: Pipeline, n: int) -> Node:
    node = p.nodes[n]
    assert isinstance(node, Node)
    return node


def _all(p: Pipeline) -> Iterable[tuple[str, Scoped]]:
    return ((s.tensor, s) for node in p.nodes if isinstance(node, Node) for s in places(node.plan))


def _keys(s: Scoped) -> dict[str, Value]:
    return {x.key: x.value for x in s.settings}


def _root(s: Scoped, offsets: dict[str, int]) -> int | None:
    """The offset of an edge that is written without one."""
    keys = _keys(s)
    return offsets.get(s.tensor) if "arena" in keys and "offset" not in keys else None


def _with_offset(s: Scoped, offsets: dict[str, int]) -> Scoped:
    at = 1 + next(n for n, x in enumerate(s.settings) if x.key == "arena")
    return replace(s, settings=(*s.settings[:at], Setting("offset", IntLit(offsets[s.tensor])), *s.settings[at:]))


def _static(root: Root, types: object) -> int | None:
    """The bytes of a root, if they are known now."""
    assert isinstance(types, dict)
    if isinstance(root.bytes, IntLit):
        return root.bytes.value
    size: Expr = bytes_of(types[root.name])
    return size.value if isinstance(size, IntLit) else None
