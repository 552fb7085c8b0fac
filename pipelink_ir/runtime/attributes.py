"""Values for the attributes of a pipeline: they are written into the program as defaults, so that passes see constants; and what is no text at all."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelink_ir.ir.diagnostics import UsageError, did_you_mean
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.nodes import Attribute, Const, Expr, FloatLit, IntLit, Module, Name, Operand, Pipeline


def with_attributes(module: Module, pipeline: str, values: Mapping[str, Any]) -> Module:
    """The module in which `pipeline` has these values as defaults. A value is a number, a bool or a word, as Python or as text."""
    if not values:
        return module
    old = next(p for p in module.pipelines if p.name == pipeline)
    known = {a.name: a for a in old.attributes}
    for name in values:
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(f"'@{pipeline}' has no attribute '{name}'; {near or 'it has ' + (', '.join(known) or 'none')}")

    def one(param: Operand | Attribute) -> Operand | Attribute:
        return replace(param, default=literal(values[param.name], param)) if isinstance(param, Attribute) and param.name in values else param

    new: Pipeline = replace(old, params=tuple(map(one, old.params)))
    return replace(module, items=tuple(new if item is old else item for item in module.items))


def require_values(module: Module, pipeline: str) -> None:
    """Every attribute of a pipeline that is to run has a value."""
    missing = [f"{a.name}: {a.type}" for p in module.pipelines if p.name == pipeline for a in p.attributes if a.default is None]
    if missing:
        name = missing[0].split(":")[0]
        raise UsageError(f"'@{pipeline}' needs a value for {', '.join(missing)}: give '--set {name}=VALUE' (in Python '{name}=VALUE')")


def require_texts(**given: object) -> None:
    """Every argument of these that is given is a text; `UsageError` names the one that is not."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"'{name}' is a text, not {value!r} ({type(value).__name__})")


def literal(value: Any, attribute: Attribute) -> Expr:
    """A value as the expression that a program would hold."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and attribute.type not in ("word", "dtype"):
        value = _number(text)
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:  # a NumPy scalar
        value = value.item()
    if attribute.type in ("word", "dtype"):
        if isinstance(value, str):
            return Name(text, span=attribute.span)
    elif attribute.type == "bool":
        if isinstance(value, bool):
            return Const("true" if value else "false", span=attribute.span)
    elif isinstance(value, int) and not isinstance(value, bool):
        if not I64.lowest <= value <= I64.highest:
            raise UsageError(f"the attribute '{attribute.name}' is given an integer beyond 64 bits")
        return IntLit(value, span=attribute.span)
    elif isinstance(value, float) and attribute.type in ("f8e4m3", "f8e5m2", "bf16", "f16", "f32", "f64"):
        if value != value or value in (float("inf"), float("-inf")):
            raise UsageError(f"the attribute '{attribute.name}' is given the value {value}, which is not finite")
        return FloatLit(value, span=attribute.span)
    wanted = f"one of {', '.join(attribute.words)}" if attribute.words else {"dim": "an integer", "bool": "true or false"}.get(attribute.type, attribute.type)
    raise UsageError(f"the attribute '{attribute.name}' is {wanted}, not {text!r}")


def _number(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            # Python's own spellings (`1_000`) are none of ours.
            return kind(text) if "_" not in text else text
        except ValueError:
            continue
    return text
