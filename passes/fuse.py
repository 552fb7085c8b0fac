"""Which nodes become one operator.

Before:  %edges = @sobel_3x3(%img)                   After:  %out = @sobel_3x3.gamma_correct(%img) reason = "sobel_3x3, gamma_correct: …"
         %out   = @gamma_correct.1(%edges)

A node is put into the one node that reads it: its results become locals of the fused operator, which is index notation again, prints, and reads back.
An edge that is fused away still rounds to its dtype, so that fused equals unfused bit for bit. What is recomputed, kept in registers or written to memory
is the schedule's decision from then on; an edge that it writes to memory costs no more than before.

Requires: a flat pipeline, types inferred.
Keeps: results, bit for bit; the order that `after` asks for; operators with a kernel, a library, a schedule or a downgrade policy of their own.
Adds: operators with joined names; `reason` on the nodes that call them.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Alias, Edge, Module, Node, Operator, Pipeline, Setting
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.fusion.compose import Composed, Link, Refused, Shared, Side, compose
from pipelink_ir.passes.infer.operator import infer_operator, keep_typed
from pipelink_ir.passes.manager import register_pass


@dataclass(frozen=True, slots=True)
class Options:
    """How far fusion goes."""

    nodes: int = 12
    """Most nodes in one fused operator; 1 switches fusion off."""
    definitions: int = 64
    """Most definitions in one fused operator."""
    operands: int = 24
    """Most operands and results of one fused operator."""


@register_pass("fuse", "which nodes become one operator", Options, typed=True)
def fuse(module: Module, options: Options, report: Report) -> Module:
    """Fuse each pipeline; see the page above."""
    with deep():
        return _Fusion(module, options).run()


@dataclass(slots=True)
class _Fusion:
    module: Module
    options: Options
    operators: dict[str, Operator] = field(default_factory=dict)
    made: dict[tuple[object, ...], Composed | None] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fused operator -> the operators that it is made of."""

    def run(self) -> Module:
        self.operators = {o.name: o for o in self.module.operators}
        pipelines = {p.name: self._pipeline(p) for p in self.module.pipelines}
        if all(pipelines[p.name] is p for p in self.module.pipelines):
            return self.module
        called = dict.fromkeys(n.op for p in pipelines.values() for n in p.nodes if isinstance(n, Node))
        items = [pipelines[i.name] if isinstance(i, Pipeline) else i for i in self.module.items if not isinstance(i, Operator)]
        at = next(k for k, i in enumerate(items) if isinstance(i, Pipeline))
        return replace(self.module, items=(*items[:at], *(self.operators[name] for name in called), *items[at:]))

    def _pipeline(self, p: Pipeline) -> Pipeline:
        uses = _uses(p)
        outputs = {r.name for r in p.results}
        maker: dict[str, int] = {}
        nodes: list[Node | Alias | None] = []
        changed = False
        for n in p.nodes:
            if isinstance(n, Node):
                while (found := self._absorb(n, nodes, maker, uses, outputs)) is not None:
                    index, n = found
                    nodes[index] = None
                    changed = True
                for e in n.results:
                    maker[e.name] = len(nodes)
            nodes.append(n)
        return replace(p, nodes=tuple(n for n in nodes if n is not None)) if changed else p

    def _absorb(self, c: Node, nodes: list[Node | Alias | None], maker: dict[str, int], uses: dict[str, int], outputs: set[str]) -> tuple[int, Node] | None:
        """The first producer of `c` that can be put into it, and what becomes of `c`."""
        for a in c.args:
            assert isinstance(a, Edge)
            index = maker.get(a.name)
            p = nodes[index] if index is not None else None
            if index is None or not isinstance(p, Node) or p.plan is not None or c.plan is not None or p.device != c.device:
                continue
            inside = {e.name: sum(x.name == e.name for x in c.args if isinstance(x, Edge)) for e in p.results}
            if any(uses.get(e, 0) != count for e, count in inside.items()):
                continue
            new = self._fused(p, c, outputs)
            if new is not None:
                return index, new
        return None

    def _fused(self, p: Node, c: Node, outputs: set[str]) -> Node | None:
        op_p, op_c = self.operators[p.op], self.operators[c.op]
        result_of = {e.name: r.name for e, r in zip(p.results, op_p.results, strict=True)}
        operand_p = {a.name: o.name for a, o in zip(p.args, op_p.operands, strict=True) if isinstance(a, Edge)}
        pairs = [(o.name, a.name) for o, a in zip(op_c.operands, c.args, strict=True) if isinstance(a, Edge)]
        links = tuple(Link(o, result_of[a], a) for o, a in pairs if a in result_of)
        shared = tuple(Shared(o, operand_p[a]) for o, a in pairs if a in operand_p)
        kept = frozenset(r for e, r in result_of.items() if e in outputs)
        # A result that nobody reads is dropped by simplify only with its node; kept, it stays what it was.
        kept |= {r for e, r in result_of.items() if all(k.edge != e for k in links)}
        composed = self._compose(op_p, op_c, links, shared, kept)
        return None if composed is None else self._node(p, c, composed, kept, result_of)

    def _compose(self, p: Operator, c: Operator, links: tuple[Link, ...], shared: tuple[Shared, ...], kept: frozenset[str]) -> Composed | None:
        key = (p.name, c.name, tuple((k.operand, k.result) for k in links), shared, kept)
        if key not in self.made:
            self.made[key] = self._make(p, c, links, shared, kept)
        return self.made[key]

    def _make(self, p: Operator, c: Operator, links: tuple[Link, ...], shared: tuple[Shared, ...], kept: frozenset[str]) -> Composed | None:
        parts = (*self.parts.get(p.name, (p.name,)), *self.parts.get(c.name, (c.name,)))
        size = sum(len(o.compute.body) for o in (p, c) if o.compute is not None)
        if len(parts) > self.options.nodes or size > self.options.definitions:
            return None
        if len(p.params) + len(c.params) + len(p.results) + len(c.results) > self.options.operands:
            return None
        try:
            made = compose(self._name(parts), p, c, links, shared, kept)
        except Refused:
            return None
        report = Report()
        typed = infer_operator(made.op, report)
        if typed is None or report.failed:
            return None
        keep_typed(made.op, typed)
        self.operators[made.op.name] = made.op
        self.parts[made.op.name] = parts
        return made

    def _name(self, parts: tuple[str, ...]) -> str:
        stem = ".".join(_stem(part) for part in parts)
        k = 0
        while (name := stem if k == 0 else f"{stem}.{k}") in self.operators:
            k += 1
        return name

    def _node(self, p: Node, c: Node, made: Composed, kept: frozenset[str], result_of: dict[str, str]) -> Node:
        args: dict[str, Edge] = {}
        for side, op, n in ((made.producer, self.operators[p.op], p), (made.consumer, self.operators[c.op], c)):
            for o, a in zip(op.operands, n.args, strict=True):
                if isinstance(a, Edge):
                    args.setdefault(side.tensors[o.name], a)
        attrs = (*_attrs(p, made.producer), *_attrs(c, made.consumer))
        old = [(e, t) for e, t in zip(p.results, p.types, strict=True) if result_of[e.name] in kept]
        results, types = (*(e for e, _ in old), *c.results), (*(t for _, t in old), *c.types)
        inside = {e.name for e in p.results}
        after = tuple({e.name: e for e in (*p.after, *c.after) if e.name not in inside}.values())
        reason = f"{', '.join(_stem(x) for x in self.parts[made.op.name])}: " + ", ".join(f"'%{e}'" for e,
                                                                                          r in result_of.items() if r not in kept) + " stays inside"
        # What the ledger lists of either node (that it runs elsewhere than it asks, say) holds of both together.
        reason = "; ".join([reason, *(r for r in dict.fromkeys((p.reason, c.reason)) if r)])
        return replace(c, results=results, types=types, op=made.op.name, args=tuple(args[o.name] for o in made.op.operands), attrs=attrs, after=after,
                       reason=reason)


def _attrs(n: Node, side: Side) -> list[Setting]:
    return [replace(s, key=side.names.get(s.key, s.key)) for s in n.attrs]


def _stem(name: str) -> str:
    """The last word of an operator's name, without the number of its specialisation."""
    words = [w for w in name.split(".") if not w.isdigit()]
    return words[-1] if words else name


def _uses(p: Pipeline) -> dict[str, int]:
    """How often each edge is read by nodes; an alias or an `after` counts double, so that its edge stays."""
    out: dict[str, int] = {}
    for n in p.nodes:
        reads, others = (n.args, n.after) if isinstance(n, Node) else ((), (n.of,))
        for edges, weight in ((reads, 1), (others, 1000)):
            for e in edges:
                assert isinstance(e, Edge)
                out[e.name] = out.get(e.name, 0) + weight
    return out
