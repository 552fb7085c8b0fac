"""Symbols from the shapes of arrays."""
from __future__ import annotations

import pickle

import pytest

from pipelink_ir.ir.nodes import Apply, Dynamic, Expr, IntLit, Name, TensorType
from pipelink_ir.ir.shapes import ArgumentMismatch, ShapeMismatch, Undetermined, bind_shape, bind_shapes, dim_text

H, W, B, G = Name("H"), Name("W"), Name("B"), Name("G")


def of(*dims: Expr | int) -> TensorType:
    return TensorType(tuple(IntLit(d) if isinstance(d, int) else d for d in dims), "f32")


def bound(type: TensorType, shape: tuple[int, ...], **env: int) -> dict[str, int]:
    bind_shape(type, shape, env)
    return env


def test_names_numbers_and_dynamic_dimensions() -> None:
    assert bound(of(H, 3, Dynamic(), H), (5, 3, 9, 5)) == {"H": 5}
    assert bound(of(), ()) == {}
    assert bound(of(H), (0,)) == {"H": 0}


def test_expressions_bind_one_symbol() -> None:
    assert bound(of(Apply("+", (B, IntLit(1)))), (7,)) == {"B": 6}
    assert bound(of(Apply("*", (G, IntLit(4)))), (12,)) == {"G": 3}
    assert bound(of(Apply("-", (IntLit(10), G))), (4,)) == {"G": 6}
    assert bound(of(Apply("+", (H, W)), W), (7, 3)) == {"H": 4, "W": 3}
    assert bound(of(Apply("floordiv", (H, IntLit(2)))), (3,), H=7) == {"H": 7}


@pytest.mark.parametrize(("type", "shape", "axis", "says"), [
    (of(H, H), (2, 3), 1, "axis 1 is 3, but H is 2"),
    (of(H, 4), (2, 3), 1, "axis 1 is 3, it must be 4"),
    (of(H), (2, 3), None, "2 axes, 1 are asked for"),
    (of(Apply("*", (G, IntLit(4)))), (13,), 0, "no '(G * 4)' for any G"),
    (of(Apply("+", (B, IntLit(1)))), (0,), 0, "no '(B + 1)' for any B"),
    (of(H, Apply("floordiv", (H, IntLit(2)))), (6, 4), 1, "axis 1 is 4, but (H floordiv 2) is 3"),
    (of(Apply("floordiv", (H, IntLit(2)))), (3,), 0, "does not tell H"),
    (of(Apply("+", (H, W))), (3,), 0, "does not tell H and W"),
])
def test_what_does_not_fit(type: TensorType, shape: tuple[int, ...], axis: int | None, says: str) -> None:
    with pytest.raises(ShapeMismatch) as caught:
        bound(type, shape)
    assert caught.value.axis == axis
    assert says in caught.value.message


def test_several_arrays_in_any_order() -> None:
    env: dict[str, int] = {}
    half = Apply("floordiv", (H, IntLit(2)))
    bind_shapes([(of(half, Apply("+", (H, W))), (3, 10)), (of(Apply("-", (H, IntLit(1)))), (5,))], env)
    assert env == {"H": 6, "W": 4}


def test_the_array_at_fault_is_named() -> None:
    with pytest.raises(ArgumentMismatch) as caught:
        bind_shapes([(of(H), (3,)), (of(H), (4,))], {})
    assert caught.value.argument == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.argument, again.axis, again.message) == (1, 0, "axis 0 is 4, but H is 3")
    with pytest.raises(ArgumentMismatch, match="does not tell H"):
        bind_shapes([(of(Apply("floordiv", (H, IntLit(2)))), (3,))], {})
    with pytest.raises(Undetermined):
        bind_shape(of(Apply("mod", (H, IntLit(2)))), (1,), {})


def test_text() -> None:
    assert dim_text(Apply("max", (Apply("neg", (H,)), Dynamic()))) == "max(-H, ?)"
