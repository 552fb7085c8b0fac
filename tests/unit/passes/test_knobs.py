"""Numbers of kernels that a schedule sets: they are followed where a kernel has them, refused where not, and change no result."""
from __future__ import annotations

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ProgramError

TEXT = """op @f(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) {
  compute { %y[i, j] = 2 * %x[i, j] + exp(%x[i, j]) }
  schedule { target = cuda, %y { SETTINGS } }
}
pipeline @p(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @f(%x) }
"""


@pytest.mark.parametrize(("settings", "threads"), [("threads = 128", 128), ("vector = 1", 256), ("vector = 2, flight = 4, threads = 512", 512), ("flight = 8", 256)])
@pytest.mark.parametrize("shape", [(33, 64), (7, 13), (1, 1)])
def test_numbers_are_followed(settings: str, threads: int, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    p = pl.compile(TEXT.replace("SETTINGS", settings), target="cuda-emulated")
    wide = x.astype(np.float64)
    np.testing.assert_allclose(p(x=x).y, 2 * wide + np.exp(wide), rtol=1e-6)
    assert f"__launch_bounds__({threads})" in p.as_text("cu").rpartition("__global__")[2]


def test_an_access_is_as_wide_as_written() -> None:
    def emitted(settings: str) -> str:
        return pl.compile(TEXT.replace("SETTINGS", settings), target="cuda-emulated").as_text("cu").rpartition("__global__")[2]
    assert len({emitted(s) for s in ("vector = 1", "vector = 2", "vector = 4")}) == 3
    assert emitted("vector = 4") == emitted("vector = 8")  # more does not fit into one access


@pytest.mark.parametrize(("settings", "said"), [
    ("threads = 100", "'threads' is a multiple of 32, from 32 to 1024, not 100"), ("threads = 2048", "from 32 to 1024"), ("vector = 3", "'vector' is 1, 2, 4 or 8"),
    ("flight = %x", "'flight' is 1, 2, 4 or 8")])
def test_numbers_that_no_kernel_has(settings: str, said: str) -> None:
    with pytest.raises(ProgramError) as failed:
        pl.compile(TEXT.replace("SETTINGS", settings), target="cuda-emulated")
    assert said in str(failed.value)
    assert failed.value.diagnostics[0].code == "PL5501"


def test_a_kernel_without_such_a_number() -> None:
    text = TEXT.replace("2 * %x[i, j] + exp(%x[i, j])", "max[k < M](%x[i, k]) + %x[i, j]").replace("SETTINGS", "vector = 4")
    with pytest.raises(ProgramError) as failed:
        pl.compile(text, target="cuda-emulated")
    assert "is of the kind 'block', which has no 'vector' to set" in str(failed.value)
