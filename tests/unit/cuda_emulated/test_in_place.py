"""Results that lie where an operand does, by kernels of each kind: a thread may read a place of such an operand only if it stores that place itself, or before
any other does. The emulated device finds who reads what another has stored; expected values are NumPy's."""
from __future__ import annotations

import pytest

from tests import in_place
from tests.emulated import NEEDS_COMPILER

pytestmark = NEEDS_COMPILER
SHAPES = ((1, 1, 1), (2, 5, 7), (1, 33, 17))


@pytest.mark.parametrize("kind", in_place.ROWS)
def test_rows_with_one_result(kind: str) -> None:
    in_place.rows(kind, "cuda-emulated:sm_80", ((3, 5), (4, 300), (2, 1001)))


def test_windows_down_rows() -> None:
    in_place.depthwise("cuda-emulated:sm_80", ((1, 9, 16, 3), (2, 19, 7, 16), (1, 17, 5, 8)))


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
@pytest.mark.parametrize(("channels", "columns"), [(16, 16), (64, 24)])
def test_strips(channels: int, columns: int, arch: str) -> None:
    in_place.strips(channels, columns, f"cuda-emulated:{arch}", SHAPES)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_convolutions_by_tiles(arch: str) -> None:
    in_place.convolution(f"cuda-emulated:{arch}", SHAPES)


@pytest.mark.parametrize("columns", [128, 130])
def test_convolutions_by_boxes(columns: int) -> None:
    in_place.convolution("cuda-emulated:sm_90a", ((1, 1, 1), (3, 5, 7), (1, 9, 17)), 128, columns)


@pytest.mark.parametrize("columns", [64, 40])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_attention(arch: str, columns: int) -> None:
    in_place.attention(f"cuda-emulated:{arch}", 2, 33, columns)


def test_an_axis_of_one_place_by_number() -> None:
    in_place.one_place("cuda-emulated:sm_80", ((3, 5), (2, 1001)))
