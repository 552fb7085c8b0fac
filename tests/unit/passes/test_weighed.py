"""Sums of what policies cost stand once in the ledger: for the whole pipeline, and for each region; nodes name their region."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.passes.ledger import Entry, ledger
from pipelink_ir.passes.manager import parse_passes, run_passes

HEAD = """op @linear(%x: tensor<NxKxT>, %w: tensor<KxMxT>) -> (%y: tensor<NxMxT>) {
  memory { dtypes = [f16, f32] } downgrade sm_80 { dtype = f16 MORE } compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
op @sums(%x: tensor<NxMxT>) -> (%y: tensor<NxT>) {
  memory { dtypes = [f16, f32] } downgrade sm_80 { dtype = f16 } compute { %y[n] = sum[m < M](%x[n, m]) }
}
"""


def lowered(text: str) -> Module:
    passes = "resolve,infer-types,check-contracts,push-policies{arch=sm_80},flatten,lower-precision{arch=sm_80}"
    return run_passes(parse(text, "t.plir"), parse_passes(passes), Report())


def two_layers(m: int, k: int, more: str = "") -> str:
    """Products of f32, which the tensor cores of an A100 have not, and of f16, which they have: it pays where they are large."""
    return HEAD.replace("MORE", more) + (f"pipeline @net(%x: tensor<{m}x{k}xf32>, param %w: tensor<{k}x{k}xf32>, param %v: tensor<{k}x{k}xf32>) "
                                         f"-> (%y: tensor<{m}x{k}xf32>) {{ %h = @linear(%x, %w)  %y = @linear(%h, %v) }}\n")


def entries(module: Module, kind: str) -> list[Entry]:
    return [e for e in ledger(module) if e.kind == kind]


def test_a_region_is_said_once_and_named_by_its_nodes() -> None:
    module = lowered(two_layers(4096, 1024))
    whole, region = entries(module, "priced")
    assert whole.what == "all of '@net' on sm_80"
    assert whole.reason == "region 1; 2 of 2 with a policy are lowered"
    assert region.what == "region 1, lowered ('%h', '%y')"
    assert re.fullmatch(r"[0-9.]+ [mu]s instead of [0-9.]+ [mu]s, [0-9.]+ MB instead of [0-9.]+ MB, of which .*", region.reason)
    assert [e.reason.rpartition(": ")[2] for e in entries(module, "lowered")] == ["region 1", "region 1"]
    assert sum(e.text().count("instead of") for e in ledger(module)) == region.reason.count("instead of")


def test_errors_stand_with_the_nodes() -> None:
    """Rounding to halves is off by u / sqrt(3), u = 2^-11, evenly distributed: the first product has it of two factors and of its result, the second that of
    the first, of a factor and of its result."""
    said = [e.reason for e in entries(lowered(two_layers(4096, 1024)), "lowered")]
    found = [float(m[1]) for text in said if (m := re.search(r", estimated to be off by (\S+) of its largest value: region 1$", text))]
    assert found == pytest.approx([2**-11, 2**-11 * (1 + 2 / 3) ** 0.5], rel=0.1)


def test_measured_errors_win() -> None:
    from pipelink_ir.passes.precision.calibration_file import read_calibration
    from pipelink_ir.runtime.compile import compile
    path = Path(__file__).resolve().parents[3] / "examples" / "precision" / "denoiser.plir"
    kept = [e.reason for e in compile(path, target="sm_87").ledger if e.kind == "lowered"]
    measured = {f"{x:.2g}" for x in read_calibration(str(path.with_suffix(".calibration.yaml"))).errors["sm_87"].values()}
    assert kept
    assert all((m := re.search(r"measured to be off by (\S+) of", text)) and m[1] in measured for text in kept)


def test_summaries_come_first_and_survive_printing() -> None:
    module = lowered(two_layers(4096, 1024))
    found = ledger(module)
    assert [e.kind for e in found[:2]] == ["priced", "priced"]
    again = run_passes(parse(print_module(module), "t.plir"), parse_passes("resolve,infer-types,flatten"), Report())
    assert [str(e) for e in ledger(again)] == [str(e) for e in found]


def test_what_is_declined_together_says_so_once() -> None:
    module = lowered(two_layers(64, 64))
    whole, region = entries(module, "priced")
    assert re.fullmatch(r"[0-9.]+ us, [0-9.]+ KB; nothing is lowered of 2 with a policy", whole.reason)
    assert region.what.startswith("region 1, declined, since what changes has to take 8 % less time")
    assert "('%h', '%y')" in region.what
    assert [e.reason for e in entries(module, "declined")] == ["f16 does not pay: region 1", "f16 does not pay: region 1"]


def test_one_node_has_its_sums_itself() -> None:
    text = two_layers(64, 64).replace("%h = @linear(%x, %w)  %y = @linear(%h, %v)", "%y = @linear(%x, %w)")
    module = lowered(text)
    (whole,) = entries(module, "priced")
    assert "nothing is lowered of 1 with a policy" in whole.reason
    (node,) = entries(module, "declined")
    assert re.match(r"f16 does not pay: [0-9.]+ us instead of .*\(what changes has to take 8 % less time\)$", node.reason)


def test_forced_nodes_say_why_they_are_kept() -> None:
    module = lowered(two_layers(64, 64, ", force = true"))
    assert [e.reason.rpartition(": ")[2] for e in entries(module, "lowered")] == ["region 1 (force = true)"] * 2
    whole, region = entries(module, "priced")
    assert whole.reason.endswith("2 of 2 with a policy are lowered")
    assert region.what == "region 1, lowered ('%h', '%y')"


def test_sizes_that_the_call_decides_are_said() -> None:
    module = lowered(two_layers(77, 1024).replace("77x", "Bx"))
    assert entries(module, "priced")[0].what == "all of '@net' on sm_80 (sizes that the call decides taken for 16384)"


def test_calibrate_says_the_sums_of_a_region(tmp_path: Path) -> None:
    """Its table has a line for each edge; what is below says why, in full."""
    from pipelink_ir.runtime.calibration.lowering import declined
    from pipelink_ir.runtime.calibration.tapped import Flat
    done = lowered(two_layers(64, 64))
    flat = object.__new__(Flat)
    object.__setattr__(flat, "module", done)
    object.__setattr__(flat, "name", "net")
    found = declined(flat, {"h": "h", "y": "y"})
    assert found["h"] == found["y"]
    assert re.match(r"f16 does not pay: [0-9.]+ us instead of", found["h"])


@pytest.mark.parametrize("count", [12])
def test_many_nodes_are_counted(count: int) -> None:
    k = 64
    nodes = "".join(f"  %{b} = @linear(%{a}, %w)\n" for a, b in zip(["x", *(f"e{n}" for n in range(count - 1))], [*(f"e{n}" for n in range(count - 1)), "y"], strict=True))
    text = HEAD.replace("MORE", ", force = true") + (f"pipeline @net(%x: tensor<{k}x{k}xf32>, param %w: tensor<{k}x{k}xf32>) -> (%y: tensor<{k}x{k}xf32>) {{\n{nodes}}}\n")
    module = lowered(text)
    assert "6 more)" in entries(module, "priced")[1].what
    assert all(n.reason is not None for p in module.pipelines for n in p.nodes if isinstance(n, Node))
