"""In which order the axes of what passes from one operator to others lie in memory.

Before:  %o = @attention(%q, %k, %v)          // Bx16xSx64        After:  %o.laid = @attention.laid(%q, %k, %v)       // BxSx16x64
         %y = @merge(%o, %w)                                              %y      = @merge.laid(%o.laid, %w)

A product of matrices that streams takes its factors as matrices: the axes of rows, of terms and of the batch each side by side. Where an edge has them in
another order, the product has to copy it first (`scheduling/streams.py`); whoever makes it can as well write it so. The last axis stays the last one, so that
neighbours stay neighbours. Where nothing but a copy is left of the maker, the product reads what that reads. An edge is laid out anew only if that spares a
product the copy, all that read it are of the compiler's own making, and no kernel of theirs becomes one of another kind.

Requires: a flat pipeline, types inferred.
Keeps: results, bit for bit; what a pipeline takes and gives; operators with a kernel, a library, a schedule or a policy of their own.
Adds: operators and edges whose names end in `laid`; `reason` on the node that makes such an edge, or reads another instead.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Alias, Apply, Define, Edge, Module, Name, Node, Operator, Pack, Pipeline, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.walk import deep, walk
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.scheduling.counts import ranges_of
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import KernelPlan, kernels_of
from pipelink_ir.passes.scheduling.permuted import Order, copied, free_to_move, permuted, reordered
from pipelink_ir.passes.scheduling.streams import Streamed
from pipelink_ir.passes.scheduling.tensor_cores import plain_read

STREAMS = Arch("cuda", 90, "a")
"""Where products stream; elsewhere one order is as good as another."""
LAID = "laid"


@dataclass(frozen=True, slots=True)
class Options:
    """There is nothing to choose."""


@register_pass("lay-out", "the order of axes in memory of what passes between operators", Options, typed=True)
def lay_out(module: Module, options: Options, report: Report) -> Module:
    """Lay out the edges of each pipeline; see the page above."""
    work = _Work({o.name: o for o in module.operators})
    with deep():
        pipelines = {p.name: work.pipeline(p) for p in module.pipelines}
    if all(pipelines[p.name] is p for p in module.pipelines):
        return module
    called = {n.op for p in pipelines.values() for n in p.nodes if isinstance(n, Node)}
    items = [pipelines[i.name] if isinstance(i, Pipeline) else i for i in module.items if not isinstance(i, Operator) or i.name in called]
    at = next(k for k, i in enumerate(items) if isinstance(i, Pipeline))
    return replace(module, items=(*items[:at], *(o for name, o in work.made.items() if name in called), *items[at:]))


@dataclass(frozen=True, slots=True)
class _Use:
    """An edge as the operand of a node."""

    node: int
    operand: str


@dataclass(slots=True)
class _Work:
    """What is known of the operators of a module."""

    operators: dict[str, Operator]
    made: dict[str, Operator] = field(default_factory=dict)
    known: dict[tuple[str, tuple[tuple[str, Order], ...]], Operator | None] = field(default_factory=dict)
    planned: dict[str, tuple[KernelPlan, ...]] = field(default_factory=dict)

    def pipeline(self, p: Pipeline) -> Pipeline:
        """A pipeline whose edges are laid out."""
        nodes = list(p.nodes)
        for edge, order in self._wishes(p):
            changed = self._laid(p, nodes, edge, order)
            nodes = nodes if changed is None else changed
        return p if all(a is b for a, b in zip(nodes, p.nodes, strict=True)) else replace(p, nodes=tuple(nodes))

    def _wishes(self, p: Pipeline) -> Iterator[tuple[str, Order]]:
        """Edges that some product would have in another order."""
        fixed = {o.name for o in (*p.inputs, *p.results)} | {x.name for n in p.nodes if isinstance(n, Alias) for x in (n.name, n.of)}
        fixed |= {e.name for n in p.nodes if isinstance(n, Node) for e in n.after}
        fixed |= {e.name for n in p.nodes if isinstance(n, Node) for a in n.args if isinstance(a, Pack) for e in a.items}
        for n in p.nodes:
            op = self.operators.get(n.op) if isinstance(n, Node) else None
            if isinstance(n, Node) and op is not None and _may_gather(op):
                names = {o.name: a.name for o, a in zip(op.operands, n.args, strict=True) if isinstance(a, Edge)}
                yield from ((names[t], order) for t, order in self._gathered(op).items() if t in names and names[t] not in fixed)

    def _gathered(self, op: Operator) -> Mapping[str, Order]:
        """The operands that products of an operator have to copy, and in which order they would not."""
        out: dict[str, Order] = {}
        for k in self._kernels(op):
            if isinstance(k.way, Streamed):
                product = k.way.otherwise.product
                for m, factor, lines in ((k.way.left, product.left, product.rows), (k.way.right, product.right, product.columns)):
                    read = plain_read(factor)
                    if m.gathered and read is not None and m.tensor in {o.name for o in op.operands}:
                        at = {i.name: n for n, i in enumerate(read.indices) if isinstance(i, Name)}
                        axes = {a: at[name] for name, a in product.plain.items() if name in at}
                        terms = [at[r.index] for r in ranges_of(product.reduce)]
                        rows = [axes[a] for a in lines]
                        order = (*(axes[a] for a in product.batch), *(rows + terms if m.along else terms + rows))
                        if order[-1] == len(order) - 1:
                            out[m.tensor] = order
        return out

    def _kernels(self, op: Operator) -> tuple[KernelPlan, ...]:
        if op.name not in self.planned:
            typed, stored = derivation(typed_operator(op), "cuda")
            self.planned[op.name] = kernels_of(typed, gpu_plan(typed, stored), STREAMS)
        return self.planned[op.name]

    def _laid(self, p: Pipeline, nodes: list[Node | Alias], edge: str, order: Order) -> list[Node | Alias] | None:
        """The nodes with an edge in another order; None where that is not to be had, or does not pay."""
        maker = next((k for k, n in enumerate(nodes) if isinstance(n, Node) and any(e.name == edge for e in n.results)), None)
        if maker is None:
            return None
        made, name = nodes[maker], self._fresh(p, nodes, edge)
        assert isinstance(made, Node)
        out = list(nodes)
        op = self.operators.get(made.op)
        at = [e.name for e in made.results].index(edge)
        new = None if op is None else self._permuted(op, {op.results[at].name: order})
        if op is None or new is None or (copied(new) is None and self._kinds(op) != self._kinds(new)):
            return None
        spared = False
        for k, n in enumerate(nodes):
            if not isinstance(n, Node) or not any(isinstance(a, Edge) and a.name == edge for a in n.args):
                continue
            reader = self.operators.get(n.op)
            uses = {} if reader is None else {o.name: order for o, a in zip(reader.operands, n.args, strict=True) if isinstance(a, Edge) and a.name == edge}
            other = None if reader is None else self._permuted(reader, uses)
            if reader is None or other is None or n.device != made.device or not self._as_good(reader, other):
                return None
            spared = spared or self._copies(other) < self._copies(reader)
            args = tuple(replace(a, name=name) if isinstance(a, Edge) and a.name == edge else a for a in n.args)
            out[k] = replace(n, op=other.name, args=args)
        if not spared:
            return None
        source = made.args[0] if copied(new) is not None else None
        if isinstance(source, Edge):
            out = [_reading(n, name, source.name) for n in out]
            first = next(k for k, n in enumerate(out) if n is not nodes[k])
            out[first] = _because(out[first], f"other: '%{edge}' is '%{source.name}' with its axes in another order, in which a product reads it as a matrix")
            return [*out[:maker], *out[maker + 1:]]
        results = tuple(replace(e, name=name) if e.name == edge else e for e in made.results)
        types = tuple(reordered(t, order) if e.name == edge else t for e, t in zip(made.results, made.types, strict=True))
        why = f"other: '%{edge}' is written with its axes in the order {', '.join(map(str, order))}, in which a product reads it as a matrix"
        out[maker] = _because(replace(made, op=new.name, results=results, types=types), why)
        return out

    def _permuted(self, op: Operator, orders: Mapping[str, Order]) -> Operator | None:
        if not all(free_to_move(op, t) for t in orders):
            return None
        key = (op.name, tuple(sorted(orders.items())))
        if key not in self.known:
            n, name = 0, f"{op.name}.{LAID}"
            while name in self.operators:
                n += 1
                name = f"{op.name}.{LAID}.{n}"
            found = self.known[key] = permuted(op, orders, name)
            if found is not None:
                self.operators[name] = self.made[name] = found
        return self.known[key]

    @staticmethod
    def _fresh(p: Pipeline, nodes: list[Node | Alias], edge: str) -> str:
        taken = {o.name for o in (*p.inputs, *p.results)} | {e.name for n in nodes for e in (n.results if isinstance(n, Node) else (n.name,))}
        k, name = 0, f"{edge}.{LAID}"
        while name in taken:
            k += 1
            name = f"{edge}.{LAID}.{k}"
        return name

    def _kinds(self, op: Operator) -> list[str]:
        return [k.kind for k in self._kernels(op)]

    def _copies(self, op: Operator) -> int:
        return self._kinds(op).count("copied")

    def _as_good(self, before: Operator, after: Operator) -> bool:
        """Whether the kernels of an operator are of the kinds that they were, but for copies that it no longer makes."""
        a, b = ([k for k in self._kinds(op) if k != "copied"] for op in (before, after))
        return a == b and self._copies(after) <= self._copies(before)


def _because(n: Node | Alias, why: str) -> Node | Alias:
    """A node with one more thing to be said of it."""
    return replace(n, reason=f"{n.reason}; {why}" if n.reason else why) if isinstance(n, Node) else n


def _reading(n: Node | Alias, edge: str, other: str) -> Node | Alias:
    """A node that reads another edge instead of one."""
    if not isinstance(n, Node) or not any(isinstance(a, Edge) and a.name == edge for a in n.args):
        return n
    return replace(n, args=tuple(replace(a, name=other) if isinstance(a, Edge) and a.name == edge else a for a in n.args))


def _may_gather(op: Operator) -> bool:
    """Whether something may be a product of a factor with more than three axes, or with the batch within; asked of every operator, so it asks little."""
    if op.compute is None or op.kernel is not None or not any(len(o.type.dims) > 2 for o in op.operands):
        return False
    return any(isinstance(x, Reduce) and x.kind == "sum" and isinstance(x.body, Apply) and x.body.fn == "*"
               for d in op.compute.body if isinstance(d, Define) for x in walk(d.value))
