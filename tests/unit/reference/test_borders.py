"""What lies outside: against np.pad, whose modes are repeated until they reach far enough, and by hand where constants meet."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelink_ir.ir.diagnostics import ExecutionError

Op = Callable[..., Any]
PAD = {"replicate": "edge", "reflect": "symmetric", "reflect101": "reflect", "wrap": "wrap"}


@pytest.mark.parametrize("mode", PAD)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_borders_go_on_without_limit(run_op: Op, mode: str, size: int) -> None:
    x = np.arange(10, 10 + size, dtype=np.float32)
    reach = 11
    got = run_op("(%x: tensor<Wxf32>) -> (%y: tensor<(W + 22)xf32>)", "%y[w] = %x[w - 11]", sections=f"memory {{ border = {mode} }}", x=x)
    np.testing.assert_array_equal(got, np.pad(x, reach, PAD[mode]))


@pytest.mark.parametrize(("mode", "want"), [
    ("reflect101", [5 / 3, 2, 3, 10 / 3]), ("reflect", [4 / 3, 2, 3, 11 / 3]), ("replicate", [4 / 3, 2, 3, 11 / 3]), ("constant(0)", [1, 2, 3, 7 / 3])])
def test_mean_of_three(run_op: Op, mode: str, want: list[float]) -> None:
    got = run_op("(%x: tensor<Wxf32>) -> (%y: tensor<Wxf32>)", "%y[w] = mean[j < 3](%x[w + j - 1])", sections=f"memory {{ border = {mode} }}", x=[1, 2, 3, 4])
    np.testing.assert_allclose(got, want, rtol=1e-7)


def test_the_first_of_two_constants_wins(run_op: Op) -> None:
    body = "%y[h, w] = %x[h - 1, w - 1]"
    got = run_op("(%x: tensor<HxWxf32>) -> (%y: tensor<(H + 2)x(W + 2)xf32>)", body, sections="memory { border = [constant(7), constant(8)] }", x=[[1, 2]])
    np.testing.assert_array_equal(got, [[7, 7, 7, 7], [8, 1, 2, 8], [7, 7, 7, 7]])
    got = run_op("(%x: tensor<HxWxf32>) -> (%y: tensor<(H + 2)x(W + 2)xf32>)", body, sections="memory { border = [wrap, constant(-inf)] }", x=[[1, 2]])
    np.testing.assert_array_equal(got, [[-np.inf, 1, 2, -np.inf]] * 3)


def test_border_of_a_local(run_op: Op) -> None:
    sections = "memory { %x { border = replicate }, %d { border = constant(100) } }"
    body = "%d[w < W] = %x[w + 1] - %x[w]\n%y[w] = %d[w - 1] + %d[w + 1]"
    got = run_op("(%x: tensor<Wxf32>) -> (%y: tensor<Wxf32>)", body, sections=sections, x=[1, 2, 4, 8])
    np.testing.assert_array_equal(got, [102, 5, 2, 104])


@pytest.mark.parametrize("mode", [*PAD, "constant(0)"])
def test_nothing_is_read_of_an_empty_axis(run_op: Op, mode: str) -> None:
    signature, body = "(%x: tensor<HxWxf32>) -> (%y: tensor<(H + 1)xWxf32>)", "%y[h, w] = %x[h, w]"
    sections = f"memory {{ border = {mode} }}"
    with pytest.raises(ExecutionError, match="'%x' is read along axis 0, which is empty"):
        run_op(signature, body, sections=sections, x=np.zeros((0, 2)))
    assert run_op(signature, body, sections=sections, x=np.zeros((0, 0))).shape == (1, 0)


def test_an_index_from_data_is_checked_or_answered(run_op: Op) -> None:
    signature = "(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>)"
    np.testing.assert_array_equal(run_op(signature, "%y[m] = %x[%i[m]]", x=[5, 6, 7], i=[2, 0, 1]), [7, 5, 6])
    with pytest.raises(ExecutionError) as caught:
        run_op(signature, "%y[m] = %x[%i[m]]", x=[5, 6, 7], i=[2, -1, 3])
    found = caught.value.diagnostics[0]
    assert (found.code, found.message) == ("PL6101", "'%x' is read at index -1 along axis 0, but its extent is 3")
    assert found.span.source.text is not None
    assert found.span.source.text[found.span.start:found.span.end] == "%x[%i[m]]"
    edge = run_op(signature, "%y[m] = %x[%i[m]]", sections="memory { %x { border = replicate } }", x=[5, 6, 7], i=[2**31 - 1, -2**31, 1])
    np.testing.assert_array_equal(edge, [7, 5, 6])
