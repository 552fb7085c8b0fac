"""Binding of symbolic dimensions from the shapes of arrays: what the runtime does with its arguments and the reference backend with every operand."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Apply, Dots, Dynamic, Expr, IntLit, Name, TensorType
from pipelink_ir.ir.walk import names_in


class ShapeMismatch(Exception):
    """A shape that does not fit its type. `axis` counts from 0; None where the number of axes is wrong."""

    def __init__(self, axis: int | None, message: str) -> None:
        self.axis = axis
        self.message = message
        super().__init__(message)

    def __reduce__(self) -> tuple[type[ShapeMismatch], tuple[int | None, str]]:
        return ShapeMismatch, (self.axis, self.message)


class Undetermined(ShapeMismatch):
    """A dimension in which more than one symbol is unknown, or one that cannot be solved for: `(H floordiv 2)` says nothing of H."""


def bind_shape(type: TensorType, shape: Sequence[int], env: dict[str, int]) -> None:
    """Bind the symbols of `type` from the shape of an array in `env`, and check those that are bound. Raises `ShapeMismatch`."""
    _check_rank(type, shape)
    waiting = [(k, d) for k, d in enumerate(type.dims) if not _bind_simple(d, k, shape[k], env)]
    for axis, dim in waiting:
        _bind_expression(dim, axis, shape[axis], env)


def bind_shapes(pairs: Iterable[tuple[TensorType, Sequence[int]]], env: dict[str, int]) -> None:
    """`bind_shape` of several arrays whose types share symbols, whatever order they come in; `ShapeMismatch` has the place in `pairs` as `argument`."""
    waiting: list[tuple[int, int, Expr, int]] = []
    for place, (type, shape) in enumerate(pairs):
        try:
            _check_rank(type, shape)
            waiting += [(place, k, d, shape[k]) for k, d in enumerate(type.dims) if not _bind_simple(d, k, shape[k], env)]
        except ShapeMismatch as fault:
            raise ArgumentMismatch(place, fault) from None
    while waiting:
        left = [w for w in waiting if not _try_bind(w, env)]
        if len(left) == len(waiting):
            place, axis, dim, size = left[0]
            raise ArgumentMismatch(place, Undetermined(axis, f"axis {axis} is {size}, but '{dim_text(dim)}' does not tell {_unknown_text(dim, env)}"))
        waiting = left


class ArgumentMismatch(ShapeMismatch):
    """A `ShapeMismatch` of one of several arrays: `argument` is its place among them."""

    def __init__(self, argument: int, fault: ShapeMismatch) -> None:
        self.argument = argument
        super().__init__(fault.axis, fault.message)

    def __reduce__(self) -> tuple[type[ArgumentMismatch], tuple[int, ShapeMismatch]]:    # type: ignore[override]
        return ArgumentMismatch, (self.argument, ShapeMismatch(self.axis, self.message))


def _check_rank(type: TensorType, shape: Sequence[int]) -> None:
    if any(isinstance(d, Dots) for d in type.dims):
        raise Undetermined(None, "the type still has '...'")
    if len(type.dims) != len(shape):
        raise ShapeMismatch(None, f"it has {len(shape)} axes, {len(type.dims)} are asked for")


def _bind_simple(dim: Expr, axis: int, size: int, env: dict[str, int]) -> bool:
    """Numbers, names and `?`; False for what needs the others first."""
    if isinstance(dim, Dynamic):
        return True
    if isinstance(dim, IntLit):
        if dim.value != size:
            raise ShapeMismatch(axis, f"axis {axis} is {size}, it must be {dim.value}")
        return True
    if not isinstance(dim, Name):
        return False
    if env.setdefault(dim.name, size) != size:
        raise ShapeMismatch(axis, f"axis {axis} is {size}, but {dim.name} is {env[dim.name]}")
    return True


def _try_bind(waiting: tuple[int, int, Expr, int], env: dict[str, int]) -> bool:
    place, axis, dim, size = waiting
    try:
        _bind_expression(dim, axis, size, env)
    except Undetermined:
        return False
    except ShapeMismatch as fault:
        raise ArgumentMismatch(place, fault) from None
    return True


def _bind_expression(dim: Expr, axis: int, size: int, env: dict[str, int]) -> None:
    unknown = sorted(names_in(dim) - env.keys())
    if not unknown:
        if (known := _value(dim, env)) != size:
            raise ShapeMismatch(axis, f"axis {axis} is {size}, but {dim_text(dim)} is {known}")
        return
    value = _solve(dim, unknown[0], size, env) if len(unknown) == 1 else None
    if value is None:
        raise Undetermined(axis, f"axis {axis} is {size}, but '{dim_text(dim)}' does not tell {_unknown_text(dim, env)}")
    if value < 0 or _value(dim, {**env, unknown[0]: value}) != size:
        raise ShapeMismatch(axis, f"axis {axis} is {size}, which is no '{dim_text(dim)}' for any {unknown[0]}")
    env[unknown[0]] = value


def _solve(dim: Expr, name: str, size: int, env: dict[str, int]) -> int | None:
    """The symbol in a·X + b == size, rounded down if it does not divide; None where the expression is not of that form."""
    try:
        at = [_value(dim, {**env, name: x}) for x in (0, 1, 2, 3, 1000)]
    except CannotEvaluate:
        return None
    step = at[1] - at[0]
    if step == 0 or at != [at[0] + step * x for x in (0, 1, 2, 3, 1000)]:
        return None
    return (size - at[0]) // step


def _value(dim: Expr, env: dict[str, int]) -> int:
    return evaluate_int(dim, env)


def _unknown_text(dim: Expr, env: dict[str, int]) -> str:
    return " and ".join(sorted(names_in(dim) - env.keys()))


def dim_text(dim: Expr) -> str:
    """A dimension as messages show it."""
    if isinstance(dim, IntLit):
        return str(dim.value)
    if isinstance(dim, Name):
        return dim.name
    if isinstance(dim, Dynamic):
        return "?"
    if isinstance(dim, Apply) and dim.fn == "neg":
        return f"-{dim_text(dim.args[0])}"
    if isinstance(dim, Apply) and len(dim.args) == 2 and dim.fn in ("+", "-", "*", "**", "floordiv", "ceildiv", "mod"):
        return f"({dim_text(dim.args[0])} {dim.fn} {dim_text(dim.args[1])})"
    if isinstance(dim, Apply):
        return f"{dim.fn}({', '.join(map(dim_text, dim.args))})"
    return "…"
