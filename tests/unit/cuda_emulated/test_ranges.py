"""Kernels that have nothing to do with each other in one launch, its threads split among them; against NumPy in float64."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ExecutionError
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.printed import scheduled
from tests.emulated import NEEDS_COMPILER
from tests.unit.cuda_emulated.test_schedules import op

RNG = np.random.default_rng(9)
Array = np.ndarray[Any, Any]
pytestmark = NEEDS_COMPILER


def run(text: str, **arrays: Array) -> dict[str, Array]:
    return {k: np.asarray(v) for k, v in pipelink_ir.compile(text, target="cuda-emulated")(**arrays).items()}


def kernels(text: str) -> list[list[str]]:
    """The results of each kernel."""
    return [[b.name for b in k.buffers if b.kind == "result"] for k in build_gpu(typed_operator(parse(text, "test.plir").operators[0])).kernels]


def chains(count: int, length: int) -> str:
    """`count` chains of small nodes."""
    some = range(count)
    lines = [f"  {'%y' if k == length else '%e'}{c}{'' if k == length else f'_{k}'} = @step({'%x' if k == 1 else '%e'}{c}{'' if k == 1 else f'_{k - 1}'})"
             for c in some for k in range(1, length + 1)]
    return ("op @step(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { compute { %y[i, j] = 0.9 * %x[i, j] + 0.1 * tanh(%x[i, j]) } }\n"
            f"pipeline @p({', '.join(f'%x{c}: tensor<NxMxf32>' for c in some)}) -> ({', '.join(f'%y{c}: tensor<NxMxf32>' for c in some)}) {{\n"
            + "\n".join(lines) + "\n}\n")


def test_chains_of_small_nodes() -> None:
    p = pipelink_ir.compile(chains(10, 3), target="cuda-emulated")
    for shape in ((3, 5), (0, 4), (64, 68), (400, 332)):
        xs = {f"x{c}": RNG.standard_normal(shape).astype(np.float32) for c in range(10)}
        got = dict(p(**xs).items())
        for c in range(10):
            want = xs[f"x{c}"].astype(np.float64)
            for _ in range(3):
                want = 0.9 * want + 0.1 * np.tanh(want)
            np.testing.assert_allclose(np.asarray(got[f"y{c}"]), want, rtol=2e-6, atol=1e-6)


MIXED = op("%a: tensor<Nxf32>, %b: tensor<HxWxf16>, %c: tensor<Kxi32>, %d: tensor<PxQxf32> -> "
           "%u: tensor<Nxf32>, %v: tensor<HxWxf16>, %w: tensor<Kxi32>, %z: tensor<PxQxf32>",
           "%u[n] = 2 * %a[n] + 1\n%v[h, w] = %b[h, w] + %b[h, w]\n%w[k] = %c[k] * 3\n%z[p, q] = %d[p, q] - %d[max(p - 1, 0), q]")


@pytest.mark.parametrize("sizes", [(5, 3, 7, 1, 2, 2), (0, 4, 8, 0, 3, 5), (300000, 0, 5, 700, 40, 33), (1, 256, 1100, 300, 1, 0)])
def test_extents_of_their_own(sizes: tuple[int, ...]) -> None:
    n, h, w, k, p, q = sizes
    a, d = RNG.standard_normal(n).astype(np.float32), RNG.standard_normal((p, q)).astype(np.float32)
    b, c = RNG.standard_normal((h, w)).astype(np.float16), RNG.integers(-1000, 1000, k, dtype=np.int32)
    got = run(MIXED, a=a, b=b, c=c, d=d)
    np.testing.assert_allclose(got["u"], 2 * a.astype(np.float64) + 1, rtol=1e-6, atol=1e-6)
    assert (got["v"] == (2 * b.astype(np.float64)).astype(np.float16)).all()
    assert (got["w"] == 3 * c).all()
    before = d[np.maximum(np.arange(p) - 1, 0)].astype(np.float64)
    np.testing.assert_allclose(got["z"], d - before, rtol=1e-6, atol=1e-6)


def test_they_are_one_launch() -> None:
    assert kernels(MIXED) == [["u", "v", "w", "z"]]


def test_a_check_that_fails_in_one_of_them() -> None:
    text = op("%a: tensor<Nxf32>, %i: tensor<Mxi32>, %t: tensor<Kxf32> -> %u: tensor<Nxf32>, %v: tensor<Mxf32>", "%u[n] = -%a[n]\n%v[m] = %t[%i[m]]")
    assert kernels(text) == [["u", "v"]]
    a, t = np.arange(600, dtype=np.float32), np.arange(5, dtype=np.float32)
    got = run(text, a=a, i=np.array([4, 0, 2], np.int32), t=t)
    assert (got["u"] == -a).all()
    assert got["v"].tolist() == [4, 0, 2]
    with pytest.raises(ExecutionError, match="7"):
        run(text, a=a, i=np.array([4, 7, 2], np.int32), t=t)


def test_what_waits_for_another_has_its_own_launch() -> None:
    text = op("%a: tensor<Nxf32>, %b: tensor<Mxf32> -> %u: tensor<Nxf32>, %v: tensor<Nxf32>, %w: tensor<Mxf32>",
              "%u[n] = 2 * %a[n]\n%v[n] = %u[N - 1 - n]\n%w[m] = 3 * %b[m]")
    assert kernels(text) == [["u", "w"], ["u", "v"]]      # the second reads the first result
    a, b = RNG.standard_normal(700).astype(np.float32), RNG.standard_normal(9).astype(np.float32)
    got = run(text, a=a, b=b)
    assert (got["v"] == 2 * a[::-1]).all()
    assert (got["w"] == 3 * b.astype(np.float64).astype(np.float32)).all()


def test_what_shares_reads_is_computed_by_one_thread() -> None:
    """A thread a place of both where that spares bytes; threads of their own where each has much to do and there are few."""
    shared = op("%x: tensor<64x64xf32> -> %u: tensor<64x64xf32>, %v: tensor<64x64xf32>", "%u[i, j] = %x[i, j] + 1\n%v[i, j] = %x[i, j] * 2")
    costly = shared.replace("%x[i, j] + 1", "tanh(tanh(tanh(tanh(%x[i, j]))))").replace("%x[i, j] * 2", "tanh(tanh(tanh(tanh(-%x[i, j]))))")
    assert "beside = %u" in written(shared)
    assert "launch" not in written(shared)
    assert "launch = %u" in written(costly)
    assert "beside" not in written(costly)
    large = costly.replace("64x64", "4096x4096")
    assert "beside = %u" in written(large)


def written(text: str) -> str:
    module = parse(text, "test.plir")
    return print_module(type(module)((scheduled(module.operators[0], "cuda").op,)))


def test_a_schedule_decides() -> None:
    for line, want in (("", [["u", "v"]]), ("schedule { %v { launch = none } }", [["u"], ["v"]]), ("schedule { %v { launch = %u } }", [["u", "v"]])):
        text = op("%a: tensor<Nxf32>, %b: tensor<Mxf32> -> %u: tensor<Nxf32>, %v: tensor<Mxf32>", "%u[n] = 2 * %a[n]\n%v[n] = 3 * %b[n]", line)
        assert kernels(text) == want
    text = op("%a: tensor<Nxf32> -> %u: tensor<Nxf32>, %v: tensor<Nxf32>", "%u[n] = 2 * %a[n]\n%v[n] = %u[N - 1 - n]", "schedule { %v { launch = %u } }")
    assert [o.why for o in scheduled(parse(text, "test.plir").operators[0], "cuda").objections] == ["'%v' cannot share the launch of '%u'"]


def test_more_parameters_than_a_launch_carries() -> None:
    """576 arrays in one launch: their addresses lie in a table."""
    outs, ins = 64, 8
    signature = ", ".join(f"%x{r}_{k}: tensor<Nxf32>" for r in range(outs) for k in range(ins))
    text = op(f"{signature} -> {', '.join(f'%y{r}: tensor<Nxf32>' for r in range(outs))}",
              "\n".join(f"%y{r}[n] = {' + '.join(f'%x{r}_{k}[n]' for k in range(ins))}" for r in range(outs)))
    assert kernels(text) == [[f"y{r}" for r in range(outs)]]
    arrays = {f"x{r}_{k}": RNG.standard_normal(37).astype(np.float32) for r in range(outs) for k in range(ins)}
    got = run(text, **arrays)
    for r in range(outs):
        np.testing.assert_allclose(got[f"y{r}"], sum(arrays[f"x{r}_{k}"].astype(np.float64) for k in range(ins)), rtol=1e-5, atol=1e-5)
