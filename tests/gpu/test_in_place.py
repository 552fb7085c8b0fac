"""Results that lie where an operand does, on a GPU; expected values are NumPy's."""
from __future__ import annotations

import pytest

from tests import in_place

pytestmark = pytest.mark.gpu
SHAPES = ((1, 1, 1), (2, 61, 67), (3, 129, 33))


@pytest.mark.parametrize("kind", in_place.ROWS)
def test_rows_with_one_result(kind: str) -> None:
    in_place.rows(kind, "cuda", ((3, 5), (4001, 300), (513, 1001), (300, 9000)))


def test_windows_down_rows() -> None:
    in_place.depthwise("cuda", ((1, 90, 161, 3), (2, 119, 70, 16), (3, 57, 57, 64)))


@pytest.mark.parametrize(("channels", "columns"), [(16, 16), (64, 24)])
def test_strips(channels: int, columns: int) -> None:
    in_place.strips(channels, columns, "cuda", SHAPES)


def test_convolutions_by_tiles() -> None:
    in_place.convolution("cuda", SHAPES)


@pytest.mark.parametrize("columns", [128, 130])
def test_convolutions_by_boxes(columns: int) -> None:
    in_place.convolution("cuda", SHAPES, 128, columns)


@pytest.mark.parametrize("columns", [64, 80, 128])
def test_attention(columns: int) -> None:
    in_place.attention("cuda", 24, 321, columns)
