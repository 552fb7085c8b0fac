"""Memory on a device: plans with in-place results and slices on several streams, bound parameters, arenas of the caller's, and that nothing is allocated."""
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda.executable import load
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import ExecutionError, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.passes.manager import parse_passes, run_passes
from tests.unit.device.emulated import EmulatingDriver
from tests.unit.device.fake import Launch

OPS = """
op @u(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] + 1 } }
op @j(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] + 2 * %z[n] } }
op @s(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { memory { border = wrap } compute { %y[n] = %x[n + 1] + %x[n] } }
op @cat(%a: tensor<Nxf32>, %b: tensor<Mxf32>) -> (%y: tensor<(N + M)xf32>) { compute { %y[n in 0..N] = %a[n]  %y[n in N..N + M] = %b[n - N] } }
op @half(%a: tensor<(2 * N)xf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] + %a[n + N] } }
"""
PASSES = "resolve,infer-types,flatten,assign-streams,alias-buffers,verify-plan"


def graph(seed: int, nodes: int) -> str:
    draw, lines, edges = random.Random(seed), [], ["x"]
    for k in range(nodes):
        kind = draw.choice("uujjsc")
        a, b = draw.choice(edges[-4:]), draw.choice(edges)
        if kind == "j":
            lines.append(f"%e{k} = @j(%{a}, %{b})")
        elif kind == "c":
            lines += [f"%g{k} = @s(%{a})", f"%h{k} = @s(%{b})", f"%i{k} = @cat(%g{k}, %h{k})", f"%e{k} = @half(%i{k})"]
        else:
            lines.append(f"%e{k} = @{kind}(%{a})")
        edges.append(f"e{k}")
    results = ", ".join(f"%{e}: tensor<Nxf32>" for e in edges[-3:])
    return OPS + f"pipeline @p(%x: tensor<Nxf32>) -> ({results}) {{\n" + "\n".join(lines) + "\n}\n"


def watch(device: EmulatingDriver) -> None:
    """Every buffer of a kernel counts with the bytes of the arrays here, all alike but the joined ones, which are told by their place."""
    def accesses(launch: Launch) -> list[tuple[int, int, bool]]:
        return [(launch.words[k], 1, write) for k, write in device.pointers[launch.name] if launch.words[k]]

    device.accesses = accesses


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_with_what_shares_memory(device: EmulatingDriver, seed: int) -> None:
    watch(device)
    text = graph(seed, 10)
    module = run_passes(parse(text, "p.plir"), parse_passes(PASSES), Report())
    executable = load(module, "p", {"driver": device})
    reference = pl.compile(text, "reference")
    x = np.arange(5, dtype=np.float32)
    for k in range(3):
        want = reference(x=x + k)
        for name, value in executable({"x": x + k}).items():
            np.testing.assert_array_equal(value, want[name], err_msg=name)
        device.past.clear()


def test_slices_of_a_result_on_the_device(device: EmulatingDriver, cupy: Any) -> None:
    text = OPS + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<(2 * N)xf32>) { %a = @s(%x) %b = @s(%a) %y = @cat(%a, %b) }"
    p = pl.compile(text, "cuda", passes=PASSES)
    assert "elided" not in p.as_text("plir")  # N floats are no multiple of sixteen bytes
    x = np.arange(8, dtype=np.float32)
    fixed = pl.compile(text.replace("N)xf32>) {", "8)xf32>) {").replace("p(%x: tensor<N", "p(%x: tensor<8"), "cuda", passes=PASSES)
    assert "elided = true" in fixed.as_text("plir")
    a = x + np.roll(x, -1)
    want = np.concatenate([a, a + np.roll(a, -1)])
    for _ in range(3):
        np.testing.assert_array_equal(fixed(x=x).y, want)
        np.testing.assert_array_equal(device.to_host(fixed(x=cupy.ndarray(device, x)).y), want)


NET = """
op @unit(%w: tensor<KxMxf32>) -> (%u: tensor<KxMxf32>) { compute { %u[k, m] = %w[k, m] / (1 + sum[i < K](%w[i, m] * %w[i, m])) } }
op @lin(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) } }
op @relu(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = max(%x[...], 0) } }
pipeline @net(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %u = @unit(%w)  %h = @lin(%x, %u)  %y = @relu(%h) }
"""
FLAT = "resolve,infer-types,flatten,simplify,assign-streams,alias-buffers,verify-plan"


def net(x: Any, w: Any) -> Any:
    return np.maximum(x.astype(np.float64) @ (w / (1 + (w.astype(np.float64) ** 2).sum(0))), 0)


@pytest.mark.parametrize("of_device", [False, True])
def test_parameters_are_moved_and_computed_from_once(device: EmulatingDriver, cupy: Any, of_device: bool) -> None:
    p = pl.compile(NET, "cuda", passes=FLAT)
    w = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
    f = p.bind(w=cupy.ndarray(device, w) if of_device else w)
    device.log.clear()
    for k in range(3):
        x = np.ones((2, 4), np.float32) + k
        got = f(x=x).y
        # Where the parameter was on the device, results are too.
        np.testing.assert_allclose(device.to_host(got) if of_device else got, net(x, w), rtol=1e-5)
        assert isinstance(got, np.ndarray) != of_device
    assert sum(e[0] == "launch" for e in device.log) == 3 * 2
    y = f(x=cupy.ndarray(device, x)).y
    np.testing.assert_allclose(device.to_host(y), net(x, w), rtol=1e-5)


def test_nothing_is_allocated_after_the_first_call(device: EmulatingDriver) -> None:
    p = pl.compile(NET, "cuda", passes=FLAT)
    x, w = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    p(x=x, w=w)
    p(x=x, w=w)
    before = device.allocations
    for _ in range(5):
        p(x=x, w=w)
    assert device.allocations == before


def test_an_arena_on_the_device(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(NET, "cuda", passes=FLAT)
    x, w = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    size = p.arena_bytes(x=x, w=w)
    assert size > 0
    on_device = {"x": cupy.ndarray(device, x), "w": cupy.ndarray(device, w)}
    block = cupy.ndarray(device, np.zeros(size + 512, np.uint8))
    begin = block.data.ptr
    arena = pl.TensorView(begin + -begin % 256, (size,), DTYPES["u8"], device="cuda:0", owner=block)
    for k in range(4):
        device.log.clear()
        np.testing.assert_allclose(device.to_host(p(**on_device, arena=arena).y), net(x, w), rtol=1e-5)
        np.testing.assert_allclose(p(x=x + k, w=w, arena=arena).y, net(x + k, w), rtol=1e-5)
        np.testing.assert_allclose(device.to_host(p(**on_device).y), net(x, w), rtol=1e-5)
    np.testing.assert_allclose(device.to_host(p(**on_device, arena=arena, asynchronous=True).wait().y), net(x, w), rtol=1e-5)
    overlapping = cupy.ndarray(device, np.zeros((600, 4), np.float32))
    for wrong, more, message in ((np.zeros(size, np.uint8), {}, "is on cpu"), (cupy.ndarray(device, np.zeros(size - 64, np.uint8)), {}, "bytes, and"),
                                 (overlapping, {"x": overlapping}, "overlaps the input '%x'|no multiple of")):
        with pytest.raises(ExecutionError, match=message):
            p(**{**on_device, "arena": wrong, **more})


def test_a_run_in_an_arena_takes_no_memory_of_ours(device: EmulatingDriver, cupy: Any) -> None:
    p = pl.compile(NET, "cuda", passes=FLAT)
    on_device = {"x": cupy.ndarray(device, np.ones((2, 4), np.float32)), "w": cupy.ndarray(device, np.ones((4, 3), np.float32))}
    size = p.arena_bytes(x=(2, 4), w=(4, 3))
    block = cupy.ndarray(device, np.zeros(size + 512, np.uint8))
    arena = pl.TensorView(block.data.ptr + -block.data.ptr % 256, (size,), DTYPES["u8"], device="cuda:0", owner=block)
    y = p(**on_device, arena=arena).y
    lanes = p.executable._idle  # type: ignore[attr-defined]
    assert [lane.arena_bytes for lane in lanes] == [0]
    np.testing.assert_allclose(device.to_host(y), net(np.ones((2, 4)), np.ones((4, 3))), rtol=1e-5)
