"""Operators that choose among values give the same codes whether values are coded before or after."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.selecting import on_codes, selects
from tests.emulated import EMULATED
from tests.unit.precision.coding import called, encode, in_memory, operator

RNG = np.random.default_rng(5)
Array = np.ndarray[Any, Any]
SYMMETRIC, AFFINE, EIGHTH, FOUND = Codes("i8", .05), Codes("u8", .05, 37), Codes("f8e4m3", .01), Codes("i8", "tensor")


def op(body: str, result: str = "HxWxCxf16", more: str = "", operands: str = "%x: tensor<HxWxCxf16>") -> str:
    return f"op @f({operands}) -> (%y: tensor<{result}>) {{ {more} compute {{ {body} }} }}"


def pooled(x: Array) -> Array:
    p = np.pad(x, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    return np.asarray(np.max([p[a:a + x.shape[0], b:b + x.shape[1]] for a in range(3) for b in range(3)], axis=0))


CHOOSING: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "max-pooling": (op("%y[h, w, c] = max[dy < 3, dx < 3](%x[h + dy - 1, w + dx - 1, c])", more="memory { border = constant(-inf) } semantic { %y { range = [0, 1] } }"),
                    pooled),
    "clamp": (op("%y[h, w, c] = min(max(%x[h, w, c], 0), 0.7)"), lambda x: np.minimum(np.maximum(x, 0), np.float32(.7))),
    "transposition": (op("%t[h, w, c] = f32(%x[h, w, c])\n%y[c, w, h] = %t[h, w, c]", "CxWxHxf16"), lambda x: x.T),
    "the largest behind a filter, or nothing": (op("%y[h, w] = max[c < C where c > h](%x[h, w, c])", "HxWxf16"),
                                                lambda x: np.stack([np.max(x[h, :, h + 1:], axis=-1, initial=-np.inf) for h in range(len(x))])),
    "median": (op("%y[h, w] = nth[c < C](%x[h, w, c], 1)", "HxWxf16"), lambda x: np.sort(x, -1)[..., 1]),
    "zeros at odd places": (op("%y[h, w, c] = select(h mod 2 == 0, %x[h, w, c], 0)"), lambda x: np.where(np.arange(len(x))[:, None, None] % 2, 0, x)),
    "joined with itself": (op("%y[h in 0..H, w, c] = %x[h, w, c]\n%y[h in H..2 * H, w, c] = %x[h - H, w, c]", "(2 * H)xWxCxf16"), lambda x: np.concatenate([x, x])),
}


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("codes", [SYMMETRIC, AFFINE, EIGHTH, FOUND], ids=["i8", "u8", "f8", "found"])
@pytest.mark.parametrize("name", CHOOSING)
def test_codes_before_or_after(name: str, codes: Codes, target: str) -> None:
    text, meaning = CHOOSING[name]
    assert selects(operator(text))
    made = on_codes(operator(text), {"x": codes}, "f.1.i8")
    if name == "clamp" and codes is FOUND:
        assert made == "it has a constant, which has no code before ranges are found at the call"
        return
    assert not isinstance(made, str), made
    x = RNG.normal(size=(5, 4, 3)).astype(np.float32)
    got, = called(made, in_memory(encode(x, codes, .05), codes), target=target)
    np.testing.assert_array_equal(got.astype(np.float64), encode(meaning(x), codes, .05).astype(np.float64))


@pytest.mark.parametrize("text", [
    op("%y[h, w, c] = %x[h, w, c] + 1"), op("%y[h, w, c] = -%x[h, w, c]"), op("%y[h, w, c] = select(%x[h, w, c] > 1, %x[h, w, c], 0)"),
    op("%y[h, w, c] = %x[h, w, c]", operands="%x: tensor<HxWxCxf32>"), op("%y[h, w, c] = f16(%x[h, w, c])", "HxWxCxf32", operands="%x: tensor<HxWxCxf32>"),
    op("%y[h, w] = sum[c < C](%x[h, w, c])", "HxWxf16"), op("%y[h, w] = argmax[c < C](%x[h, w, c])", "HxWxi32"),
    op("%y[h, w] = max[c < C where %x[h, w, c] < 0](%x[h, w, c])", "HxWxf16"), op("%y[h, w, c] = %x[h, w, c]", "HxWxCxi32", operands="%x: tensor<HxWxCxi32>")])
def test_what_does_more_than_choose(text: str) -> None:
    assert not selects(operator(text))


def test_operands_must_share_their_codes() -> None:
    text = op("%y[h in 0..H] = %x[h]\n%y[h in H..H + G] = %z[h - H]", "(H + G)xf16", operands="%x: tensor<Hxf16>, %z: tensor<Gxf16>, %i: tensor<Hxi32>")
    joined = operator(text)
    assert selects(joined)
    assert on_codes(joined, {"x": SYMMETRIC, "z": Codes("i8", .06)}, "f.1") == "its operands have other scales or zero points each"
    assert on_codes(joined, {"x": SYMMETRIC}, "f.1") == "'%z' is not coded"
    assert on_codes(joined, {"x": Codes("i8", "channel", axis=0), "z": Codes("i8", "channel", axis=0)}, "f.1") == "its operands have a scale for each channel"
    made = on_codes(joined, {"x": AFFINE, "z": AFFINE}, "f.1")
    assert not isinstance(made, str)
    got, = called(made, [1, 2], [3], [0, 0])
    assert got.tolist() == [1, 2, 3]


def test_a_choice_among_nothing_that_is_zero() -> None:
    text = op("%y[h, w] = max[c < C where c > h](%x[h, w, c])", "HxWxf16", "semantic { empty = zero }")
    assert not isinstance(on_codes(operator(text), {"x": SYMMETRIC}, "f.1"), str)
    assert on_codes(operator(text), {"x": AFFINE}, "f.1") == "it says what a choice among nothing is, which is no code"
