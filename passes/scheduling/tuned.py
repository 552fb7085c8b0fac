"""Schedules that were found by measuring: what is kept of one, and how it is put into an operator again.

An entry belongs to an operator (by `identity.py`, so whatever it is called), the shapes at its nodes as far as a program says them, an architecture, and the
version of the compiler that measured. Definitions are named by their labels, axes by their numbers:

    r0: {map: "block(0)", threads: 128}
    d1: {place: buffer}

What the program says itself stays and wins.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.nodes import Apply, Edge, Expr, IntLit, Items, Module, Name, Node, Operator, Pipeline, Read, Scoped, Setting, TensorType, Value
from pipelink_ir.ir.source import NOWHERE, Span
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.ir.walk import rebuild
from pipelink_ir.passes.scheduling.asked import asked, with_entries
from pipelink_ir.passes.scheduling.identity import Identity
from pipelink_ir.passes.scheduling.wishes import index_text

KEYS = ("place", "at", "beside", "map", "threads", "vector", "flight")
"""Settings that an entry may have."""

Written = Mapping[str, Mapping[str, str]]
"""Settings by the label of the definition and by key, as text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tuned schedule; none, if the default one was found to be best. Times are in ms."""

    operator: str
    shapes: str
    arch: str
    compiler: str
    schedule: Written
    name: str = ""
    sizes: str = ""
    device: str = ""
    default_ms: float = 0.0
    ms: float = 0.0
    span: Span = NOWHERE

    @property
    def key(self) -> tuple[str, str, str]:
        return self.operator, self.shapes, self.arch


class NotThere(ValueError):
    """A setting that means nothing in this operator."""


# ---------------------------------------------------------------------------------------------------------------------- which shapes


def shapes_by_operator(module: Module) -> dict[str, tuple[str, ...]]:
    """The shapes of operands at the nodes that call each operator, each once: numbers as far as the program says them, else `?`."""
    out: dict[str, dict[str, None]] = {}
    for p in module.pipelines:
        types = edge_types(p)
        for n in p.nodes:
            if isinstance(n, Node):
                out.setdefault(n.op, {})[", ".join(_shape(types.get(a.name)) for a in n.args if isinstance(a, Edge))] = None
    return {name: tuple(found) for name, found in out.items()}


def edge_types(p: Pipeline) -> dict[str, TensorType]:
    """The type of every edge."""
    out = {o.name: o.type for o in p.inputs}
    for n in p.nodes:
        if isinstance(n, Node):
            out.update((e.name, t) for e, t in zip(n.results, n.types, strict=False))
        else:
            of = out.get(n.of.name)
            if of is not None:
                out[n.name.name] = of
    return out


def _shape(t: TensorType | None) -> str:
    return "?" if t is None else "x".join(str(d.value) if isinstance(d, IntLit) else "?" for d in t.dims) or "1"


# --------------------------------------------------------------------------------------------------------------- settings as texts


def written(op: TypedOperator, who: Identity, settings: Iterable[Scoped]) -> dict[str, dict[str, str]]:
    """Settings of an operator's definitions as an entry has them."""
    return {who.labels[s.tensor]: {e.key: _text(e.value, op, who, s.tensor) for e in s.settings} for s in settings}


def _text(v: Value, op: TypedOperator, who: Identity, tensor: str) -> str:
    if isinstance(v, Items):
        return f"[{', '.join(_text(i, op, who, tensor) for i in v.items)}]"
    if isinstance(v, Read):
        return f"%{who.labels[v.tensor]}"
    if isinstance(v, IntLit):
        return str(v.value)
    axes = [a.index for a in op.tensors[tensor].pieces[0].axes]
    if isinstance(v, Apply):
        return f"{v.fn}({', '.join(str(axes.index(a.name)) if isinstance(a, Name) and a.name in axes else _text(a, op, who, tensor) for a in v.args)})"
    assert isinstance(v, Name)
    return v.name


_ONE = re.compile(r"%(?P<label>[rd]\d+)|(?P<number>\d{1,9})|(?P<word>[a-z_]+)(\((?P<args>\d{1,9}(, ?\d{1,9})*)?\))?")


def value_of(text: str) -> Value | None:
    """The value of a setting, definitions by their labels; None for what is no value."""
    if text.startswith("[") and text.endswith("]"):
        parts = [value_of(p) for p in re.split(r", ?(?![^(]*\))", text[1:-1])]
        found = [p for p in parts if p is not None]
        return Items(tuple(found)) if len(found) == len(parts) else None
    m = _ONE.fullmatch(text)
    if m is None:
        return None
    if m["label"]:
        return Read(m["label"])
    if m["number"]:
        return IntLit(int(m["number"]))
    if "(" in text:
        return Apply(m["word"], tuple(IntLit(int(a)) for a in (m["args"] or "").split(",") if a))
    return Name(m["word"])


def applied(op: Operator, typed: TypedOperator, who: Identity, schedule: Written, target: str) -> Operator:
    """The operator with the settings of an entry, those aside that it has already. Raises `NotThere`."""
    tensors, have = who.tensors, asked(op, target)
    entries = []
    for label, settings in schedule.items():
        name = tensors.get(label)
        if name is None:
            raise NotThere(f"there is no definition '{label}'")
        own = tuple(Setting(key, _meant(text, tensors, typed.tensors[name].pieces)) for key, text in settings.items() if have.of(name, key) is None)
        if own:
            entries.append(Scoped(name, own))
    return with_entries(op, target, entries) if entries else op


def _meant(text: str, tensors: Mapping[str, str], pieces: tuple[Piece, ...]) -> Value:
    value = value_of(text)
    if value is None:
        raise NotThere(f"'{text}' is no value")
    if isinstance(value, Items):
        return Items(tuple(_named(v, tensors, pieces) if isinstance(v, Expr) else v for v in value.items))
    return _named(value, tensors, pieces) if isinstance(value, Expr) else value


def _named(x: Expr, tensors: Mapping[str, str], pieces: tuple[Piece, ...]) -> Expr:
    """Labels and numbers of axes as the operator calls them."""
    if isinstance(x, Read):
        if x.tensor not in tensors:
            raise NotThere(f"there is no definition '{x.tensor}'")
        return Read(tensors[x.tensor])
    if isinstance(x, Apply) and x.fn == "block" and pieces:
        axes = [a.index for a in pieces[0].axes]
        return rebuild(x, lambda a: Name(axes[a.value]) if isinstance(a, IntLit) and a.value < len(axes) and index_text(axes[a.value]) else a)
    return x
