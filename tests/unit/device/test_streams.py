"""Several streams: what the plan says is what is issued, and what runs at the same time shares no memory."""
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda.executable import load
from pipelink_ir.backends.cuda.order import Order
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module
from pipelink_ir.passes.manager import parse_passes, run_passes
from tests.unit.device.emulated import EmulatingDriver
from tests.unit.device.fake import Fault, Launch

UNIT = "op @u(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = %x[n] + 1 } }\n"
JOIN = "op @j(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = %x[n] + %z[n] } }\n"

DIAMOND = UNIT + JOIN + """pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %a = @u(%x) plan { stream = 0, record = 1 }
  %b = @u(%a) plan { stream = 1, wait = [1] }
  %c = @u(%a) plan { stream = 0 }
  %d = @u(%b) plan { stream = 1, record = 2 }
  %y = @j(%c, %d) plan { stream = 0, wait = [2] }
}
"""


def prepared(text: str, passes: str = "resolve,infer-types,flatten") -> Module:
    return run_passes(parse(text, "p.plir"), parse_passes(passes), Report())


def watch(device: EmulatingDriver) -> None:
    """Every access of a kernel counts with all its bytes: of these kernels the last buffer of the address list is written."""
    def accesses(launch: Launch) -> list[tuple[int, int, bool]]:
        pointers = device.pointers[launch.name]
        n = launch.words[len(pointers)] & 0xffffffff
        return [(launch.words[k], 4 * n, write) for k, write in pointers]

    device.accesses = accesses


def test_commands_are_the_plan(device: EmulatingDriver) -> None:
    watch(device)
    executable = load(prepared(DIAMOND), "p", {"driver": device})
    x = np.arange(9, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(executable({"x": x})["y"], x + 2 + x + 3)
    launches = [e for e in device.log if e[0] == "launch"][:5]
    assert launches[0][2] == launches[2][2] == launches[4][2] != launches[1][2] == launches[3][2]


def test_a_wait_that_is_missing_is_found(device: EmulatingDriver) -> None:
    """The played device would find a fault of ours: here the plan has one."""
    watch(device)
    executable = load(prepared(DIAMOND.replace("wait = [2]", "record = 9")), "p", {"driver": device})
    with pytest.raises(Fault, match="nothing orders them"):
        executable({"x": np.ones(9, np.float32)})


def test_devices_that_fold_onto_one_keep_their_streams(device: EmulatingDriver) -> None:
    text = UNIT + """pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
      %a = @u(%x) on cuda:0 plan { stream = 0, record = 1 }
      %y = @u(%a) on cuda:1 plan { stream = 0, wait = [1] }
    }"""
    watch(device)
    executable = load(prepared(text), "p", {"driver": device})
    np.testing.assert_array_equal(executable({"x": np.ones(3, np.float32)})["y"], 3)
    assert executable.order.streams == 2


def test_without_a_whole_plan_there_is_one_stream() -> None:
    module = prepared(DIAMOND.replace(" plan { stream = 0 }", ""))
    assert Order.of(module.pipelines[0]).streams == 1


def random_graph(draw: random.Random, nodes: int) -> str:
    lines, edges = [], ["x"]
    for k in range(nodes):
        if draw.random() < 0.5:
            lines.append(f"  %e{k} = @u(%{draw.choice(edges[-4:])})")
        else:
            lines.append(f"  %e{k} = @j(%{draw.choice(edges[-4:])}, %{draw.choice(edges)})")
        edges.append(f"e{k}")
    lines.append("  %y0 = @u(%x)")
    used = {e for line in lines for e in edges if f"%{e})" in line or f"%{e}," in line}
    last = "y0"
    for k, e in enumerate(e for e in edges if e not in used):
        lines.append(f"  %y{k + 1} = @j(%{last}, %{e})")
        last = f"y{k + 1}"
    return UNIT + JOIN + f"pipeline @p(%x: tensor<Nxf32>) -> (%{last}: tensor<Nxf32>) {{\n" + "\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_on_several_streams(device: EmulatingDriver, seed: int) -> None:
    """Plans of the pass, memory used again: no two accesses that conflict are without an order, and the numbers are right."""
    watch(device)
    text = random_graph(random.Random(seed), 12)
    executable = load(prepared(text, "resolve,infer-types,flatten,assign-streams"), "p", {"driver": device})
    reference = pl.compile(text, "reference")
    x = np.arange(5, dtype=np.float32)
    for k in range(4):
        want: Any = reference(x=x + k)[0]
        np.testing.assert_array_equal(next(iter(executable({"x": x + k}).values())), want)
        device.past.clear()
    assert executable.order.streams > 1
