"""Two operators as one: the consumer's reads of an edge become reads of what the producer defines.

The producer's results that only the consumer reads become locals under the name of their edge, rounded to the dtype that the edge had; the others stay
results. Bodies are put one behind the other, since the order of definitions carries no meaning. Where each local lives is decided later, by the schedule.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
    Let,
    Name,
    Operand,
    Operator,
    Read,
    Reduce,
    Scoped,
    Section,
    Setting,
    TensorType,
)
from pipelink_ir.ir.prover import solve
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import names_in, rebuild, substitute
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.infer.specialise import names_of


@dataclass(frozen=True, slots=True)
class Link:
    """An operand of the consumer that is fed by a result of the producer, over the edge `edge`."""

    operand: str
    result: str
    edge: str


@dataclass(frozen=True, slots=True)
class Shared:
    """An operand of the consumer that reads the same edge, in the same way, as an operand of the producer."""

    operand: str
    producer_operand: str


@dataclass(frozen=True, slots=True)
class Side:
    """What became of one operator's names: `tensors` and `names` (attributes and dimensions) old -> new."""

    tensors: Mapping[str, str]
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Composed:
    """The fused operator and where the names of the two went."""

    op: Operator
    producer: Side
    consumer: Side


class Refused(Exception):
    """Two operators cannot be one; the text says why, for the ledger."""


def compose(name: str, p: Operator, c: Operator, links: tuple[Link, ...], shared: tuple[Shared, ...], kept: frozenset[str]) -> Composed:
    """Operator `c` with producer `p` put in. `kept` are results of `p` that others read too. Raises `Refused`."""
    _check_contracts(p, c)
    if p.compute is None or c.compute is None:
        raise Refused("one of them has no compute")
    linked = {k.operand: k.result for k in links} | {k.operand: k.producer_operand for k in shared if _alike(p, k.producer_operand, c, k.operand)}
    bound = _bind_dims(p, c, linked)
    taken = _Names(p, c)
    tensors_p = {t: taken.tensor(_edge_of(t, links) if t not in kept else t) for t in _tensors(p)}
    tensors_c = {t: tensors_p[linked[t]] if t in linked else taken.tensor(t) for t in _tensors(c)}
    names_p = {n: taken.name(n) for n in _own_names(p)}
    names_c = {n: taken.name(n) for n in _own_names(c) if n not in bound}
    put_p: dict[str, Expr] = {o: Name(n) for o, n in names_p.items() if o != n}
    put_c: dict[str, Expr] = {o: Name(n) for o, n in names_c.items() if o != n} | {n: substitute(e, put_p) for n, e in bound.items()}
    body = (*_producer_body(p, tensors_p, put_p, kept), *_body(c.compute, tensors_c, put_c))
    params: list[Operand | Attribute] = [_param(x, tensors_p, names_p, put_p) for x in p.params]
    params += [_param(x, tensors_c, names_c, put_c) for x in c.params if not (isinstance(x, Operand) and x.name in linked)]
    results = [_operand(r, tensors_p, put_p) for r in p.results if r.name in kept] + [_operand(r, tensors_c, put_c) for r in c.results]
    sections = _sections(p, tensors_p, put_p, c, tensors_c, put_c, linked)
    where = tuple(dict.fromkeys([*(substitute(w, put_p) for w in p.where), *(substitute(w, put_c) for w in c.where)]))
    op = Operator(name, tuple(params), tuple(results), None, where, sections, compute=Compute(body, span=c.compute.span), span=c.span,
                  name_span=c.name_span, signature=c.signature)
    return Composed(op, Side(tensors_p, names_p), Side(tensors_c, names_c))


# ---------------------------------------------------------------------------------------------------------------------- contracts


def _check_contracts(p: Operator, c: Operator) -> None:
    for op in (p, c):
        if op.downgrades:
            raise Refused(f"'@{op.name}' has a downgrade policy of its own")
        if op.kernel is not None:
            raise Refused(f"'@{op.name}' has a kernel of its own")
        if any(contracts.sections(op, "schedule")):
            raise Refused(f"'@{op.name}' has a schedule of its own")
        if contracts.setting(op, "compile", "library") is not None:
            raise Refused(f"'@{op.name}' may be a library's")
    for key in ("accuracy", "fast_math", "edges", "arch", "features", "toolchain", "block"):
        a, b = contracts.setting(p, "compile", key), contracts.setting(c, "compile", key)
        if (a.setting.value if a else None) != (b.setting.value if b else None):
            raise Refused(f"they differ in 'compile {{ {key} }}'")
    if contracts.empty(p) != contracts.empty(c) and any(_governed(op) for op in (p, c)):
        raise Refused("they differ in 'semantic { empty }'")


def _governed(op: Operator) -> bool:
    """Whether an operator has a reduction that `empty` may decide."""
    from pipelink_ir.ir.functions import REDUCTIONS
    from pipelink_ir.ir.walk import walk
    return op.compute is not None and any(isinstance(n, Reduce) and REDUCTIONS[n.kind].governed for d in op.compute.body for n in walk(d.value))


def _sections(p: Operator, tensors_p: Mapping[str, str], put_p: Mapping[str, Expr], c: Operator, tensors_c: Mapping[str, str], put_c: Mapping[str, Expr],
              linked: Mapping[str, str]) -> tuple[Section, ...]:
    """Settings of both, each written for the one tensor that it speaks of: a general one would reach the other's operands."""
    memory: dict[str, dict[str, Setting]] = {}
    for op, tensors, put in ((p, tensors_p, put_p), (c, tensors_c, put_c)):
        operands = {o.name for o in op.operands}
        for t, new in tensors.items():
            inner = op is c and t in linked
            for key in ("border",) if inner or t not in operands else ("border", "align", "contiguity", "cross_device"):
                found = contracts.setting(op, "memory", key, t)
                if found is not None and (found.scoped or t in operands):
                    memory.setdefault(new, {}).setdefault(key, _setting(found.setting, put))
    entries = tuple(Scoped(t, tuple(s.values())) for t, s in memory.items())
    out = [Section("memory", entries)] if entries else []
    empty = contracts.setting(p, "semantic", "empty") or contracts.setting(c, "semantic", "empty")
    if empty is not None:
        out.append(Section("semantic", (empty.setting,)))
    out += _execution(p, c)
    out += contracts.sections(c, "compile")
    return tuple(out)


def _alike(p: Operator, a: str, c: Operator, b: str) -> bool:
    """Whether two operands ask the same of their memory, so that one can stand for both."""
    for key in ("border", "align", "contiguity", "cross_device"):
        x, y = contracts.setting(p, "memory", key, a), contracts.setting(c, "memory", key, b)
        if (x.setting.value if x else None) != (y.setting.value if y else None):
            return False
    return True


def _execution(p: Operator, c: Operator) -> list[Section]:
    """The stricter of the two for each key; `batch` only where both say the same."""
    settings: dict[str, Setting] = {}
    for key in ("async", "max_streams", "event_sync", "deterministic", "batch"):
        found = [f.setting for f in (contracts.setting(op, "execution", key) for op in (p, c)) if f is not None]
        if not found or (key == "batch" and (len(found) < 2 or found[0].value != found[1].value)):
            continue
        strict = {"async": "false", "event_sync": "true", "deterministic": "true"}.get(key)
        if key == "max_streams":
            settings[key] = min(found, key=lambda s: s.value.value if isinstance(s.value, IntLit) else 1)
        else:
            settings[key] = next((s for s in found if contracts.word(s.value) == strict), found[0])
    return [Section("execution", tuple(settings.values()))] if settings else []


def _setting(s: Setting, put: Mapping[str, Expr]) -> Setting:
    return replace(s, value=substitute(s.value, put)) if isinstance(s.value, Expr) else s


# -------------------------------------------------------------------------------------------------------------------------- names


class _Names:
    """New names, each clear of everything that either operator uses."""

    def __init__(self, p: Operator, c: Operator) -> None:
        self.tensors: set[str] = set()
        self.names: set[str] = set()
        own_p, own_c = set(_own_names(p)), set(_own_names(c))
        self.indices = (names_of(p) - own_p - set(DTYPES)) | (names_of(c) - own_c - set(DTYPES))

    def tensor(self, name: str) -> str:
        return self._fresh(name, self.tensors, frozenset())

    def name(self, name: str) -> str:
        return self._fresh(name, self.names, self.indices)

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


def _edge_of(tensor: str, links: tuple[Link, ...]) -> str:
    return next((k.edge for k in links if k.result == tensor), tensor)


def _bind_dims(p: Operator, c: Operator, linked: Mapping[str, str]) -> dict[str, Expr]:
    """The consumer's dimensions as expressions of the producer's, along the linked operands."""
    bound: dict[str, Expr] = {}
    produced = {r.name: r.type for r in (*p.operands, *p.results)}
    pairs = [(d, e) for o in c.operands if o.name in linked for d, e in zip(o.type.dims, produced[linked[o.name]].dims, strict=True)]
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
            raise Refused(f"a dimension of '@{c.name}' does not follow from those of '@{p.name}'")
        bound[next(iter(unknown))] = found
    return bound


# ------------------------------------------------------------------------------------------------------------------------- bodies


def _param(x: Operand | Attribute, tensors: Mapping[str, str], names: Mapping[str, str], put: Mapping[str, Expr]) -> Operand | Attribute:
    return _operand(x, tensors, put) if isinstance(x, Operand) else replace(x, name=names.get(x.name, x.name))


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
    """The producer's definitions; results that become locals get the extents of their shape and the rounding of their edge."""
    assert p.compute is not None
    typed = typed_operator(p)
    shapes = {r.name: r.type for r in p.results}
    seen: dict[str, int] = {}
    out: list[Let | Define] = []
    for item, new in zip(p.compute.body, _body(p.compute, tensors, put), strict=True):
        if isinstance(item, Define) and isinstance(new, Define) and item.tensor in shapes and item.tensor not in kept:
            k = seen.get(item.tensor, 0)
            seen[item.tensor] = k + 1
            new = _as_local(new, _type(shapes[item.tensor], put), typed, item.tensor, k)
        out.append(new)
    return out


def _as_local(d: Define, t: TensorType, typed: TypedOperator, result: str, piece: int) -> Define:
    axes = tuple(replace(a, lo=None, hi=dim) if isinstance(a, Axis) and a.hi is None else a for a, dim in zip(d.axes, t.dims, strict=True))
    value = typed.tensors[result].pieces[piece].value
    plain = value.dtype is DTYPES[t.dtype] and not isinstance(value, IntLit | FloatLit | Const) and not (isinstance(value, Cast) and value.implicit)
    written = isinstance(value, Cast) and not value.implicit and value.to == t.dtype
    return replace(d, axes=axes, value=d.value if plain or written else Cast(t.dtype, d.value, span=d.value.span))
