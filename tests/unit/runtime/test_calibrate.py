"""`calibrate` and `compare` from Python: ranges beside NumPy's, streaming, targets, what is wrong with data, and the file that `compile` finds."""
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ExecutionError, ProgramError, UsageError
from pipelink_ir.passes.precision.calibration_file import read_calibration
from pipelink_ir.runtime.calibration import tapped
from pipelink_ir.runtime.calibration.differences import Difference

NET = """
op @linear(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  memory { dtypes = [f32, f16] }
  downgrade sm_75 { dtype = f16, budget = 1e-2, force = true }
  downgrade sm_87 { dtype = i8, budget = 5e-2, force = true }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
op @relu(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  compute { %y[n, k] = max(%x[n, k], 0.0) }
}
op @block(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  graph { %h = @linear(%x, %w) as up
          %y = @relu(%h) }
}
pipeline @net(%x: tensor<Nx24xf32>, param %w: tensor<24x32xf32>, param %v: tensor<32x8xf32>) -> (%y: tensor<Nx8xf32>) {
  %a = @block(%x, %w) as first
  %y = @linear(%a, %v) as last
}
"""
RNG = np.random.default_rng(3)
PARAMS = {"w": RNG.standard_normal((24, 32)).astype(np.float32) / 5, "v": RNG.standard_normal((32, 8)).astype(np.float32) / 5}
DATA = [{"x": RNG.standard_normal((n, 24)).astype(np.float32)} for n in (5, 17, 1)]


def edges(x: Any) -> dict[str, Any]:
    """The values of all edges, by NumPy in float64."""
    w, v = PARAMS["w"].astype(np.float64), PARAMS["v"].astype(np.float64)
    h = x.astype(np.float64) @ w
    a = np.maximum(h, 0)
    return {"x": x, "a.h": h, "a": a, "y": a @ v}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.plir"
    path.write_text(NET)
    return path


@pytest.mark.parametrize("on", ["cpu", "reference"])
def test_ranges_are_those_of_all_samples(net: Path, on: str) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on=on)
    assert list(found.calibration.edges) == ["x", "w", "v", "a.h", "a", "y"]
    values = [edges(s["x"]) for s in DATA]
    for name in ("x", "a.h", "a", "y"):
        whole, e = np.concatenate([v[name] for v in values]).astype(np.float64), found.calibration.edges[name]
        assert (e.min, e.max, e.rms) == pytest.approx((whole.min(), whole.max(), np.sqrt((whole ** 2).mean())), rel=1e-5, abs=1e-6)
        assert (e.low, e.high, e.clipped) == (e.min, e.max, 0.0)
    assert found.path == str(net.with_name("net.calibration.yaml"))
    assert found.calibration.samples == 3
    assert read_calibration(found.path).edges.keys() == found.calibration.edges.keys()


def test_percentile_beside_numpy_on_every_edge(net: Path) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on="cpu", method="percentile", percentile=90)
    for name in ("x", "a.h", "y"):
        whole, e = np.concatenate([edges(s["x"])[name].reshape(-1) for s in DATA]), found.calibration.edges[name]
        near = [np.percentile(whole, q, method=m) for q in (5, 95) for m in ("lower", "higher")]
        assert any(e.low == pytest.approx(n, rel=5e-3) for n in near[:2])
        assert any(e.high == pytest.approx(n, rel=5e-3) for n in near[2:])
        assert e.clipped == pytest.approx(np.mean((whole < e.low * 1.005) | (whole > e.high * 1.005)), abs=0.03)


def test_small_parts_give_the_same_ranges(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pl.calibrate(net, DATA, params=PARAMS, on="cpu", method="mse", output="off").calibration
    made: list[list[str]] = []
    compiled = tapped.Tap._compiled

    def told(self: tapped.Tap, part: Any) -> Any:
        made.append(list(part))
        return compiled(self, part)
    monkeypatch.setattr(tapped.Tap, "_compiled", told)
    monkeypatch.setattr(tapped, "LIMIT", 300)
    parts = pl.calibrate(net, DATA, params=PARAMS, on="cpu", method="mse", output="off").calibration
    assert made == [["a.h"], ["a"], ["y"]]
    assert parts.edges == whole.edges


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
def test_data_is_gone_through_and_not_kept(net: Path, method: str) -> None:
    class Disk:
        """Makes samples anew, and counts how often."""

        passes = 0

        def __iter__(self) -> Iterator[dict[str, Any]]:
            self.passes += 1
            return iter(DATA)
    disk = Disk()
    found = pl.calibrate(net, disk, params=PARAMS, on="cpu", method=method, targets="sm_75", output="off")
    assert disk.passes == (3 if method == "entropy" else 2)
    assert found.calibration.samples == 3
    assert found.path is None
    assert not net.with_name("net.calibration.yaml").exists()


def test_errors_are_the_largest_difference_over_the_largest_value(net: Path) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on="cpu", targets=["sm_75"])
    w, v = (PARAMS[n].astype(np.float16).astype(np.float64) for n in ("w", "v"))
    worst, largest = 0.0, 0.0
    for s in DATA:
        h = (s["x"].astype(np.float16).astype(np.float64) @ w).astype(np.float16)
        y = np.maximum(h, 0).astype(np.float64) @ v
        exact = edges(s["x"])["y"]
        worst, largest = max(worst, np.abs(y.astype(np.float16) - exact).max()), max(largest, np.abs(exact).max())
    assert found.calibration.errors["sm_75"]["y"] == pytest.approx(worst / largest, rel=0.05)
    by = {c.edge: c for c in found.checked}
    assert set(by) == {"a.h", "y"}
    assert by["y"].error == found.calibration.errors["sm_75"]["y"] <= 1e-2 == by["y"].budget
    assert found.ok
    assert found.diagnostics == ()


def test_codes_are_as_far_away_as_steps_of_codes_are(net: Path) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on="cpu", targets=("sm_75", "sm_87"))
    if any(c.declined for c in found.checked):
        pytest.skip("not lowered")
    x, w = max(np.abs(s["x"]).max() for s in DATA) / 127, np.abs(PARAMS["w"]).max(0) / 127
    # Half a step of either factor, over 24 products.
    most = 24 * (x / 2 * np.abs(PARAMS["w"]).max() + w.max() / 2 * 127 * x)
    largest = max(np.abs(edges(s["x"])["a.h"]).max() for s in DATA)
    error = found.calibration.errors["sm_87"]["a.h"]
    assert found.calibration.errors["sm_75"]["a.h"] < error < most / largest


def test_a_breach_is_an_error_at_its_clause(net: Path) -> None:
    net.write_text(NET.replace("budget = 1e-2", "budget = 6e-4"))
    # Every factor loses nearly half a step of f16, 4.8e-4, to the same side.
    data = [{"x": np.full((3, 24), 1.00048, np.float32)}]
    found = pl.calibrate(net, data, params={"w": np.full((24, 32), 1.00048, np.float32), "v": np.full((32, 8), 1.00048, np.float32)}, on="cpu", targets="sm_75")
    assert not found.ok
    only = found.diagnostics[0]
    assert (only.code, only.severity) == ("PL4302", "error")
    assert "'%a.h' of 'first.up' is measured to be off by 0.00096" in only.message
    assert "sm_75" in only.message
    assert NET.splitlines()[only.span.line - 1].strip().startswith("downgrade sm_75")
    assert "budget" in (only.help or "")
    assert net.with_name("net.calibration.yaml").exists()


# ---------------------------------------------------------------------------------------------------------------- hostile data


def sample(x: Any) -> list[dict[str, Any]]:
    return [{"x": np.asarray(x)}]


def test_no_data(net: Path) -> None:
    with pytest.raises(UsageError, match="no sample"):
        pl.calibrate(net, [], params=PARAMS, on="cpu")
    with pytest.raises(UsageError, match="more than once"):
        pl.calibrate(net, (s for s in DATA), params=PARAMS, on="cpu")
    with pytest.raises(UsageError, match="list of samples"):
        pl.calibrate(net, DATA[0], params=PARAMS, on="cpu")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="table of arrays"):
        pl.calibrate(net, [3], params=PARAMS, on="cpu")  # type: ignore[list-item]


@pytest.mark.parametrize(("data", "says"), [
    ([{}], "the input '%x' is missing"), ([{"x": np.zeros((2, 24))}], "f64"), ([{"x": np.zeros((2, 23), np.float32)}], "23"),
    ([DATA[0], {"x": np.zeros(24, np.float32)}], "sample 1"), ([{"x": np.zeros((2, 24), np.float32), "z": 1}], "z")])
def test_data_that_does_not_fit(net: Path, data: Any, says: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        pl.calibrate(net, data, params=PARAMS, on="cpu")
    assert says in str(caught.value)
    assert not net.with_name("net.calibration.yaml").exists()


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
def test_zeros_constants_huge_values(net: Path, method: str) -> None:
    for x in (np.zeros((4, 24)), np.full((1, 24), -2.5), np.full((2, 24), 1e38), np.full((2, 24), 1e-44)):
        found = pl.calibrate(net, sample(x.astype(np.float32)), params=PARAMS, on="cpu", method=method, targets="sm_87", output="off")
        e = found.calibration.edges["x"]
        assert e.min == e.max == float(np.float32(x[0, 0]))
        assert e.min <= e.low <= e.high <= e.max


def test_values_that_a_dtype_does_not_have(net: Path) -> None:
    found = pl.calibrate(net, sample(np.full((2, 24), 1e5, np.float32)), params=PARAMS, on="cpu", targets=["sm_75", "sm_87"])
    assert not found.ok
    assert "sm_75" not in found.calibration.errors
    assert "sm_87" in found.calibration.errors
    assert {d.code for d in found.diagnostics} == {"PL3701"}
    assert net.with_name("net.calibration.yaml").exists()


def test_nan_and_infinities_are_told(net: Path) -> None:
    x = np.ones((3, 24), np.float32)
    x[0, 0], x[1, 1] = np.nan, np.inf
    found = pl.calibrate(net, sample(x), params=PARAMS, on="cpu", output="off")
    e = found.calibration.edges["x"]
    assert (e.nan, e.inf, e.min, e.max) == (1, 1, 1.0, 1.0)
    assert any("'%x' had 1 NaN and 1 infinite of 72 values" in w for w in found.warnings)


def test_nothing_but_nan(net: Path) -> None:
    nan = {n: np.full_like(p, np.nan) for n, p in PARAMS.items()}
    with pytest.raises(UsageError, match="no edge of '@net' had a finite value"):
        pl.calibrate(net, sample(np.full((2, 24), np.nan, np.float32)), params=nan, on="cpu")
    found = pl.calibrate(net, sample(np.full((2, 24), np.nan, np.float32)), params=PARAMS, on="cpu")
    assert "x" not in found.calibration.edges
    assert "w" in found.calibration.edges


def test_empty_arrays(net: Path) -> None:
    found = pl.calibrate(net, [*sample(np.zeros((0, 24), np.float32)), DATA[0]], params=PARAMS, on="cpu", output="off")
    assert found.calibration.edges["x"].max == DATA[0]["x"].max()


def test_what_is_not_overwritten(net: Path) -> None:
    target = net.with_name("net.calibration.yaml")
    target.write_text("something: else\n")
    with pytest.raises(UsageError, match="no calibration file"):
        pl.calibrate(net, DATA, params=PARAMS, on="cpu")
    assert target.read_text() == "something: else\n"
    target.write_text("calibration: 1\npipeline: other\nmethod: minmax\nedges: {}\n")
    with pytest.raises(UsageError, match="holds the ranges of '@other'"):
        pl.calibrate(net, DATA, params=PARAMS, on="cpu")
    with pytest.raises(ProgramError, match="no such folder"):
        pl.calibrate(net, DATA, params=PARAMS, on="cpu", output=net.parent / "none" / "x.yaml")
    if os.getuid():
        target.unlink()
        net.parent.chmod(0o500)
        with pytest.raises(ProgramError, match="permission denied"):
            pl.calibrate(net, DATA, params=PARAMS, on="cpu")
        net.parent.chmod(0o700)


def test_names_that_are_none(net: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'minmax'"):
        pl.calibrate(net, DATA, params=PARAMS, on="cpu", method="minmx")
    with pytest.raises(UsageError, match="turing"):
        pl.calibrate(net, DATA, params=PARAMS, on="cpu", targets="turing")


def test_a_text_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert pl.calibrate(NET, DATA, params=PARAMS, on="cpu").path is None
    assert list(tmp_path.iterdir()) == []
    assert pl.calibrate(NET, DATA, params=PARAMS, on="cpu", output="r.yaml").path == "r.yaml"
    assert (tmp_path / "r.yaml").exists()


# ------------------------------------------------------------------------------------------------------------- compile finds it


def passes(net: Path, **more: Any) -> str:
    return pl.compile(net, target="cpu", **more).passes


def test_compile_finds_the_file(net: Path, tmp_path: Path) -> None:
    assert "calibration" not in passes(net)
    path = pl.calibrate(net, DATA, params=PARAMS, on="cpu").path
    assert f"calibration={path}" in passes(net).replace('"', "")
    assert "calibration" not in passes(net, calibration="off")
    other = tmp_path / "other.yaml"
    pl.calibrate(net, DATA[:1], params=PARAMS, on="cpu", output=other)
    assert f"calibration={other}" in passes(net, calibration=other).replace('"', "")
    with pytest.raises(UsageError, match="there is no file"):
        passes(net, calibration=tmp_path / "none.yaml")


# ----------------------------------------------------------------------------------------------------------------------- compare


def test_measures_beside_numpy() -> None:
    a, b = RNG.standard_normal((2, 50)), RNG.standard_normal((2, 50))
    d = Difference()
    for x, y in zip(a, b, strict=True):
        d.add(x, y)
    apart = b - a
    assert d.worst == np.abs(apart).max()
    assert d.error == pytest.approx(np.abs(apart).max() / np.abs(a).max(), rel=1e-12)
    assert d.rms == pytest.approx(np.sqrt(np.mean(apart ** 2)), rel=1e-12)
    assert d.psnr == pytest.approx(10 * np.log10((a.max() - a.min()) ** 2 / np.mean(apart ** 2)), rel=1e-12)
    assert d.cosine == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-12)


def test_measures_of_odd_values() -> None:
    inf, nan = np.inf, np.nan
    d = Difference()
    d.add(np.array([nan, inf, -inf, 1.0]), np.array([nan, inf, -inf, 1.0]))
    assert (d.error, d.lost, d.psnr, d.cosine) == (0.0, 0, inf, 1.0)
    for x, y in (([nan], [1.0]), ([1.0], [inf]), ([inf], [-inf])):
        d = Difference()
        d.add(np.array(x), np.array(y))
        assert (d.error, d.lost) == (inf, 1)
    d = Difference()
    d.add(np.zeros(3), np.array([0.0, 0.0, 1e-9]))
    assert d.error == inf
    d = Difference()
    d.add(np.zeros(3), np.zeros(4))
    assert d.error == inf


def test_compare_names_where_precision_is_lost(net: Path) -> None:
    found = pl.compare(net, "reference", "target=sm_75,on=cpu", DATA, params=PARAMS, threshold=1e-5)
    assert [e.edge for e in found.edges] == ["a.h", "a", "y"]
    assert found.first == "a.h"
    h = np.concatenate([edges(s["x"])["a.h"] for s in DATA])
    low = np.concatenate([s["x"].astype(np.float16).astype(np.float64) for s in DATA]) @ PARAMS["w"].astype(np.float16).astype(np.float64)
    assert found["a.h"].worst == pytest.approx(np.abs(low.astype(np.float16) - h).max(), rel=0.1)
    assert found["%y"].error < 2e-3
    with pytest.raises(KeyError):
        found["z"]


def test_compare_one_with_itself(net: Path) -> None:
    found = pl.compare(net, "cpu", "cpu", DATA, params=PARAMS, threshold=0.0)
    assert (found.first, found.jump) == (None, None)
    assert all(e.apart.worst == 0.0 and e.apart.psnr == np.inf and e.apart.cosine == 1.0 for e in found.edges)


def test_compare_without_lowering(net: Path) -> None:
    found = pl.compare(net, "sm_75,on=cpu,lower=off", "cpu", DATA, params=PARAMS)
    assert all(e.apart.worst == 0.0 for e in found.edges)


def test_compare_two_programs(net: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.plir"
    other.write_text(NET.replace("max(%x[n, k], 0.0)", "max(%x[n, k], 0.0) + 0.5"))
    found = pl.compare(net, "cpu", f"target=cpu,file={other}", DATA, params=PARAMS)
    assert found["a.h"].worst == 0.0
    assert found["a"].worst == pytest.approx(0.5, rel=1e-5)
    assert (found.first, found.jump) == ("a", found.jump)


@pytest.mark.parametrize("text", ["", "target=", "target=cpu,target=cpu", "lower=off", "target=cpu,lower=maybe", "target=cpu,fil=x", "on=sm_75,target=cpu",
                                  "target=gpu"])
def test_ways_that_are_none(net: Path, text: str) -> None:
    with pytest.raises(UsageError):
        pl.compare(net, "cpu", text, DATA, params=PARAMS)


def test_a_program_without_floats(tmp_path: Path) -> None:
    path = tmp_path / "bytes.plir"
    path.write_text("op @f(%x: tensor<Nxu8>) -> (%y: tensor<Nxu8>) { compute { %y[n] = %x[n] } }\n"
                    "pipeline @p(%x: tensor<Nxu8>) -> (%y: tensor<Nxu8>) { %y = @f(%x) }\n")
    with pytest.raises(UsageError, match="no edge of a float dtype"):
        pl.calibrate(path, [{"x": np.zeros(3, np.uint8)}], on="cpu")
    with pytest.raises(UsageError, match="nothing to compare"):
        pl.compare(path, "cpu", "reference", [{"x": np.zeros(3, np.uint8)}])


def test_measured_errors_refuse_a_plan_when_it_is_compiled(net: Path) -> None:
    found = pl.calibrate(net, DATA, params=PARAMS, on="cpu", targets="cpu")
    assert found.path is not None
    assert found.calibration.errors["cpu"] == {"y": 0.0}
    net.write_text(NET.replace("downgrade sm_75", "downgrade cpu"))
    found = pl.calibrate(net, DATA, params=PARAMS, on="cpu", targets="cpu")
    y = found.calibration.errors["cpu"]["y"]
    assert y > 0.0
    pl.compile(net, target="cpu")
    # The file says more than the budget of 1e-2: such a plan was measured, and is refused.
    path = Path(str(found.path))
    path.write_text(re.sub(r"(\n    y: ).*", r"\g<1>0.5", path.read_text()))
    with pytest.raises(ProgramError) as caught:
        pl.compile(net, target="cpu")
    assert {d.code for d in caught.value.diagnostics} == {"PL4302"}
    pl.compile(net, target="cpu", calibration="off")
    # Of other clauses it says nothing.
    net.write_text(net.read_text().replace(", force = true", "", 1))
    pl.compile(net, target="cpu")


def test_arrays_of_any_kind(net: Path) -> None:
    plain = pl.calibrate(net, DATA[:1], params=PARAMS, on="cpu", output="off").calibration
    x = DATA[0]["x"]
    wide = np.zeros((5, 48), np.float32)
    wide[:, ::2] = x
    for given in (pl.as_view(x), x.copy(order="F"), wide[:, ::2]):
        assert pl.calibrate(net, [{"x": given}], params=PARAMS, on="cpu", output="off").calibration.edges == plain.edges
    torch = pytest.importorskip("torch")
    assert pl.calibrate(net, [{"x": torch.from_numpy(x)}], params=PARAMS, on="cpu", output="off").calibration.edges == plain.edges


def test_an_architecture_without_a_gpu_and_a_compiler(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.backends.cuda.emulate import toolchain
    from pipelink_ir.runtime.calibration import comparing

    def none(target: Any) -> Any:
        raise UsageError("there is no GPU")
    monkeypatch.setattr(comparing, "on_gpu", none)
    monkeypatch.setattr(toolchain, "available", lambda: False)
    found = pl.compare(net, "sm_75,on=cpu", "sm_75", DATA, params=PARAMS)
    assert found.b == "sm_75, on=cpu"
    assert all(e.apart.worst == 0.0 for e in found.edges)


def test_aliases_attributes_and_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "p.plir"
    path.write_text("""
op @split(%x: tensor<NxKxf32>, by: f32 = 2.0) -> (%y: tensor<NxKxf32>, %i: tensor<Nxi32>) {
  compute { %y[n, k] = %x[n, k] * by
            %i[n] = argmax[k < K](%x[n, k]) }
}
op @join(%a: tensor<PxNxKxf32>, %i: tensor<Nxi32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = sum[p < P](%a[p, n, k]) + f32(%i[n]) } }
pipeline @p(%x: tensor<Nx4xf32>, g: f32 = 3.0) -> (%s: tensor<Nx4xf32>) {
  %y, %i = @split(%x) {by = g}
  %b = %y
  %s = @join([%x, %b], %i)
}
pipeline @other(%x: tensor<Nx4xf32>) -> (%s: tensor<Nx4xf32>, %i: tensor<Nxi32>) { %s, %i = @split(%x) }
""")
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    with pytest.raises(UsageError, match="several pipelines"):
        pl.calibrate(path, [{"x": x}], on="cpu")
    found = pl.calibrate(path, [{"x": x}], on="cpu", pipeline="p", g=-2.0).calibration
    whole = {"x": x, "y": -2 * x, "b": -2 * x, "s": x - 2 * x + x.argmax(1)[:, None]}
    assert {n: (e.min, e.max) for n, e in found.edges.items()} == {n: (v.min(), v.max()) for n, v in whole.items()}
    pl.compile(path, target="cpu", pipeline="other")
    with pytest.raises(UsageError, match="holds the ranges of '@p'"):
        pl.calibrate(path, [{"x": x}], on="cpu", pipeline="other")
