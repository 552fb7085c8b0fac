"""Everything that policies lower to, by the kernels of sm_75 played on the processor, near the program as it is written."""
from __future__ import annotations

from typing import Any

import pytest

import pipelink_ir as pl
from tests.emulated import NEEDS_COMPILER
from tests.gpu.test_lowered import arrays, check, wanted
from tests.unit.cuda.test_lowered import text


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return wanted(arrays())


@NEEDS_COMPILER
@pytest.mark.parametrize("arch", ["sm_75"])
def test_lowered_programs_are_played(arch: str, expected: dict[str, Any]) -> None:
    compiled = pl.compile(text(arch), target=f"cuda-emulated:{arch}", pass_options="lower-precision{price=false}")
    check(dict(compiled(**arrays()).items()), expected)
