"""What lower-precision does to nodes: labels, devices, order, plans, sharing, resuming, and how its work grows."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import IntLit, Module, Node, Scoped, Setting
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.precision import insert, plans, survey
from pipelink_ir.passes.precision.quantised import quantised

LOWER = "lower-precision{arch=sm_90,price=false}"
LINEAR = """op @linear(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  memory { dtypes = [f16, f32] }
  downgrade sm_90 { CLAUSE }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
"""


def run(text: str, passes: str, report: Report | None = None) -> Module:
    return run_passes(parse(text.encode(), "test.plir"), parse_passes(passes), report or Report())


def nodes(module: Module) -> dict[str, Node]:
    return {n.results[0].name: n for n in module.pipelines[0].nodes if isinstance(n, Node)}


PLANNED = LINEAR + """op @same(%x: tensor<8x16xf32>) -> (%y: tensor<8x16xf32>) { compute { %y[n, m] = %x[n, m] } }
pipeline @p(%x: tensor<8x16xf32>, param %w: tensor<16x16xf32>) -> (%z: tensor<8x16xf32>, %e: tensor<8x16xf32>) on cuda:0 {
  %e = @same(%x) plan { record = 1 }
  %y = @linear(%x, %w) on cuda:1 as first plan { stream = 2, wait = [1], record = 3, %y { arena = "cuda:1", offset = 0, bytes = 512 } }
  %z = @linear(%y, %w) as second after %y
}
"""


@pytest.mark.parametrize("clause", ["dtype = f16", "dtype = i8, ranges = dynamic"])
def test_labels_devices_order_and_places_stay(clause: str) -> None:
    before = nodes(run(PLANNED.replace("CLAUSE", clause), "frontend"))
    after = nodes(run(PLANNED.replace("CLAUSE", clause), f"frontend,{LOWER}"))
    labels = {n.label: n for n in after.values() if n.label is not None}
    assert labels.keys() == {"first", "second"}
    assert labels["first"].device == before["y"].device
    assert labels["second"].device is None
    assert [e.name for e in labels["second"].after] == [e.name for e in before["z"].after]
    # `%w` is cast for each device, and what stands for the first node is all on its stream: it waits with its first, and records with its last node.
    mine = [n for n in after.values() if n.device is not None]
    assert len(mine) >= 3
    keys = [{e.key: e.value for e in n.plan.entries if isinstance(e, Setting)} for n in mine if n.plan is not None]
    assert [k["stream"] for k in keys] == [IntLit(2)] * len(mine)
    assert ["wait" in k for k in keys] == [True] + [False] * (len(mine) - 1)
    assert ["record" in k for k in keys] == [False] * (len(mine) - 1) + [True]
    (place,) = [n for n in mine if n.plan is not None and any(isinstance(e, Scoped) for e in n.plan.entries)]
    assert [e.name for e in place.results] == ["y"]


SUMMED = """op @ahead(%x: tensor<NxCxf32>, K: dim) -> (%y: tensor<Nxf32>) {
  memory { border = constant(0) }
  downgrade sm_90 { dtype = u8, scheme = affine }
  compute { %y[n] = sum[d < K, c < C](%x[n + d, c]) }
}
pipeline @p(%x: tensor<NxCxf32>, M: dim) -> (%y: tensor<Nxf32>) { %y = @ahead(%x) {K = GIVEN} }
"""


@pytest.mark.parametrize(("given", "terms"), [("3", 3), ("C", 4), ("M + 1", 3), ("C - 5", 0)])
def test_sums_of_as_many_codes_as_a_call_says(given: str, terms: int, tmp_path: Path) -> None:
    """Conditions under which they fit speak of sizes of the call; a number below nothing is nothing, and has no zero points to be taken off."""
    file = tmp_path / "p.calibration.yaml"
    file.write_text("calibration: 1\npipeline: p\nmethod: minmax\nsamples: 1\nedges:\n  x: {min: -1.0, max: 4.1, low: -1.0, high: 4.1}\n")
    x = np.random.default_rng(0).uniform(-1, 4, (9, 4)).astype(np.float32)
    compiled = pipelink_ir.compile(SUMMED.replace("GIVEN", given), target="cpu", pass_options=f'lower-precision{{arch=sm_90,price=false,calibration="{file}"}}', M=2)
    codes = np.rint(x / np.float32(0.02)) * 0.02
    ahead = np.pad(codes, ((0, terms), (0, 0)))
    want = sum((ahead[d:d + 9].sum(1) for d in range(terms)), np.zeros(9))
    np.testing.assert_allclose(compiled(x=x).y, want, atol=1e-3)
    assert any(o.operands[0].type.dtype == "u8" for o in compiled.module.operators if o.name.startswith("ahead"))


def test_a_dump_is_resumed_in_another_folder_without_the_calibration(tmp_path: Path) -> None:
    text = LINEAR.replace("CLAUSE", "dtype = i8") + """pipeline @p(%x: tensor<8x16xf32>, param %w: tensor<16x16xf32>) -> (%y: tensor<8x16xf32>) {
  %y = @linear(%x, %w)
}
"""
    file = tmp_path / "p.calibration.yaml"
    file.write_text("calibration: 1\npipeline: p\nmethod: minmax\nsamples: 1\nedges:\n  x: {min: -3.0, max: 3.0, low: -3.0, high: 3.0}\n")
    dump = print_module(run(text, f'frontend,flatten,lower-precision{{arch=sm_90,price=false,calibration="{file}"}}'))
    file.unlink()
    again = run(dump, f"frontend,flatten,{LOWER}")
    assert print_module(again) == dump
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(8, 16)).astype(np.float32), rng.normal(size=(16, 16)).astype(np.float32)
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "dump.plir"
    moved.write_text(dump)
    sx = np.float32(3 / 127)
    sw = (np.abs(w).max(axis=0) / np.float32(127)).astype(np.float32)
    want = (np.clip(np.round(x / sx), -128, 127) @ np.round(w / sw)) * (np.float64(sx) * sw)
    np.testing.assert_allclose(pipelink_ir.compile(str(moved), target="cpu")(x=x, w=w).y, want, rtol=2e-6, atol=1e-5)


def test_nothing_for_another_architecture_but_that_the_policies_are_gone() -> None:
    text = PLANNED.replace("CLAUSE", "dtype = f16")
    module = run(text, "frontend,lower-precision{arch=sm_80}")
    assert {n.op for n in nodes(module).values()} == {n.op for n in nodes(run(text, "frontend")).values()}
    assert not any(o.downgrades for o in module.operators)
    typed = run(text, "frontend")
    assert run_passes(typed, parse_passes("lower-precision"), Report()) is typed
    without = run(re.sub(r"\n  downgrade .*", "", text), "frontend")
    assert run_passes(without, parse_passes("lower-precision{arch=sm_90}"), Report()) is without


def test_equal_codes_are_made_once() -> None:
    text = LINEAR.replace("CLAUSE", "dtype = i8, ranges = dynamic") + """
pipeline @p(%x: tensor<8x16xf32>, param %w: tensor<16x16xf32>) -> (%y: tensor<8x16xf32>, %z: tensor<8x16xf32>, %u: tensor<8x16xf32>) {
  %y = @linear(%x, %w)
  %x2 = %x
  %z = @linear(%x2, %w)
  %u = @linear(%x, %w) as third
}
"""
    found = nodes(run(text, f"frontend,{LOWER}"))
    assert sorted(n for n in found if not n.startswith(("y", "z", "u"))) == ["w.q", "w.scale", "x.q", "x.scale"]


def test_names_of_the_program_are_not_taken() -> None:
    text = LINEAR.replace("CLAUSE", "dtype = f16") + """
op @linear_f16(%x: tensor<8x16xf32>) -> (%y: tensor<8x16xf32>) { compute { %y[n, m] = %x[n, m] } }
pipeline @p(%x: tensor<8x16xf32>, param %w: tensor<16x16xf32>) -> (%y: tensor<8x16xf32>) {
  %a = @linear_f16(%x)
  %y = @linear(%a, %w)
}
"""
    module = run(text, f"frontend,{LOWER}")
    names = [o.name for o in module.operators]
    assert len(set(names)) == len(names)
    assert print_module(run(print_module(module), f"frontend,{LOWER}")) == print_module(module)


CHAIN = """op @linear(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  downgrade sm_90 { dtype = i8, ranges = dynamic }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
op @relu(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { compute { %y[n, m] = max(%x[n, m], 0) } }
"""


def chain(n: int) -> str:
    lines = [f"  %h{k} = @linear(%a{k}, %w)\n  %a{k + 1} = @relu(%h{k})\n" for k in range(n)]
    return CHAIN + f"pipeline @p(%a0: tensor<64x64xf32>, param %w: tensor<64x64xf32>) -> (%a{n}: tensor<64x64xf32>) {{\n{''.join(lines)}}}\n"


@pytest.mark.parametrize("price", ["false", "true"])
def test_work_grows_with_the_number_of_nodes(price: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators are made and planned once for all nodes that call them, and each node is put out a bounded number of times."""
    counts: dict[str, int] = {}

    def counted(name: str, of: Any) -> Any:
        def call(*args: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return of(*args)
        return call
    import pipelink_ir.passes.lower_precision as lowering
    monkeypatch.setattr(insert, "quantised", counted("quantised", quantised))
    monkeypatch.setattr(survey, "plan", counted("plan", plans.plan))
    monkeypatch.setattr(lowering, "put_in", counted("put in", insert.put_in))
    seen = []
    for n in (100, 200, 400):
        counts.clear()
        run(chain(n), f"frontend,lower-precision{{arch=sm_90,price={price}}}")
        seen.append(dict(counts))
    for few in seen:
        assert few["quantised"] <= 4
        assert few["plan"] <= 4
    assert seen[2]["put in"] <= 2.2 * seen[1]["put in"] <= 2.2 * 2.2 * seen[0]["put in"]


def test_codes_of_values_of_codes_are_these_codes() -> None:
    """What `simplify` relies on when it takes such a pair out."""
    rng = np.random.default_rng(0)
    scales = np.concatenate([np.float32(10.0) ** rng.uniform(-29, 29, 20000).astype(np.float32), np.array([0.1, 0.3, 1 / 3, 1e-30, 1e30], np.float32)])
    codes = np.arange(-255, 256, dtype=np.float32)
    values = (codes[None] * scales[:, None]).astype(np.float32)
    np.testing.assert_array_equal(np.round((values / scales[:, None]).astype(np.float32)), np.broadcast_to(codes, values.shape))
