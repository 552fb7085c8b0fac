"""Sums of one thread along neighbours in memory, which move together where sizes and addresses allow it. Every sum is NumPy's, in any order."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.backends.cuda.emit import emit_program
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse
from pipelink_ir.passes.infer.operator import typed_operator
from tests.emulated import NEEDS_COMPILER

pytestmark = NEEDS_COMPILER


def convolution(dtype: str, channels: int) -> str:
    """A convolution to one channel, each place of which a thread computes."""
    return f"""op @head(%x: tensor<NxHxWx{channels}x{dtype}, NHWC>, %k: tensor<3x3x{channels}x1x{dtype}>) -> (%y: tensor<NxHxWx1xf32>) {{
      memory {{ %x {{ border = constant(0) }} }}
      schedule {{ target = cuda, %y {{ map = grid }} }}
      compute {{ %y[n, h, w, o] = sum[dy < 3, dx < 3, c < {channels}](%x[n, h + dy - 1, w + dx - 1, c] * %k[dy, dx, c, o]) }}
    }}
    pipeline @p(%x: tensor<NxHxWx{channels}x{dtype}, NHWC>, %k: tensor<3x3x{channels}x1x{dtype}>) -> (%y: tensor<NxHxWx1xf32>) {{ %y = @head(%x, %k) }}
    """


def values(rng: Any, dtype: str, *size: int) -> Any:
    return rng.integers(-8, 9, size).astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype])


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("channels", [32, 24, 33, 300, 512])
@pytest.mark.parametrize("skip", [0, 1])
def test_channels_of_a_place(dtype: str, channels: int, skip: int) -> None:
    """Whole numbers, whose sums are exact. Arrays that begin in between are read one by one."""
    rng = np.random.default_rng(channels)
    n, h, w = 1, 4, 5
    x = values(rng, dtype, n * h * w * channels + skip)[skip:].reshape(n, h, w, channels)
    k = values(rng, dtype, 3, 3, channels, 1)
    got = np.asarray(pipelink_ir.compile(convolution(dtype, channels), target="cuda-emulated")(x=x, k=k)["y"])
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum((padded[:, i:i + h, j:j + w] * k[i, j, :, 0].astype(np.float64)).sum(-1) for i in range(3) for j in range(3))
    assert np.array_equal(got[..., 0], want)


def test_where_neighbours_move_together() -> None:
    def text(dtype: str, channels: int) -> str:
        return emit_program(build_gpu(typed_operator(parse(convolution(dtype, channels), "test.plir").operators[0]))).text

    assert "load_many<8>" in text("f16", 32)
    assert "load_many<4>" in text("f32", 32)
    assert "% 8" not in text("f16", 32).partition("__global__")[2]
    assert "load_many<" not in text("f16", 33).partition("__global__")[2]
