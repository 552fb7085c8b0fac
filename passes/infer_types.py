"""Types, shapes, ranges and bounds: operators specialised to their calls.

Before:  op @gelu(%x: tensor<...xT>) -> …            After:  op @gelu.1(%x: tensor<D0xD1xf16>) -> …
         %y = @gelu(%x)                                      %y = @gelu.1(%x)

Every operator of the module is checked once for all its sizes; then each pipeline's nodes are matched with the operators that they call. Type variables,
`...`, words and dtypes are put in, constant attributes become `let`s, constant dimensions are put in; symbols stay symbols, so that one kernel serves all
sizes. Dimensions written `?` get names. Conditions that cannot be decided are appended to the pipeline's `where`, to be checked at the call.

Requires: names resolved.
Keeps: edges, labels, devices, plans. Running it on its own output changes nothing.
Adds: `Node.types`; nodes in dependency order. Operators that no pipeline calls are dropped, if there is a pipeline.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import BOOL, DTYPES
from pipelink_ir.ir.nodes import (
    Alias,
    Apply,
    Dots,
    Dynamic,
    Edge,
    Expr,
    Graph,
    IntLit,
    Module,
    Name,
    Node,
    Operand,
    Operator,
    Pack,
    Pipeline,
    Setting,
    TensorType,
    Value,
)
from pipelink_ir.ir.prover import Facts, equal
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import deep, names_in, substitute, walk
from pipelink_ir.passes.contracts.batch import check_graph_batch
from pipelink_ir.passes.contracts.inplace import check_graph_inplace
from pipelink_ir.passes.infer.attributes import Values, check_types, values_of
from pipelink_ir.passes.infer.binding import binding_of, existence
from pipelink_ir.passes.infer.calls import Argument, Given, Match, Matcher, packed_type, result_type
from pipelink_ir.passes.infer.expressions import Faulty, Scope, type_expr
from pipelink_ir.passes.infer.foreign import dtype_help
from pipelink_ir.passes.infer.generic import check_operator, name_dynamic, try_samples
from pipelink_ir.passes.infer.operator import infer_operator, keep_typed
from pipelink_ir.passes.infer.rings import check_rings, inner_first
from pipelink_ir.passes.infer.specialise import Binding, Packed, specialise
from pipelink_ir.passes.infer.text import show, show_type, written
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.scopes import order


@dataclass(frozen=True, slots=True)
class Options:
    """What the attributes of pipelines are."""

    set: tuple[str, ...] = ()
    """`name=value`, for pipeline attributes that should not have their default."""


@register_pass("infer-types", "types, shapes, ranges and bounds; operators specialised to their calls", Options)
def infer_types(module: Module, options: Options, report: Report) -> Module:
    """Infer and check everything; see the page above."""
    with deep():
        return _Inference(module, options, report).run()


@dataclass(frozen=True, slots=True)
class _Call:
    """What one call comes to: the operator that is called, what it still needs, and its results' types."""

    op: Operator
    attrs: tuple[Setting, ...]
    types: tuple[TensorType, ...]
    conditions: tuple[Expr, ...]


@dataclass(slots=True)
class _Frame:
    """One scope of nodes: a pipeline, or a graph."""

    number: int
    """Tells frames apart in keys."""
    owner: Pipeline | Operator
    scope: Scope
    known: Mapping[str, Expr]
    facts: Facts
    edges: dict[str, Argument]
    dynamic: set[str] = field(default_factory=set)
    conditions: list[Expr] = field(default_factory=list)


class _Inference:
    def __init__(self, module: Module, options: Options, report: Report) -> None:
        self.module, self.options, self.report = module, options, report
        self.operators = {o.name: o for o in module.operators}
        self.special: dict[tuple[str, Binding], Operator] = {}
        self.used: dict[str, Operator] = {}
        self.calls: dict[tuple[object, ...], _Call] = {}
        self.failed: set[tuple[str, Binding]] = set()
        self.taken: dict[str, int] = {}
        """The last number of an operator's specialisations."""
        self.faulty: set[str] = set()
        self.frames = 0

    def run(self) -> Module:
        check_rings(self.operators, self.report)
        self.report.stop_if_failed()
        for op in self.module.operators:
            before = len(self.report.diagnostics)
            check_operator(op, self.operators, self.report)
            if self._failed(before):
                self.faulty.add(op.name)
        self._check_graphs()
        if not self.module.pipelines:
            self.report.stop_if_failed()
            items = tuple(_in_order(i) if isinstance(i, Operator) else i for i in self.module.items)
            return self.module if all(a is b for a, b in zip(items, self.module.items, strict=True)) else replace(self.module, items=items)
        pipelines = {p.name: self._pipeline(p) for p in self.module.pipelines}
        self.report.stop_if_failed()
        same = all(pipelines[p.name] is p for p in self.module.pipelines) and list(self.used) == list(self.operators)
        if same:
            return self.module
        rest = tuple(pipelines[i.name] if isinstance(i, Pipeline) else i for i in self.module.items if not isinstance(i, Operator))
        at = next(k for k, i in enumerate(rest) if isinstance(i, Pipeline))
        return replace(self.module, items=(*rest[:at], *self.used.values(), *rest[at:]))

    # ------------------------------------------------------------------------------------------------------------- scopes

    def _failed(self, before: int) -> bool:
        """Whether an error was reported since there were `before` diagnostics. What another pipeline gets wrong hides nothing here."""
        return any(d.severity == "error" for d in self.report.diagnostics[before:])

    def _pipeline(self, p: Pipeline) -> Pipeline:
        params, dynamic = name_dynamic(p.params, {n.name for w in p.where for n in walk(w) if isinstance(n, Name)})
        inputs = [o for o in params if isinstance(o, Operand)]
        before = len(self.report.diagnostics)
        check_types(p.attributes, self.report)
        if self._failed(before):
            return p
        known = self._settings(p)
        dims = {n.name: n.span for o in inputs for d in o.type.dims for n in walk(d) if isinstance(n, Name)}
        for a in p.attributes:
            if a.type == "dim":
                dims[a.name] = a.span
        scalars = {a.name: DTYPES[a.type] for a in p.attributes if a.type in DTYPES}
        scope = Scope({}, dims, scalars, {}, self.report, where=f"the pipeline '@{p.name}'")
        facts = self._facts(dims, inputs, p.where, scope, known)
        edges = {o.name: Argument(o.name, o.type, o.span) for o in inputs}
        for tensors in (inputs, p.results):
            self._check_types(tensors)
            if self._failed(before):
                return p
        frame = self._frame(p, scope, known, facts, edges, dynamic)
        nodes = self._nodes(p.nodes, frame)
        self._results(p.results, frame)
        where = [*p.where]
        for c in frame.conditions:
            if c not in where:
                where.append(c)
        gone = {a.name for a in p.attributes if a.type in ("word", "dtype")}
        kept = tuple(a for a in params if isinstance(a, Operand) or a.name not in gone)
        new = replace(p, params=kept, nodes=nodes, where=tuple(where))
        return p if new == p and all(a is b for a, b in zip(nodes, p.nodes, strict=True)) else new

    def _settings(self, p: Pipeline) -> dict[str, Expr]:
        """The values of a pipeline's attributes: what the options say, or the defaults."""
        given: dict[str, Value] = {}
        names = [a.name for a in p.attributes]
        for text in self.options.set:
            name, _, value = text.partition("=")
            if name.strip() in names:
                from pipelink_ir.grammar import parse_expr
                given[name.strip()] = parse_expr(value, "<command line>")
            elif len(self.module.pipelines) == 1:
                self.report.error("attribute", p.signature, f"the pipeline '@{p.name}' has no attribute '{name.strip()}'", (),
                                  did_you_mean(name.strip(), names))
        # A number that is neither given nor has a default stays open: `check` judges the program for all its values, a run asks for it.
        known = tuple(a for a in p.attributes if a.name in given or a.default is not None or a.type in ("word", "dtype"))
        as_op = Operator(p.name, known, (), signature=p.signature)
        scope = Scope({}, {}, {}, {}, self.report, where=f"the pipeline '@{p.name}'")
        values = values_of(as_op, given, scope, {}, p.signature, self.report)
        if values is None:
            self.report.stop_if_failed()
            return {}
        return {**{n: Name(w) for n, w in {**values.words, **values.dtypes}.items()}, **values.dims, **values.scalars}

    def _facts(self, dims: Mapping[str, Span], inputs: list[Operand], where: tuple[Expr, ...], scope: Scope, known: Mapping[str, Expr]) -> Facts:
        facts = Facts(dims)
        for o in inputs:
            for d in o.type.dims:
                if not isinstance(d, Name | IntLit | Dots | Dynamic):
                    facts = facts.with_condition(Apply(">=", (d, IntLit(0)), dtype=BOOL))
        for w in where:
            try:
                typed = type_expr(w, scope)
            except Faulty:
                continue
            if typed.dtype is not BOOL:
                self.report.error("dtype", w.span, "a condition of 'where' is a bool", (), "compare, as in 'where H mod 2 == 0'")
                continue
            condition = substitute(typed, known)
            if facts.refuted(condition):
                self.report.error("shape", w.span, f"'{show(w)}' never holds", (), "change the condition or the attribute")
            facts = facts.with_condition(condition)
        return facts

    def _check_types(self, tensors: Sequence[Operand]) -> None:
        for o in tensors:
            if o.type.dtype not in DTYPES:
                self.report.error("dtype", o.type.span, f"'{o.type.dtype}' is no dtype; what goes into and out of a pipeline has one", (),
                                  dtype_help(o.type.dtype) or f"the dtypes are {', '.join(DTYPES)}")
            for d in o.type.dims:
                if isinstance(d, IntLit) and d.value <= 0:
                    self.report.error("shape", d.span, f"'%{o.name}' has a dimension of {d.value}", (),
                                      "a dimension that is written out is 1 or more; name one that may be 0")
                if isinstance(d, Dots):
                    self.report.error("rank", d.span, f"'...' of '%{o.name}' has no meaning in a pipeline", (), "write the dimensions")
            if o.type.layout is not None and len(o.type.layout) != len(o.type.dims):
                self.report.error("layout", o.type.span, f"the layout {o.type.layout} has {len(o.type.layout)} axes, '%{o.name}' has {len(o.type.dims)}", (),
                                  "name each axis with one letter")

    def _results(self, results: tuple[Operand, ...], frame: _Frame) -> None:
        """What is assigned against what the signature promises."""
        dims = frame.scope.dims
        for r in results:
            made = frame.edges.get(r.name)
            if made is None:
                continue
            place = made.named or made.made
            note = [Note(f"'%{r.name}' is declared {show_type(r.type)} here", r.span)]
            if made.parts:
                self.report.error("result", place, f"'%{r.name}' would be a pack, for which there is no memory", note, "make it with an operator")
            elif r.type.dtype in DTYPES and made.type.dtype != r.type.dtype:
                self.report.error("dtype", place, f"'%{r.name}' holds {made.type.dtype}, but is declared {r.type.dtype}", note,
                                  f"insert '@std.cast(…) {{U = {r.type.dtype}}}', or declare it {made.type.dtype}")
            elif len(made.type.dims) != len(r.type.dims):
                self.report.error("rank", place, f"'%{r.name}' has {len(made.type.dims)} dimensions, but is declared with {len(r.type.dims)}", note,
                                  f"declare it {show_type(made.type)}")
            elif r.type.layout is not None and made.type.layout is not None and r.type.layout != made.type.layout:
                self.report.error("layout", place, f"'%{r.name}' is {made.type.layout}, but is declared {r.type.layout}", note,
                                  f"declare it {show_type(made.type)}")
            else:
                self._result_dims(r, made, frame, dims, note)

    def _result_dims(self, r: Operand, made: Argument, frame: _Frame, dims: Mapping[str, Span], note: list[Note]) -> None:
        place = made.named or made.made
        for k, (want, got) in enumerate(zip(r.type.dims, made.type.dims, strict=True)):
            if isinstance(want, Dynamic):
                continue
            unknown = next((n for n in walk(want) if isinstance(n, Name) and n.name not in dims), None)
            if unknown is not None:
                self.report.error("name", unknown.span, f"the dimension '{unknown.name}' of '%{r.name}' is in no input", (),
                                  did_you_mean(unknown.name, dims) or f"it is {show(got)}: declare it {show_type(made.type)}")
                return
            wanted = substitute(want, frame.known)
            if equal(wanted, got, frame.facts):
                continue
            if (names_in(wanted) | names_in(got)) & frame.dynamic:
                frame.conditions.append(Apply("==", (normal(wanted), normal(got)), span=want.span, dtype=BOOL))
                continue
            self.report.error("shape", place, f"dimension {k} of '%{r.name}' is {show(got)}, but is declared {show(want)}", note,
                              f"declare it {show_type(made.type)}")
            return

    # -------------------------------------------------------------------------------------------------------------- nodes

    def _nodes(self, nodes: tuple[Node | Alias, ...], frame: _Frame) -> tuple[Node | Alias, ...]:
        out: list[Node | Alias] = []
        failed: set[str] = set()
        done, _ = order(nodes)
        for i in done:
            n = nodes[i]
            if isinstance(n, Alias):
                if n.of.name in failed:
                    failed.add(n.name.name)
                else:
                    frame.edges[n.name.name] = replace(frame.edges[n.of.name], name=n.name.name, named=n.name.span)
                if n.name.name in failed or not frame.edges[n.name.name].parts:
                    out.append(n)
                continue
            call = None if any(e.name in failed for a in n.args for e in (a.items if isinstance(a, Pack) else (a,))) else self._call(n, frame)
            if call is None:
                failed.update(e.name for e in n.results)
                out.append(n)
                continue
            for e, t in zip(n.results, call.types, strict=True):
                frame.edges[e.name] = Argument(e.name, t, e.span)
            frame.conditions += call.conditions
            out.append(self._written(n, call, frame))
        return tuple(out)

    @staticmethod
    def _written(n: Node, call: _Call, frame: _Frame) -> Node:
        packs = any(isinstance(a, Pack) or frame.edges[a.name].parts for a in n.args)
        args: list[Edge | Pack] = []
        for e in (e for a in n.args for e in (a.items if isinstance(a, Pack) else (a,))):
            args += [Edge(p.name, span=e.span) for p in frame.edges[e.name].parts] or [e]
        attrs = n.attrs if n.attrs == call.attrs else call.attrs
        if n.op == call.op.name and attrs is n.attrs and not packs and n.types == call.types and n.types:
            return n
        return replace(n, op=call.op.name, args=tuple(args), attrs=attrs, types=call.types)

    def _call(self, n: Node, frame: _Frame) -> _Call | None:
        op = self.operators[n.op]
        if op.name in self.faulty:
            # What is wrong with it has been told; what this call comes to is not known.
            return None
        given = tuple(self._given(a, frame) for a in n.args)
        if any(p.parts for g in given for p in g.parts):
            self.report.error("arity", n.op_span, "a part of a pack is a pack itself in this call", (), "pack all parts in one pair of brackets")
            return None
        # Many nodes make the same call; what it comes to is worked out once.
        key = (op.name, frame.number, tuple((g.along, g.axis, g.pack, tuple(p.type for p in g.parts)) for g in given), n.attrs)
        found = self.calls.get(key)
        if found is not None:
            return found
        values = values_of(op, {s.key: s.value for s in n.attrs}, frame.scope, frame.known, n.op_span, self.report)
        if values is None:
            return None
        match = Matcher(op, n.op_span, frame.facts, frame.dynamic, self.report).run(given, values)
        if match is None:
            return None
        called = self._specialise(op, match, values, n, frame)
        if called is None:
            return None
        graph_conditions = [replace(substitute(w, {**match.dims, **values.scalars}), span=w.span) for w in called.where[len(op.where):]]
        types = tuple(result_type(r, match) for r in op.results)
        conditions = [c for c in (*match.conditions, *graph_conditions, *existence(op, types)) if not frame.facts.prove(c)]
        remaining = {a.name for a in called.attributes}
        exprs: dict[str, Expr] = {**values.dims, **values.scalars, **match.dims}
        attrs = tuple(Setting(a, exprs[a], span=n.span, key_span=n.span) for a in remaining if a in exprs)
        call = _Call(called, tuple(sorted(attrs, key=lambda s: s.key)), types, tuple(conditions))
        if not any(g.pack for g in given):
            self.calls[key] = call
        return call

    @staticmethod
    def _given(a: object, frame: _Frame) -> Given:
        if isinstance(a, Pack):
            return Given(a.span, tuple(frame.edges[e.name] for e in a.items), a.along, pack=True)
        edge = frame.edges[a.name]  # type: ignore[attr-defined]
        return Given(a.span, edge.parts or (edge,), None, bool(edge.parts), edge.axis)  # type: ignore[attr-defined]

    def _specialise(self, op: Operator, match: Match, values: Values, n: Node, frame: _Frame) -> Operator | None:
        """The operator for this call, made on first use."""
        binding = binding_of(op, match, values)
        found = self.special.get((op.name, binding))
        if found is not None or (op.name, binding) in self.failed:
            return found
        if binding == Binding():
            new, k = op, 0
        else:
            k = self.taken.get(op.name, 0) + 1
            while f"{op.name}.{k}" in self.operators or f"{op.name}.{k}" in self.used:
                k += 1
            new = specialise(op, binding, f"{op.name}.{k}")
        before = len(self.report.diagnostics)
        if new.graph is not None:
            inferred = self._graph(new, binding.packed)
            if inferred is None:
                self._blame(n, op, frame, before)
                self.failed.add((op.name, binding))
                return None
            new = inferred
        elif new.compute is not None and new is not op:
            typed = infer_operator(new, self.report)
            if typed is not None:
                keep_typed(new, typed)
            for d in self.report.diagnostics[before:]:
                self.report.diagnostics[self.report.diagnostics.index(d)] = replace(d, notes=(*d.notes, Note("in this call", n.op_span)))
            if len(self.report.diagnostics) > before:
                return None
        self.special[op.name, binding] = new
        self.used[new.name] = new
        if new is not op:
            self.taken[op.name] = k
        return new

    # ------------------------------------------------------------------------------------------------------------- graphs

    def _check_graphs(self) -> None:
        """Each graph for itself, with its own symbols, whether a pipeline calls it or not. What its nodes come to is worked out once for all of them."""
        apart = _Inference(self.module, self.options, self.report)
        apart.faulty = self.faulty

        def check(op: Operator, example: Operator, report: Report) -> None:
            apart.report = report
            inferred = apart._graph(example)
            if inferred is not None:
                check_graph_batch(inferred, apart.used, report)
                check_graph_inplace(inferred, apart.used, report)

        for op in inner_first(self.operators):
            before = len(self.report.diagnostics)
            if op.name not in self.faulty:
                try_samples(op, self.report, check)
            if self._failed(before):
                self.faulty.add(op.name)

    def _blame(self, n: Node, op: Operator, frame: _Frame, before: int) -> None:
        """What a graph is right for in general, and wrong for in this call, is the fault of the call: the place inside becomes a note."""
        edges = [frame.edges[e.name] for a in n.args for e in (a.items if isinstance(a, Pack) else (a,))]
        given = [Note(f"'%{e.name}' is {show_type(e.type)}, made here", e.made) for e in dict.fromkeys(edges)][:4]
        for k, d in enumerate(self.report.diagnostics):
            if k >= before and d.severity == "error":
                inside = Note(f"inside '@{written(op.name)}'", d.span)
                self.report.diagnostics[k] = replace(d, span=n.op_span, notes=(inside, *given, *d.notes))

    def _frame(self, owner: Pipeline | Operator, scope: Scope, known: Mapping[str, Expr], facts: Facts, edges: dict[str, Argument],
               dynamic: set[str]) -> _Frame:
        self.frames += 1
        return _Frame(self.frames, owner, scope, known, facts, edges, dynamic)

    def _graph(self, op: Operator, packed: tuple[tuple[str, Packed], ...] = ()) -> Operator | None:
        """The graph of a specialised operator with its nodes inferred; conditions that stay open are appended to its `where`. What is `packed` has become
        one operand for each part, and a node that takes it takes the parts."""
        assert op.graph is not None
        before = len(self.report.diagnostics)
        params, dynamic = name_dynamic(op.params, set())
        operands = [o for o in params if isinstance(o, Operand)]
        dims = {n.name: n.span for o in operands for d in o.type.dims for n in walk(d) if isinstance(n, Name)}
        for a in op.attributes:
            if a.type == "dim":
                dims[a.name] = a.span
        scalars = {a.name: DTYPES[a.type] for a in op.attributes if a.type in DTYPES}
        scope = Scope({}, dims, scalars, {}, self.report, where=f"'@{op.name}'")
        facts = self._facts(dims, operands, op.where, scope, {})
        edges = {o.name: Argument(o.name, o.type, o.span) for o in operands}
        for name, p in packed:
            parts, axis = tuple(edges[f"{name}.{k}"] for k in range(len(p.parts))), None if p.stack else p.axis
            edges[name] = Argument(name, packed_type(parts, axis), parts[0].made, None, parts, axis)
        frame = self._frame(op, scope, {}, facts, edges, dynamic)
        nodes = self._nodes(op.graph.nodes, frame)
        self._results(op.results, frame)
        if self._failed(before):
            return None
        fresh = tuple(c for c in dict.fromkeys(frame.conditions) if c not in op.where)
        return replace(op, params=params, graph=Graph(nodes, span=op.graph.span), where=(*op.where, *fresh))


def _in_order(op: Operator) -> Operator:
    """An operator whose graph has its nodes in dependency order."""
    if op.graph is None:
        return op
    nodes = tuple(op.graph.nodes[k] for k in order(op.graph.nodes)[0])
    return op if nodes == op.graph.nodes else replace(op, graph=replace(op.graph, nodes=nodes))
