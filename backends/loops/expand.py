"""Functions that the table defines by others (`Function.expand`): their text is parsed once and evaluated over the arguments."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pipelink_ir.backends.loops.emit import Atom, Emitter
from pipelink_ir.backends.loops.fold import must
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Apply, Expr, FloatLit, IntLit, Name

Applier = Callable[[Emitter, str, tuple[Atom, ...]], Atom]


@cache
def _parsed(text: str) -> Expr:
    from pipelink_ir.grammar.parser import parse
    body = parse(f"op @f(%x: tensor<f32>) -> (%y: tensor<f32>) {{ compute {{ %y = {text} }} }}", "<function>").operators[0].compute
    assert body is not None
    return body.body[0].value


def expand(e: Emitter, text: str, args: dict[str, Atom], dtype: DType, apply: Applier) -> Atom:
    """The value of an expansion; its literals have the type of the arguments, and both branches of its `select`s are evaluated."""
    return _value(e, _parsed(text), args, dtype, apply)


def _value(e: Emitter, x: Expr, args: dict[str, Atom], dtype: DType, apply: Applier) -> Atom:
    if isinstance(x, IntLit | FloatLit):
        return must(x.value, dtype)
    if isinstance(x, Name):
        return args[x.name]
    if isinstance(x, Apply):
        return apply(e, x.fn, tuple(_value(e, a, args, dtype, apply) for a in x.args))
    internal_error(f"{type(x).__name__} in the expansion of a function")
