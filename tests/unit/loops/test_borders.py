"""Reads outside: every border, interior and edges, run-time checks, axes of size 0."""
from __future__ import annotations

import numpy as np
import pytest

from pipelink_ir.backends.loops import form
from tests.unit.loops.interpreter import Failed
from tests.unit.loops.programs import op, program, results

NUMPY = {"replicate": "edge", "reflect": "symmetric", "reflect101": "reflect", "wrap": "wrap"}
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("mode", sorted(NUMPY))
@pytest.mark.parametrize("shape", [(5, 9), (1, 7), (6, 1), (1, 1), (2, 2), (3, 40)])
def test_taps_far_outside(mode: str, shape: tuple[int, int]) -> None:
    x = RNG.random(shape, dtype=np.float32)
    text = op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = %x[h - 4, w + 3] - 2 * %x[h + 1, w - 7]", f"memory {{ border = {mode} }}")
    h, w = shape
    def at(i: int, n: int) -> int:
        if n == 1 or mode == "replicate":
            return min(max(i, 0), n - 1)
        period = {"reflect": 2 * n, "reflect101": 2 * n - 2, "wrap": n}[mode]
        i %= period
        return i if i < n else (2 * n - 1 - i if mode == "reflect" else 2 * n - 2 - i)
    want = np.array([[x[at(i - 4, h), at(j + 3, w)] - 2 * x[at(i + 1, h), at(j - 7, w)] for j in range(w)] for i in range(h)])
    np.testing.assert_array_equal(results(text, x=x)["y"], want)


def test_the_interior_has_no_index_map() -> None:
    text = op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = sum[i < 3, j < 3](%x[h + i - 1, w + j - 1])", "memory { border = reflect101 }")
    (kernel,) = program(text).kernels
    assert kernel.loop is not None
    inner = next(s for s in kernel.loop.body if isinstance(s, form.For) and s.vector)
    assert "min" not in repr(inner.body)
    assert "mod" not in repr(inner.body)
    x = RNG.random((4, 6), dtype=np.float32)
    p = np.pad(x, 1, mode="reflect").astype(np.float64)
    want = sum(p[i:i + 4, j:j + 6] for i in range(3) for j in range(3))
    np.testing.assert_allclose(results(text, x=x)["y"], want, rtol=1e-6)


def test_channels_last_stencil_is_flat_inside() -> None:
    text = op("%x: tensor<HxWxCxf32> -> %y: tensor<HxWxCxf32>", "%y[h, w, c] = %x[h, w - 1, c] + 2 * %x[h, w, c] + %x[h, w + 2, c]",
              "memory { border = replicate }")
    (kernel,) = program(text).kernels
    assert kernel.loop is not None
    inner = next(s for s in kernel.loop.body if isinstance(s, form.For) and s.vector)
    assert not any(isinstance(s, form.For) for s in inner.body)
    for shape in [(2, 5, 3), (2, 1, 3), (2, 2, 4), (1, 8, 1)]:
        x = RNG.random(shape, dtype=np.float32)
        p = np.pad(x, ((0, 0), (1, 2), (0, 0)), mode="edge")
        w = shape[1]
        np.testing.assert_array_equal(results(text, x=x)["y"], p[:, :w] + 2 * p[:, 1:w + 1] + p[:, 3:w + 3])


def test_constants_by_axis_the_first_wins() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    text = op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = %x[h - 1, w - 1]", "memory { %x { border = [constant(10), constant(20)] } }")
    assert results(text, x=x)["y"].tolist() == [[10, 10], [20, 1]]
    text = op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%y[h, w] = %x[h - 1, w - 1]", "memory { %x { border = [replicate, constant(20)] } }")
    assert results(text, x=x)["y"].tolist() == [[20, 1], [20, 1]]


def test_border_of_a_local() -> None:
    x = np.array([1.0, 2.0, 4.0], np.float32)
    text = op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%d[n] = 2 * %x[n] %y[n] = %d[n - 1] + %d[n + 1]", "memory { %d { border = wrap } }")
    assert results(text, x=x)["y"].tolist() == [12, 10, 6]
    for place in ("inline", "buffer"):
        schedule = f"memory {{ %d {{ border = constant(-1) }} }} schedule {{ %d {{ place = {place} }} }}"
        assert results(op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%d[n] = 2 * %x[n] %y[n] = %d[n - 1] + %d[n + 1]", schedule),
                       x=x)["y"].tolist() == [3, 10, 3]


def test_gather_through_a_border() -> None:
    text = op("%t: tensor<NxFxf32>, %i: tensor<Mxi32> -> %y: tensor<MxFxf32>", "%y[m, f] = %t[%i[m], f]", "memory { %t { border = [replicate, none] } }")
    t = RNG.random((4, 3), dtype=np.float32)
    i = np.array([0, 3, -5, 9], np.int32)
    np.testing.assert_array_equal(results(text, t=t, i=i)["y"], t[np.clip(i, 0, 3)])


GATHER = op("%t: tensor<NxFxf32>, %i: tensor<Mxi32> -> %y: tensor<MxFxf32>", "%y[m, f] = select(%i[m] == -9, 0, %t[%i[m], f])")


def test_checked_gather() -> None:
    t = RNG.random((4, 3), dtype=np.float32)
    i = np.array([0, 3, -9], np.int32)
    np.testing.assert_array_equal(results(GATHER, t=t, i=i)["y"], np.stack([t[0], t[3], np.zeros(3)]))
    with pytest.raises(Failed, match=r"index 4 of axis 0 of '%t' is outside 0\.\.4"):
        results(GATHER, t=t, i=np.array([4], np.int32))
    with pytest.raises(Failed, match="index -1 of axis 0"):
        results(GATHER, t=t, i=np.array([-1], np.int32))


def test_an_empty_axis_is_an_error_only_where_it_is_read() -> None:
    text = op("%t: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = %t[%i[m]]", "memory { %t { border = replicate } }")
    none = np.zeros(0, np.float32)
    with pytest.raises(Failed, match="axis 0 of '%t' has size 0"):
        results(text, t=none, i=np.array([0], np.int32))
    assert results(text, t=none, i=np.zeros(0, np.int32))["y"].shape == (0,)
    text = op("%t: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = select(N > 0, %t[%i[m]], -1)", "memory { %t { border = replicate } }")
    assert results(text, t=none, i=np.array([5, 0], np.int32))["y"].tolist() == [-1, -1]
    # An index that is never inside is an error under any border.
    text = op("%t: tensor<Nxf32>, %i: tensor<Mxi32> -> %y: tensor<Mxf32>", "%y[m] = %t[%i[m]]", "memory { %t { border = constant(8) } }")
    with pytest.raises(Failed, match="axis 0 of '%t' has size 0"):
        results(text, t=none, i=np.array([5, 0], np.int32))


@pytest.mark.parametrize("border", ["replicate", "constant(8)"])
def test_a_stored_local_beside_an_empty_axis(border: str) -> None:
    """The local reaches one place further than the image on both sides, and is computed before it is known that nobody reads it."""
    body = "%g[h] = exp(%x[h]) + exp(%x[h + 1])\n%y[h] = %g[h - 1] * %g[h + 1] + sum[k < 9](%g[h - 1] * k)"
    text = op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", body, f"memory {{ border = {border} }} schedule {{ %g {{ place = buffer }} }}")
    assert results(text, x=np.zeros(0, np.float32))["y"].shape == (0,)
    assert results(text, x=np.zeros(3, np.float32))["y"].shape == (3,)
    pad = op("%x: tensor<Nxf32> -> %y: tensor<(N + 2)xf32>", body, f"memory {{ border = {border} }} schedule {{ %g {{ place = buffer }} }}")
    with pytest.raises(Failed, match="axis 0 of '%x' has size 0"):
        results(pad, x=np.zeros(0, np.float32))
