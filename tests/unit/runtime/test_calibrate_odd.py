"""Calibration with what people really have: files of two pipelines, folders, data without a finite value."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.cli.main import main
from pipelink_ir.ir.diagnostics import ProgramError, UsageError

LINEAR = """op @linear(%x: tensor<...xKxT>, %w: tensor<KxMxT>) -> (%y: tensor<...xMxT>) {
  memory    { dtypes = [f16, f32] }
  downgrade cpu { dtype = i8, ranges = calibrated, force = true }
  compute   { %y[..., j] = sum[k < K](%x[..., k] * %w[k, j]) }
}
"""
ONE = "pipeline @{0}(%x: tensor<Bx8xf32>, param %w: tensor<8x5xf32>) -> (%y: tensor<Bx5xf32>) {{ %y = @linear(%x, %w) }}\n"


def arrays(seed: int, rows: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, 8)).astype(np.float32), "w": rng.standard_normal((8, 5)).astype(np.float32)}


def close(found: Any, given: dict[str, Any]) -> bool:
    """Within half a step of each factor, in every term of the sum."""
    x, w = (given[k].astype(np.float64) for k in "xw")
    sx, sw = np.abs(x).max() / 127, np.abs(w).max(0) / 127
    bound = sx / 2 * np.abs(w).sum(0) + np.abs(x).sum(1)[:, None] * sw / 2 + 8 * sx * sw / 4
    return bool((np.abs(np.asarray(found, np.float64) - x @ w) <= 1.001 * bound).all())


def test_a_file_of_two_pipelines_is_calibrated_for_one_of_them(tmp_path: Path) -> None:
    program = tmp_path / "two.plir"
    program.write_text(LINEAR + ONE.format("p") + ONE.format("q"))
    given = arrays(1)
    found = pl.calibrate(program, [given], pipeline="p", targets="cpu", on="cpu")
    assert found.ok
    assert "y" in found.calibration.errors["cpu"]
    assert close(pl.compile(program, target="cpu", pipeline="p")(**given).y, given)
    with pytest.raises(ProgramError, match="which is of '@p', has no range of '%x'"):
        pl.compile(program, target="cpu", pipeline="q")


def test_printing_one_of_two_pipelines_asks_for_its_ranges_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "two.plir"
    program.write_text(LINEAR + ONE.format("p") + ONE.format("q"))
    pl.calibrate(program, [arrays(1)], pipeline="p", on="cpu")
    assert main([str(program), "--target", "cpu", "--pipeline", "p"]) == 0
    capsys.readouterr()
    assert main([str(program), "--target", "cpu", "--pipeline", "q"]) == 1
    assert main([str(program), "--target", "cpu", "--pipeline", "r"]) == 2
    assert "no pipeline '@r'" in capsys.readouterr().err


def test_what_is_said_of_an_edge_without_a_finite_value(tmp_path: Path) -> None:
    """The file that is named is the one that was written."""
    program, output = tmp_path / "one.plir", tmp_path / "ranges.yaml"
    program.write_text(LINEAR + ONE.format("p"))
    given = arrays(1)
    found = pl.calibrate(program, [{**given, "x": np.full_like(given["x"], np.nan)}], targets="cpu", on="cpu", output=output)
    assert not found.ok
    assert [d.message for d in found.diagnostics if f"{output} has no range of '%x'" in d.message]


@pytest.mark.parametrize("what", [".", ".."])
def test_a_folder_is_no_program(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", what, "--random", "1", "--on", "cpu"]) == 2
    assert "this is a folder" in capsys.readouterr().err


def test_data_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "one.plir"
    program.write_text(LINEAR + ONE.format("p"))
    assert main(["calibrate", str(program), "--data", str(tmp_path / "nowhere"), "--on", "cpu"]) == 2
    assert "there is no such file or folder" in capsys.readouterr().err


def test_the_reference_has_no_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "one.plir"
    program.write_text(LINEAR + ONE.format("p"))
    assert main(["calibrate", str(program), "--random", "1", "--size", "B=2", "--on", "cpu", "--target", "reference"]) == 2
    assert "nothing is lowered for 'reference'" in capsys.readouterr().err


@pytest.mark.parametrize("data", [None, "samples", 3])
def test_data_of_another_kind(data: Any) -> None:
    with pytest.raises(UsageError, match="data is a list of samples"):
        pl.calibrate(LINEAR + ONE.format("p"), data, on="cpu")


@pytest.mark.parametrize(("data", "params", "said"), [([{1: 2}], {}, "names of inputs, not by 1"), ([{}], {None: 2}, "names of inputs, not by None"),
                                                      ([{}], [1], "params is a table of arrays by input, not list")])
def test_arrays_that_have_no_names(data: Any, params: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pl.calibrate(LINEAR + ONE.format("p"), data, params=params, on="cpu")


@pytest.mark.parametrize("values", [2, 3, 1000, 9999, 40_000])
@pytest.mark.parametrize("largest", [1e4, -1e4])
def test_a_percentile_keeps_as_many_values_as_it_says(values: int, largest: float) -> None:
    """As many are cut off above as below, and of few values none, so that 99.99 percent are left; ends are exact to 0.4 percent."""
    x = np.random.default_rng(values).standard_normal(values).astype(np.float32)
    x[values // 2] = largest
    text = "op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 2 * %x[n] } }\n" \
           "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @twice(%x) }\n"
    edge = pl.calibrate(text, [{"x": x}], method="percentile", on="cpu", output="off").calibration.edges["x"]
    ordered, cut = np.sort(x.astype(np.float64)), int(0.00005 * (values - 1))
    np.testing.assert_allclose([edge.low, edge.high], [ordered[cut], ordered[-1 - cut]], rtol=4e-3)
    assert ((x < edge.low * (1.0 + 4e-3 * (1 if edge.low < 0 else -1))) | (x > edge.high * (1.0 + 4e-3 * (1 if edge.high > 0 else -1)))).sum() <= 1e-4 * values


class Breaking:
    """Samples that are interrupted at one of them, in one of the rounds in which they are gone through."""

    def __init__(self, round: int, at: int) -> None:
        self.round, self.at, self.rounds = round, at, 0

    def __iter__(self) -> Any:
        self.rounds += 1
        for k in range(4):
            if (self.rounds, k) == (self.round, self.at):
                raise KeyboardInterrupt
            yield {"x": arrays(k)["x"]}


@pytest.mark.parametrize(("round", "at"), [(1, 0), (1, 2), (2, 0), (2, 3)])
def test_an_interruption_leaves_the_old_file_whole(tmp_path: Path, round: int, at: int) -> None:
    """While ranges are measured, and while errors are."""
    path = tmp_path / "net.plir"
    path.write_text(LINEAR + ONE.format("p"))
    w = arrays(0)["w"]
    pl.calibrate(path, [{"x": arrays(9)["x"]}], params={"w": w}, on="cpu")
    file = tmp_path / "net.calibration.yaml"
    old = file.read_bytes()
    data = Breaking(round, at)
    with pytest.raises(KeyboardInterrupt):
        pl.calibrate(path, data, params={"w": w}, on="cpu", targets="cpu")
    assert data.rounds == round
    assert file.read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.calibration.yaml", "net.plir"]


def test_several_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    """Whoever is last has written it, from its own data alone."""
    from concurrent.futures import ThreadPoolExecutor
    path = tmp_path / "net.plir"
    path.write_text(LINEAR + ONE.format("p"))
    w = arrays(0)["w"]

    def run(k: int) -> tuple[float, float]:
        found = pl.calibrate(path, [{"x": arrays(k)["x"]}], params={"w": w}, on="cpu").calibration
        return found.edges["x"].min, found.edges["x"].max
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(run, range(1, 9)))
    from pipelink_ir.passes.precision.calibration_file import read_calibration
    kept = read_calibration(str(tmp_path / "net.calibration.yaml")).edges["x"]
    assert any((kept.min, kept.max) == pytest.approx(one, rel=1e-7) for one in made)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.calibration.yaml", "net.plir"]


@pytest.mark.parametrize("x", [np.array(["a", "b"]), np.zeros((4, 8), np.complex64), np.zeros((4, 8), [("a", np.float32)])])
def test_arrays_of_elements_that_there_are_not(tmp_path: Path, x: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.plir").write_text(LINEAR + ONE.format("p"))
    np.savez(tmp_path / "x.npz", **{**arrays(1), "x": x})
    assert main(["calibrate", str(tmp_path / "p.plir"), "--data", str(tmp_path / "x.npz"), "--on", "cpu"]) == 1
    assert "'%x' is tensor<Bx8xf32>, but the array is" in capsys.readouterr().err
