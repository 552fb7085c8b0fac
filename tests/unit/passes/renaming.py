"""Programs with everything called otherwise, in an alphabetical order that is the other way round, and with definitions and nodes in another order."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import (
    Attribute,
    Axis,
    Cast,
    Compute,
    Define,
    Edge,
    Graph,
    Let,
    Module,
    Name,
    Node,
    Operand,
    Operator,
    Pack,
    Pipeline,
    Range,
    Read,
    Scoped,
    TensorType,
)

BUILT_IN = frozenset({"std.copy", "std.cast", "std.quantize", "std.dequantize"})
_PLACES = frozenset({"span", "loc", "name_span", "op_span", "label_span", "key_span", "signature", "dtype"})
_NEW = re.compile(r"\b[nZ]\d{4}\b")


def parts(x: Any) -> Iterator[Any]:
    """What a node of the IR is made of."""
    for f in fields(x):
        if f.name not in _PLACES:
            value = getattr(x, f.name)
            for one in value if isinstance(value, tuple) else (value,):
                if is_dataclass(one):
                    yield one


def declared(x: Any) -> Iterator[str]:
    """The names that are given in a program."""
    if isinstance(x, Operand | Attribute | Let | Edge):
        yield x.name
    elif isinstance(x, Range | Axis):
        yield x.index
    elif isinstance(x, Define):
        yield x.tensor
    elif isinstance(x, TensorType):
        yield from () if x.dtype in DTYPES else (x.dtype,)
        yield from (n.name for d in x.dims for n in everything(d) if isinstance(n, Name))
    for p in parts(x):
        yield from declared(p)


def everything(x: Any) -> Iterator[Any]:
    yield x
    for p in parts(x):
        yield from everything(p)


@dataclass(slots=True)
class Renamed:
    """A module (after `resolve`) renamed. `permuted`: definitions and nodes stand the other way round."""

    module: Module
    permuted: bool
    names: dict[str, str] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        operators = {o.name for o in self.module.operators} - BUILT_IN
        # Adjoints are called after operands; they have no part in this.
        items = tuple(replace(i, gradient=None) if isinstance(i, Operator) else i for i in self.module.items)
        given = {n for i in items for n in declared(i)}
        for k, name in enumerate(sorted(given | operators)):
            # What is a variable for a dtype begins with a capital.
            new = f"{'Z' if name[0].isupper() else 'n'}{9000 - k}"
            if name in given:
                self.names[name] = new
            if name in operators:
                self.operators[name] = new
        self.module = replace(self.module, items=tuple(self._one(i) for i in items))

    def back(self, text: str) -> str:
        """A text with the old names."""
        old = {new: name for name, new in (*self.names.items(), *self.operators.items())}
        return _NEW.sub(lambda m: old.get(m[0], m[0]), text)

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    def _one(self, x: Any) -> Any:
        new: dict[str, Any] = {}
        for f in fields(x):
            value = getattr(x, f.name)
            if f.init and f.name not in _PLACES and isinstance(value, tuple):
                new[f.name] = tuple(self._one(v) if is_dataclass(v) else v for v in value)
            elif f.init and f.name not in _PLACES and is_dataclass(value):
                new[f.name] = self._one(value)
        new |= self._own(x, new)
        return replace(x, **new)

    def _own(self, x: Any, new: Mapping[str, Any]) -> dict[str, Any]:
        """What changes in a node itself."""
        if isinstance(x, Name | Let | Operand | Attribute | Edge):
            return {"name": self._name(x.name)}
        if isinstance(x, Read | Scoped | Define):
            return {"tensor": self._name(x.tensor)}
        if isinstance(x, Range | Axis):
            return {"index": self._name(x.index)}
        if isinstance(x, TensorType):
            return {"dtype": self._name(x.dtype)}
        if isinstance(x, Cast):
            return {"to": self._name(x.to)}
        if isinstance(x, Pack):
            return {"along": None if x.along is None else self._name(x.along)}
        if isinstance(x, Operator):
            return {"name": self.operators.get(x.name, x.name)}
        if isinstance(x, Node):
            return {"op": self.operators.get(x.op, x.op), "attrs": tuple(replace(s, key=self._name(s.key)) for s in new["attrs"])}
        if self.permuted and isinstance(x, Compute):
            return {"body": new["body"][::-1]}
        if self.permuted and isinstance(x, Pipeline | Graph):
            return {"nodes": new["nodes"][::-1]}
        return {}


def told(x: Any, names: Renamed | None) -> str:
    """Something that was decided, as a text in which names are the old ones and the order of sets and tables has no part."""
    if isinstance(x, frozenset | set):
        return "{" + ", ".join(sorted(told(v, names) for v in x)) + "}"
    if isinstance(x, Mapping):
        return "{" + ", ".join(sorted(f"{told(k, names)}: {told(v, names)}" for k, v in x.items())) + "}"
    if isinstance(x, tuple | list):
        return "(" + ", ".join(told(v, names) for v in x) + ")"
    if is_dataclass(x) and not isinstance(x, type):
        inner = ", ".join(told(getattr(x, f.name), names) for f in fields(x) if f.name not in _PLACES and f.name != "bits")
        return f"{type(x).__name__}({inner})"
    return names.back(str(x)) if names is not None else str(x)
