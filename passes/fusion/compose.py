"""Several operators as one: reads of an edge become reads of what its maker defines.

Results that only other members read become locals under the name of their edge, rounded to the dtype that the edge had; the others stay results. An edge
from outside that several members read in the same way is one operand. Bodies are put one behind the other, since the order of definitions carries no meaning.
Where each local lives is decided later, by the schedule.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import (
    Attribute,
    Axis,
    Cast,
    Compute,
    Const,
    Define,
    Dots,
    Expr,
    FloatLit,
    IntLit,
    Items,
    Let,
    Name,
    Operand,
    Operator,
    Read,
    Scoped,
    Section,
    Setting,
    TensorType,
)
from pipelink_ir.ir.prover import solve
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import names_in, reads_in, rebuild, substitute
from pipelink_ir.passes.fusion.terms import BLOCK, PART, agree, governed, own_terms, terms_of
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.infer.specialise import names_of

MEMORY = ("align", "contiguity", "cross_device")
"""What an operand asks of its memory, beside its border."""


@dataclass(frozen=True, slots=True)
class Part:
    """One call: its operator, the edges that it reads and makes, which of those others read too, and for each result what its sizes are: equal numbers at
    the same axis of two results stand for equal sizes."""

    op: Operator
    args: tuple[str, ...]
    results: tuple[str, ...]
    kept: frozenset[str]
    sizes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Side:
    """What became of one part's names: `tensors` and `names` (attributes and dimensions) old -> new."""

    tensors: Mapping[str, str]
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Composed:
    """The fused operator, where the names of each part went, and the edges that its operands and results are."""

    op: Operator
    sides: tuple[Side, ...]
    args: tuple[str, ...]
    results: tuple[str, ...]


class Refused(Exception):
    """Operators cannot be one; the text says why, for the ledger."""


def compose(name: str, parts: Sequence[Part]) -> Composed:
    """The parts, each behind those that make what it reads, as one operator. Raises `Refused`."""
    ops = list({id(p.op): p.op for p in parts}.values())
    terms = [terms_of(op) for op in ops]
    first = next((t for t in terms if t[0] != PART), terms[0])
    block = next((t[BLOCK] for t in terms if t[BLOCK] is not None), None)
    first = (*first[:BLOCK], block, *first[BLOCK + 1:])
    for op, own in zip(ops, terms, strict=True):
        why = own_terms(op)
        if why is not None:
            raise Refused(f"'@{op.name}' {why}")
        if agree((*own[:-1], None), (*first[:-1], None)) is not None:
            raise Refused("they differ in 'compile'")
    composer = _Composer(_Names(ops))
    for part in parts:
        composer.add(part)
    return composer.finish(name, parts)


@dataclass(slots=True)
class _Tensor:
    """A tensor of the fused operator that stands for an edge: its type, its border as written, and whether somebody reads it with checks."""

    name: str
    type: TensorType
    border: Setting | None
    checked: bool
    result: bool
    memory: tuple[Setting | None, ...] = ()


@dataclass(slots=True)
class _Composer:
    taken: _Names
    params: list[Operand | Attribute] = field(default_factory=list)
    results: list[Operand] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    body: list[Let | Define] = field(default_factory=list)
    where: dict[Expr, None] = field(default_factory=dict)
    memory: dict[str, dict[str, Setting]] = field(default_factory=dict)
    sides: list[Side] = field(default_factory=list)
    inner: dict[str, list[_Tensor]] = field(default_factory=dict)
    """Edge made by a part -> the tensors that have its values, the first of which it is."""
    outer: dict[str, list[_Tensor]] = field(default_factory=dict)
    """Edge from outside -> the operands that it is."""
    sizes: dict[tuple[int, int], Expr] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        op = part.op
        if op.compute is None:
            raise Refused(f"'@{op.name}' has no compute")
        edge_of = dict(zip((o.name for o in op.operands), part.args, strict=True))
        known = {o: t for o, e in edge_of.items() if (t := self._known(op, o, e)) is not None}
        bound = self._bind(part, known)
        names = {n: self.taken.name(n) for n in _own_names(op) if n not in bound}
        put: dict[str, Expr] = {o: Name(n) for o, n in names.items() if o != n} | bound
        tensors: dict[str, str] = {}
        for o in op.operands:
            tensors[o.name] = self._operand(op, o, edge_of[o.name], put, known)
        made = dict(zip((r.name for r in op.results), part.results, strict=True))
        for name in _tensors(op):
            if name not in tensors:
                edge = made.get(name, name)
                tensors[name] = self.taken.tensor(name if edge in part.kept else edge)
        self._borders(op, tensors, put)
        self.body += _producer_body(op, tensors, put, frozenset(r for r, e in made.items() if e in part.kept))
        self.params += [replace(a, name=names[a.name]) for a in op.attributes if a.name in names]
        for r in op.results:
            self._result(r, made[r.name], tensors, put, made[r.name] in part.kept)
        for r, sizes in zip(op.results, part.sizes, strict=True):
            for k, (d, size) in enumerate(zip(_type(r.type, put).dims, sizes, strict=True)):
                self.sizes.setdefault((k, size), d)
        self.where |= dict.fromkeys(substitute(w, put) for w in op.where)
        self.sides.append(Side(tensors, names))

    def finish(self, name: str, parts: Sequence[Part]) -> Composed:
        last = parts[-1].op
        entries = tuple(Scoped(t, tuple(s.values())) for t, s in self.memory.items())
        sections = [Section("memory", entries)] if entries else []
        ops = list({id(p.op): p.op for p in parts}.values())
        empty = next((f for op in ops if governed(op) and (f := contracts.setting(op, "semantic", "empty")) is not None), None)
        if empty is not None:
            sections.append(Section("semantic", (empty.setting,)))
        sections += _execution(ops)
        sections += _compile(parts, self.sides)
        assert last.compute is not None
        op = Operator(name, tuple(self.params), tuple(self.results), None, tuple(self.where), tuple(sections),
                      compute=Compute(tuple(self.body), span=last.compute.span), span=last.span, name_span=last.name_span, signature=last.signature)
        return Composed(op, tuple(self.sides), tuple(self.args), tuple(self.made))

    # ------------------------------------------------------------------------------------------------------------------ tensors

    def _known(self, op: Operator, operand: str, edge: str) -> _Tensor | None:
        """The tensor that has the values of an edge already."""
        if edge in self.inner:
            return self.inner[edge][0]
        asked = tuple(_memory(op, operand, key) for key in MEMORY)
        border = _memory(op, operand, "border")
        for t in self.outer.get(edge, ()):
            if _same(t.border, border) and all(_same(a, b) for a, b in zip(t.memory, asked, strict=True)):
                return t
        return None

    def _operand(self, op: Operator, o: Operand, edge: str, put: Mapping[str, Expr], known: Mapping[str, _Tensor]) -> str:
        found = known.get(o.name)
        border = _put(_memory(op, o.name, "border"), put)
        if found is not None:
            return found.name if edge in self.outer else self._inside(op, o, edge, border)
        new = _operand(o, {o.name: self.taken.tensor(o.name)}, put)
        self.params.append(new)
        self.args.append(edge)
        asked = tuple(_memory(op, o.name, key) for key in MEMORY)
        self.outer.setdefault(edge, []).append(_Tensor(new.name, new.type, _memory(op, o.name, "border"), False, False, asked))
        self._set(new.name, "border", border)
        for key, s in zip(MEMORY, asked, strict=True):
            self._set(new.name, key, _put(s, put))
        return new.name

    def _inside(self, op: Operator, o: Operand, edge: str, border: Setting | None) -> str:
        """The tensor by which a part reads an edge that another makes: one that answers outside as this part asks, if that can matter."""
        words = {word for r in _reads(op, o.name) for word in r.access}
        for t in self.inner[edge]:
            if not words & {"border", "check"}:
                return t.name
            if not t.result and _same(t.border, border):
                t.checked |= "check" in words
                return t.name
            if not t.result and t.border is None and not t.checked:
                t.border, t.checked = border, "check" in words
                self._set(t.name, "border", border)
                return t.name
        return self._copy(edge, border, "check" in words)

    def _copy(self, edge: str, border: Setting | None, checked: bool) -> str:
        """A local with the values of an edge and a border of its own."""
        of = self.inner[edge][0]
        name = self.taken.tensor(edge)
        indices = [self.taken.index() for _ in of.type.dims]
        axes = tuple(Axis(i, None, d) for i, d in zip(indices, of.type.dims, strict=True))
        self.body.append(Define(name, axes, Read(of.name, tuple(map(Name, indices)))))
        self.inner[edge].append(_Tensor(name, of.type, border, checked, False))
        self._set(name, "border", border)
        return name

    def _result(self, r: Operand, edge: str, tensors: Mapping[str, str], put: Mapping[str, Expr], kept: bool) -> None:
        new = _operand(r, tensors, put)
        if kept:
            self.results.append(new)
            self.made.append(edge)
        self.inner[edge] = [_Tensor(new.name, new.type, self.memory.get(new.name, {}).get("border"), False, kept)]

    def _borders(self, op: Operator, tensors: Mapping[str, str], put: Mapping[str, Expr]) -> None:
        """Borders that the operator gives to what it defines."""
        operands = {o.name for o in op.operands}
        for t, new in tensors.items():
            if t not in operands:
                found = contracts.setting(op, "memory", "border", t)
                if found is not None and found.scoped:
                    self._set(new, "border", _put(found.setting, put))

    def _set(self, tensor: str, key: str, s: Setting | None) -> None:
        if s is not None:
            self.memory.setdefault(tensor, {}).setdefault(key, s)

    # --------------------------------------------------------------------------------------------------------------------- sizes

    def _bind(self, part: Part, known: Mapping[str, _Tensor]) -> dict[str, Expr]:
        """Dimensions of a part as expressions of those that are there: along what it reads, then where results are of one size."""
        op = part.op
        bound: dict[str, Expr] = {}
        pairs = [(d, e) for o in op.operands if o.name in known for d, e in zip(o.type.dims, known[o.name].type.dims, strict=True)]
        for pattern, actual in pairs:
            if isinstance(pattern, Dots) or isinstance(actual, Dots):
                raise Refused("a shape is not written out")
            if isinstance(pattern, Name) and pattern.name not in bound:
                bound[pattern.name] = actual
        for pattern, actual in pairs:
            unknown = names_in(pattern) - set(bound)
            if not unknown:
                continue
            found = solve(substitute(pattern, bound), actual, next(iter(unknown))) if len(unknown) == 1 else None
            if found is None:
                raise Refused(f"a dimension of '@{op.name}' does not follow from those of what it reads")
            bound[next(iter(unknown))] = found
        free = {n for o in op.operands for d in o.type.dims for n in names_in(d)} - {a.name for a in op.attributes} - set(bound)
        for r, sizes in zip(op.results, part.sizes, strict=True):
            for k, (d, size) in enumerate(zip(r.type.dims, sizes, strict=True)):
                if isinstance(d, Name) and d.name in free and (k, size) in self.sizes:
                    bound[d.name] = self.sizes[k, size]
                    free.discard(d.name)
        return bound


# ---------------------------------------------------------------------------------------------------------------------- contracts


def _memory(op: Operator, operand: str, key: str) -> Setting | None:
    found = contracts.setting(op, "memory", key, operand)
    return None if found is None else found.setting


def _same(a: Setting | None, b: Setting | None) -> bool:
    return (None if a is None else a.value) == (None if b is None else b.value)


def _put(s: Setting | None, put: Mapping[str, Expr]) -> Setting | None:
    if s is not None and isinstance(s.value, Items):
        return replace(s, value=replace(s.value, items=tuple(substitute(x, put) if isinstance(x, Expr) else x for x in s.value.items)))
    return replace(s, value=substitute(s.value, put)) if s is not None and isinstance(s.value, Expr) else s


def _reads(op: Operator, operand: str) -> Iterable[Read]:
    """All reads of an operand, typed."""
    for t in typed_operator(op).tensors.values():
        for p in t.pieces:
            yield from (r for r in reads_in(p.value) if r.tensor == operand)


def _compile(parts: Sequence[Part], sides: Sequence[Side]) -> list[Section]:
    """The settings in which all agree; only where all edges are free are those of the whole. Correct rounding is asked for definition by definition where
    only some of the parts do."""
    ops = [p.op for p in parts]
    free = all(contracts.setting(op, "compile", "edges") is not None for op in ops)
    general = next((op for op in ops if terms_of(op)[0] != PART), ops[0])
    entries: list[Setting | Scoped] = [s for section in contracts.sections(general, "compile") for s in section.entries
                                       if isinstance(s, Setting) and (free or s.key != "edges")
                                       and not (s.key == "accuracy" and contracts.short_sums(general))]
    block = next((f.setting for op in ops if (f := contracts.setting(op, "compile", "block")) is not None), None)
    entries += [block] if block is not None and not any(isinstance(e, Setting) and e.key == "block" for e in entries) else []
    if not contracts.exact(general):
        found: dict[str, Setting] = {}
        for op, side in zip(ops, sides, strict=True):
            short = contracts.short_sums(op)
            own = contracts.setting(op, "compile", "accuracy") if contracts.exact(op) or short else None
            all_ = contracts.with_products(op) if short else [d for d in op.compute.body if isinstance(d, Define)] if op.compute is not None else []
            for name in [d.tensor for d in all_]:
                asked = own or contracts.setting(op, "compile", "accuracy", name)
                if asked is not None and (own is not None or asked.scoped):
                    found.setdefault(side.tensors[name], asked.setting)
        entries += [Scoped(name, (s,)) for name, s in found.items()]
    return [Section("compile", tuple(entries))] if entries else []


def _execution(ops: Sequence[Operator]) -> list[Section]:
    """The strictest of all for each key; `batch` only where all say the same."""
    settings: dict[str, Setting] = {}
    for key in ("async", "max_streams", "event_sync", "deterministic", "batch"):
        found = [f.setting for f in (contracts.setting(op, "execution", key) for op in ops) if f is not None]
        if not found or (key == "batch" and (len(found) < len(ops) or any(f.value != found[0].value for f in found))):
            continue
        strict = {"async": "false", "event_sync": "true", "deterministic": "true"}.get(key)
        if key == "max_streams":
            settings[key] = min(found, key=lambda s: s.value.value if isinstance(s.value, IntLit) else 1)
        else:
            settings[key] = next((s for s in found if contracts.word(s.value) == strict), found[0])
    return [Section("execution", tuple(settings.values()))] if settings else []


# -------------------------------------------------------------------------------------------------------------------------- names


class _Names:
    """New names, each clear of everything that any of the operators, which are different ones, uses."""

    def __init__(self, ops: Sequence[Operator]) -> None:
        self.tensors: set[str] = set()
        self.names: set[str] = set()
        self.indices: set[str] = set()
        every: set[str] = set()
        for op in ops:
            used = names_of(op)
            every |= used
            self.indices |= used - set(_own_names(op)) - set(DTYPES)
        self.all = frozenset(every)

    def tensor(self, name: str) -> str:
        return self._fresh(name, self.tensors, frozenset())

    def name(self, name: str) -> str:
        return self._fresh(name, self.names, self.indices)

    def index(self) -> str:
        """An index that nobody uses."""
        return self._fresh("at", self.names, self.all)

    @staticmethod
    def _fresh(name: str, taken: set[str], avoid: Iterable[str]) -> str:
        out, k = name, 0
        while out in taken or out in avoid:
            k += 1
            out = f"{name}.{k}"
        taken.add(out)
        return out


def _tensors(op: Operator) -> list[str]:
    defined = [d.tensor for d in op.compute.body if isinstance(d, Define)] if op.compute is not None else []
    return list(dict.fromkeys([*(o.name for o in op.operands), *(r.name for r in op.results), *defined]))


def _own_names(op: Operator) -> list[str]:
    """Dimensions, attributes and lets."""
    dims = [n for o in op.operands for d in o.type.dims for n in sorted(names_in(d))]
    lets = [d.name for d in op.compute.body if isinstance(d, Let)] if op.compute is not None else []
    return list(dict.fromkeys([*dims, *(a.name for a in op.attributes), *lets]))


# ------------------------------------------------------------------------------------------------------------------------- bodies


def _operand(o: Operand, tensors: Mapping[str, str], put: Mapping[str, Expr]) -> Operand:
    return replace(o, name=tensors[o.name], type=_type(o.type, put))


def _type(t: TensorType, put: Mapping[str, Expr]) -> TensorType:
    return replace(t, dims=tuple(normal(substitute(d, put)) if names_in(d) & set(put) else d for d in t.dims))


def _body(body: Compute, tensors: Mapping[str, str], put: Mapping[str, Expr]) -> list[Let | Define]:
    out: list[Let | Define] = []
    for item in body.body:
        if isinstance(item, Let):
            new = put.get(item.name)
            out.append(replace(item, name=new.name if isinstance(new, Name) else item.name, value=_expr(item.value, tensors, put)))
        else:
            out.append(_define(item, tensors, put))
    return out


def _define(d: Define, tensors: Mapping[str, str], put: Mapping[str, Expr]) -> Define:
    axes = tuple(replace(a, lo=None if a.lo is None else _expr(a.lo, tensors, put), hi=None if a.hi is None else _expr(a.hi, tensors, put))
                 if isinstance(a, Axis) else a for a in d.axes)
    return replace(d, tensor=tensors[d.tensor], axes=axes, value=_expr(d.value, tensors, put))


def _expr(e: Expr, tensors: Mapping[str, str], put: Mapping[str, Expr]) -> Expr:
    def rename(x: Expr) -> Expr:
        x = rebuild(x, rename)
        return replace(x, tensor=tensors[x.tensor]) if isinstance(x, Read) and tensors[x.tensor] != x.tensor else x
    return substitute(rename(e), put)


def _producer_body(p: Operator, tensors: Mapping[str, str], put: Mapping[str, Expr], kept: frozenset[str]) -> list[Let | Define]:
    """The producer's definitions; results that become locals get the extents of their shape and the rounding of their edge, unless its edges are free."""
    assert p.compute is not None
    free = edges_free(p)
    typed = typed_operator(p)
    shapes = {r.name: r.type for r in p.results}
    seen: dict[str, int] = {}
    out: list[Let | Define] = []
    for item, new in zip(p.compute.body, _body(p.compute, tensors, put), strict=True):
        if isinstance(item, Define) and isinstance(new, Define) and item.tensor in shapes and item.tensor not in kept:
            k = seen.get(item.tensor, 0)
            seen[item.tensor] = k + 1
            new = _as_local(new, _type(shapes[item.tensor], put), typed, item.tensor, k, free)
        out.append(new)
    return out


def edges_free(op: Operator) -> bool:
    """Whether what an operator makes may keep more than the dtype of its edge where both sides of the edge are one operator."""
    return contracts.setting(op, "compile", "edges") is not None


def _as_local(d: Define, t: TensorType, typed: TypedOperator, result: str, piece: int, free: bool) -> Define:
    axes = tuple(replace(a, lo=None, hi=dim) if isinstance(a, Axis) and a.hi is None else a for a, dim in zip(d.axes, t.dims, strict=True))
    value = typed.tensors[result].pieces[piece].value
    plain = value.dtype is DTYPES[t.dtype] and not isinstance(value, IntLit | FloatLit | Const) and not (isinstance(value, Cast) and value.implicit)
    written = isinstance(value, Cast) and not value.implicit and value.to == t.dtype
    narrow = free and value.dtype is not None and value.dtype.is_float and value.dtype is DTYPES[t.dtype].compute
    plain = plain or narrow
    return replace(d, axes=axes, value=d.value if plain or written else Cast(t.dtype, d.value, span=d.value.span))
