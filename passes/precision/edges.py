"""A pipeline while its precision is lowered: what is put in between nodes, each form of an edge made once, and taken out again where nobody reads it.

A form of an edge is another edge with its values: cast to a dtype, or as codes. Whoever asks twice for the same form gets the same edge; and the form that an
edge was made from without loss (`%y = @std.cast(%y.f16)`, f16 to f32) is there from the beginning, so that a cast there and back never comes to be.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Alias, Device, Edge, Expr, IntLit, Module, Name, Node, Operand, Operator, Pipeline, Scoped, Section, Setting, TensorType
from pipelink_ir.ir.walk import substitute
from pipelink_ir.passes.aliasing.order import arguments, origins
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.codes import own_symbols
from pipelink_ir.passes.precision.floats import admitted, caster, taken_over, varying
from pipelink_ir.passes.precision.products import contracted
from pipelink_ir.passes.shapes import bind_symbols
from pipelink_ir.passes.simplify.nodes import holds

NO_SIZES: Mapping[str, Expr] = MappingProxyType({})

Form = tuple[object, ...]
"""`("cast", "f16")`, `("codes", Codes, …)`."""


@dataclass(slots=True)
class Operators:
    """The operators of a module, and those that are made."""

    known: dict[str, Operator]
    made: dict[tuple[object, ...], str] = field(default_factory=dict)
    """What was asked for -> the name of the operator that does it."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The last number that a name was given."""

    def get(self, key: tuple[object, ...], name: str, build: Callable[[str], Operator | str]) -> Operator | str:
        """The operator for a key, built under an unused name like `name` the first time; a text instead says why there is none."""
        if key in self.made:
            return self.known[self.made[key]]
        op = build(self.unused(name))
        if isinstance(op, Operator):
            self.known[op.name] = op
            self.made[key] = op.name
        return op

    def make(self, key: tuple[object, ...], name: str, build: Callable[[str], Operator]) -> Operator:
        """The operator for a key that there always is."""
        made = self.get(key, name, build)
        assert isinstance(made, Operator)
        return made

    def unused(self, name: str) -> str:
        return unused(name, self.known, self.numbers)

    def cast(self, type: TensorType, to: str) -> Operator:
        """`@std.cast.N` of a type."""
        t = own_symbols(type)
        return self.make(("cast", t.dims, t.dtype, to), "std.cast.1", lambda name: caster(t, to, name))


def unused(name: str, taken: Mapping[str, object] | set[str], numbers: dict[str, int]) -> str:
    """`name`, or with the first number that makes it new: after `linear_f16.1` comes `linear_f16.2`, after `x.f16` `x.f16.2`."""
    if name not in taken:
        return name
    base = name.removesuffix(".1")
    number = numbers.get(base, 1) + 1
    while f"{base}.{number}" in taken:
        number += 1
    numbers[base] = number
    return f"{base}.{number}"


@dataclass(slots=True)
class Line:
    """One pipeline that is written anew, node by node."""

    of: Pipeline
    operators: Operators
    out: list[Node | Alias] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    """Second names -> first names."""
    forms: dict[tuple[str, Form, object], str] = field(default_factory=dict)
    narrow: dict[str, str] = field(default_factory=dict)
    """Edge -> the edge of a narrower dtype that has its values and is read in the same type."""
    coded_only: set[str] = field(default_factory=set)
    """Edges that nobody reads but as codes, and that nobody makes any more."""
    put: set[int] = field(default_factory=set)
    """Positions in `out` of nodes that were put in, and go again if nobody reads them."""

    def __post_init__(self) -> None:
        self.types = {i.name: i.type for i in self.of.inputs}
        self.origin = origins(self.of)
        self.taken = set(self.types) | {e.name for n in self.of.nodes for e in (n.results if isinstance(n, Node) else (n.name,))}

    def first(self, edge: str) -> str:
        """The first name of an edge."""
        return self.origin.get(edge, edge)

    def keep(self, item: Node | Alias) -> None:
        """Put out an item as it is."""
        if isinstance(item, Alias):
            of = self.first(item.of.name)
            self.types[item.name.name] = self.types[of]
            if of in self.coded_only:
                return
        else:
            if len(item.types) != len(item.results):
                internal_error(f"the node of '@{item.op}' has no types")
            self.types.update(zip((e.name for e in item.results), item.types, strict=True))
        self.out.append(item)

    def insert(self, op: Operator, args: Sequence[str], names: Sequence[str], near: Node, reason: str, sizes: Mapping[str, Expr] = NO_SIZES) -> tuple[str, ...]:
        """A new node before or after `near`, whose device and place it takes over; its results get names like `names`. `sizes` are its attributes."""
        results = tuple(map(self.fresh, names))
        self._insert(op, args, results, near, reason, sizes)
        return results

    def fresh(self, name: str) -> str:
        """A name like `name` that no edge has; now one has it."""
        name = unused(name, self.taken, self.numbers)
        self.taken.add(name)
        return name

    def _insert(self, op: Operator, args: Sequence[str], results: Sequence[str], near: Node, reason: str, sizes: Mapping[str, Expr] = NO_SIZES) -> None:
        types = self.result_types(op, [self.types[self.first(a)] for a in args], sizes)
        attrs = tuple(Setting(k, v) for k, v in sizes.items())
        node = Node(tuple(Edge(r, span=near.span) for r in results), op.name, tuple(Edge(a, span=near.span) for a in args), attrs, near.device, reason=reason,
                    loc=near.loc or near.span, types=types, span=near.span, op_span=near.op_span)
        self.put.add(len(self.out))
        self.keep(node)

    @staticmethod
    def result_types(op: Operator, given: Sequence[TensorType], sizes: Mapping[str, Expr] = NO_SIZES) -> tuple[TensorType, ...]:
        """The types of an operator's results for arguments of these types; a layout goes on to results of the same shape."""
        bound = {**bind_symbols(op, given), **sizes}
        layouts = {t.dims: t.layout for t in reversed(given) if t.layout is not None}
        out = []
        for r in op.results:
            dims = tuple(d if isinstance(d, IntLit) else bound[d.name] if isinstance(d, Name) else normal(substitute(d, bound)) for d in r.type.dims)
            out.append(replace(r.type, dims=dims, layout=r.type.layout or layouts.get(dims)))
        return tuple(out)

    def form(self, edge: str, form: Form, device: Device | None) -> str | None:
        """The edge that has the values of `edge` in a form, if there is one."""
        return self.forms.get((self.first(edge), form, place(device)))

    def remember(self, edge: str, form: Form, device: Device | None, made: str) -> None:
        self.forms[self.first(edge), form, place(device)] = made

    # ---------------------------------------------------------------------------------------------------------------------- casts

    def cast(self, edge: str, to: str, near: Node, reason: str) -> str:
        """The edge in another dtype."""
        edge = self.first(edge)
        t = self.types[edge]
        if t.dtype == to:
            return edge
        found = self.form(edge, ("cast", to), near.device)
        if found is None:
            op = self.operators.cast(t, to)
            found = self.insert(op, [edge], [f"{edge}.{to}"], near, reason)[0]
            self.remember(edge, ("cast", to), near.device, found)
        return found

    def cast_back(self, made: str, edge: str, t: TensorType, near: Node, reason: str) -> None:
        """Define `edge`, of type `t`, as a cast of an edge that was made in its place."""
        narrow = self.types[made].dtype
        self._insert(self.operators.cast(self.types[made], t.dtype), [made], [edge], near, reason)
        if holds(DTYPES[narrow], DTYPES[t.dtype]):
            self.remember(edge, ("cast", narrow), near.device, made)
            if DTYPES[narrow].compute is DTYPES[t.dtype].compute:
                self.narrow[edge] = made

    def narrowest(self, edge: str, near: Node) -> str:
        """An edge that has the same values in fewer bytes, for a reader that does not care for the dtype; the edge itself where there is none."""
        edge = self.first(edge)
        found = self.narrow.get(edge)
        return found if found is not None and self.form(edge, ("cast", self.types[found].dtype), near.device) == found else edge

    def adapted(self, n: Node, but: Iterable[str]) -> Node:
        """A node that reads narrower edges where there are such, since it reads the same values there: no cast has to be stored for it. `but`: operands that
        are seen to otherwise. Factors of products stay as they are: these are computed by the dtype of both."""
        op = self.operators.known[n.op]
        if not self.narrow or op.kernel is not None or op.compute is None or written(op.name) in ("std.cast", "std.copy"):
            return n
        kept = frozenset(but) | taken_over(op).keys() | set(taken_over(op).values())
        varies = varying(op)
        changed = {o.name: made for o, e in zip(op.operands, arguments(n), strict=True) if o.name not in kept
                   and (made := self.narrowest(e.name, n)) != self.first(e.name) and not contracted(op, o.name)
                   and (o.name not in varies or admitted(op, self.types[made].dtype))}
        if not changed:
            return n
        dtypes = tuple(sorted((name, self.types[made].dtype) for name, made in changed.items()))

        def build(name: str) -> Operator:
            params = tuple(replace(p, type=replace(p.type, dtype=self.types[changed[p.name]].dtype)) if isinstance(p, Operand) and p.name in changed else p
                           for p in op.params)
            return replace(op, name=name, params=params, gradient=None)
        new = self.operators.make(("reads", op.name, dtypes), form_name(op.name, f"reads_{dtypes[0][1]}"), build)
        args = tuple(Edge(changed.get(o.name, e.name), span=e.span) for o, e in zip(op.operands, arguments(n), strict=True))
        said = ", ".join(f"'%{e.name}'" for o, e in zip(op.operands, arguments(n), strict=True) if o.name in changed)
        return replace(n, op=new.name, args=args, reason=reasons(n.reason, f"lowered: it reads {said} as made, in {dtypes[0][1]}: the same values"))

    # ------------------------------------------------------------------------------------------------------------------------ end

    def nodes(self) -> tuple[Node | Alias, ...]:
        """What was put out, without what was put in for nobody. Who waits for such a node waits for what it was made from."""
        read: dict[str, int] = {}
        waits: set[str] = set()
        for item in self.out:
            for name in (item.of.name,) if isinstance(item, Alias) else (e.name for e in arguments(item)):
                read[name] = read.get(name, 0) + 1
            waits |= {e.name for e in item.after} if isinstance(item, Node) else set()
        for r in self.of.results:
            read[r.name] = read.get(r.name, 0) + 1
        gone: set[int] = set()
        instead: dict[str, str] = {}
        for k in sorted(self.put, reverse=True):
            n = self.out[k]
            assert isinstance(n, Node)
            if any(read.get(e.name) for e in n.results):
                continue
            if any(e.name in waits for e in n.results):
                instead |= {e.name: arguments(n)[0].name for e in n.results}
            gone.add(k)
            for e in arguments(n):
                read[e.name] -= 1
        kept = [n for k, n in enumerate(self.out) if k not in gone]
        return tuple(_waiting(n, instead) if isinstance(n, Node) else n for n in kept) if instead else tuple(kept)


def _waiting(n: Node, instead: Mapping[str, str]) -> Node:
    if not any(e.name in instead for e in n.after):
        return n
    after = []
    for e in n.after:
        name = e.name
        while name in instead:
            name = instead[name]
        after.append(Edge(name, span=e.span))
    return replace(n, after=tuple(after))


def place(device: Device | None) -> object:
    return None if device is None else (device.kind, device.index, device.name)


def spread(before: Node, parts: Sequence[Node]) -> list[Node]:
    """The nodes that stand for one, with what its plan says: `stream` of each, `wait` of the first, `record` of the last, places where the edge is made."""
    if before.plan is None or not parts:
        return list(parts)
    out = []
    for k, n in enumerate(parts):
        made = {e.name for e in n.results}
        entries: list[Setting | Scoped] = []
        for e in before.plan.entries:
            if isinstance(e, Scoped):
                entries += [e] if e.tensor in made else []
            elif e.key not in ("wait", "record") or (e.key == "wait" and k == 0) or (e.key == "record" and k == len(parts) - 1):
                entries.append(e)
        out.append(replace(n, plan=Section("plan", tuple(entries), span=before.plan.span) if entries else None))
    return out


def form_name(op: str, how: str) -> str:
    """A name for another form of an operator: `linear_f16.1` for `linear.1`."""
    return f"{written(op)}_{how}.1"


def reasons(before: str | None, more: str) -> str:
    """What the ledger said already, and more."""
    return f"{before}; {more}" if before else more


def with_operators(module: Module, operators: Mapping[str, Operator], pipelines: Mapping[str, Pipeline]) -> Module:
    """The module with new pipelines, and the operators that they call, in the order in which they are called."""
    called = dict.fromkeys(n.op for p in pipelines.values() for n in p.nodes if isinstance(n, Node))
    items = [pipelines[i.name] if isinstance(i, Pipeline) else i for i in module.items if not isinstance(i, Operator)]
    at = next(k for k, i in enumerate(items) if isinstance(i, Pipeline))
    return replace(module, items=(*items[:at], *(operators[name] for name in called), *items[at:]))
