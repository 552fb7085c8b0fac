"""`pipelinkc calibrate` and `pipelinkc compare`: data from files, what is printed and written, exit statuses, and flags that do not fit."""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelink_ir.passes.precision.calibration_file import parse_calibration, read_calibration
from tests.unit.cli.command import ROOT, Done

NET = """
op @linear(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) {
  memory { dtypes = [f32, f16] }
  downgrade sm_75 { dtype = f16, budget = 1e-2, force = true }
  compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }
}
pipeline @net(%x: tensor<Nx6xf32>, param %w: tensor<6x4xf32>, param %v: tensor<4x3xf32>) -> (%y: tensor<Nx3xf32>) {
  %h = @linear(%x, %w) as up
  %y = @linear(%h, %v) as down
}
"""
GRAY = """
op @half(%x: tensor<NxHxWx1xf32, NHWC>) -> (%y: tensor<NxHxWx1xf32, NHWC>) { compute { %y[n, h, w, c] = 0.5 * %x[n, h, w, c] } }
pipeline @p(%img: tensor<NxHxWx1xf32, NHWC>) -> (%y: tensor<NxHxWx1xf32, NHWC>) { %y = @half(%img) }
"""
Command = Callable[..., Done]
RNG = np.random.default_rng(5)
W, V = (RNG.standard_normal(s).astype(np.float32) for s in ((6, 4), (4, 3)))
X = [RNG.standard_normal((n, 6)).astype(np.float32) for n in (3, 5)]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "net.plir").write_text(NET)
    np.savez(tmp_path / "weights.npz", w=W, v=V)
    (tmp_path / "data").mkdir()
    for k, x in enumerate(X):
        np.savez(tmp_path / "data" / f"s{k}.npz", x=x, label=np.zeros(2))
    return tmp_path / "net.plir"


def test_help_says_what_there_is(pipelinkc: Command) -> None:
    for name in ("calibrate", "compare"):
        done = pipelinkc(name, "--help")
        assert done.status == 0
        assert "--data" in done.out
    assert "calibrate" in pipelinkc("--help").out


@pytest.mark.parametrize("data", [["data/s0.npz", "data/s1.npz"], ["data"]])
def test_ranges_of_files(pipelinkc: Command, net: Path, data: list[str]) -> None:
    done = pipelinkc("calibrate", "net.plir", "--data", *data, "--inputs", "weights.npz", "--on", "cpu", "--format", "json")
    assert done.status == 0
    said, h = json.loads(done.out), np.concatenate(X).astype(np.float64) @ W
    assert (said["edges"]["h"]["min"], said["edges"]["h"]["max"]) == pytest.approx((h.min(), h.max()), rel=1e-5)
    assert said["edges"]["x"]["max"] == float(np.concatenate(X).max())
    assert (said["samples"], said["random"], said["file"]) == (2, False, "net.calibration.yaml")
    found = read_calibration("net.calibration.yaml")
    assert found.edges["h"].max == pytest.approx(h.max(), rel=1e-5)
    assert "'label' in " in done.err
    assert "2 samples" in done.err


def test_the_table_and_errors_of_targets(pipelinkc: Command, net: Path) -> None:
    done = pipelinkc("calibrate", "net.plir", "--data", "data", "--inputs", "weights.npz", "--on", "cpu", "--method", "percentile", "--percentile", "99",
                     "--target", "sm_75,sm_87")
    assert done.status == 0
    assert "percentile 99, 2 samples" in done.out
    row = next(line for line in done.out.splitlines() if line.split()[:2] == ["%y", "@linear"])
    assert row.split()[2] == "down"
    assert row.split()[-2:] == ["0.01", "kept"]
    assert 0.0 < float(row.split()[3]) < 2e-3
    assert read_calibration("net.calibration.yaml").errors["sm_75"]["y"] == pytest.approx(float(row.split()[3]), rel=1e-2)
    assert "errors on sm_87" in done.out


def test_a_breach_is_status_1_and_the_file_is_written(pipelinkc: Command, net: Path) -> None:
    net.write_text(NET.replace("1e-2", "5.2e-4"))
    np.savez("one.npz", x=np.full((2, 6), 1.00048, np.float32), w=np.full((6, 4), 1.00048, np.float32), v=np.full((4, 3), 1.00048, np.float32))
    done = pipelinkc("calibrate", "net.plir", "--data", "one.npz", "--on", "cpu", "--target", "sm_75")
    assert done.status == 1
    assert "net.plir:4:" in done.err
    assert "error[PL4302]" in done.err
    assert "'%h' of 'up' is measured to be off by" in done.err
    assert "breached" in done.out
    assert Path("net.calibration.yaml").exists()


def test_images_by_a_pattern(pipelinkc: Command, tmp_path: Path) -> None:
    (tmp_path / "p.plir").write_text(GRAY)
    (tmp_path / "img").mkdir()
    for k, top in enumerate((40, 255)):
        Image.fromarray(np.linspace(0, top, 12 + k).astype(np.uint8).reshape(1, -1)).save(tmp_path / "img" / f"{k}.png")
    done = pipelinkc("calibrate", "p.plir", "--in", "img=img/*.png:unit", "--on", "cpu")
    assert done.status == 0, done.err
    found = read_calibration("p.calibration.yaml")
    assert (found.edges["img"].max, found.edges["y"].max, found.samples) == (1.0, 0.5, 2)


def test_random_numbers_have_to_be_asked_for(pipelinkc: Command, net: Path) -> None:
    done = pipelinkc("calibrate", "net.plir", "--size", "N=4")
    assert done.status == 2
    assert "--random" in done.err
    done = pipelinkc("calibrate", "net.plir", "--size", "N=4", "--random", "2", "--on", "cpu")
    assert done.status == 0
    assert "warning" in done.err
    text = Path("net.calibration.yaml").read_text()
    assert "WARNING" in text
    assert read_calibration("net.calibration.yaml").random


WRONG = [
    ([], "there is no data"), (["--data", "empty"], "no file of arrays"), (["--data", "none.npz"], "cannot be read"), (["--in", "x=none/*.npy"], "no file matches"),
    (["--in", "z=data/s0.npz"], "no input '%z'"), (["--data", "data", "--method", "mean"], "no method"), (["--data", "data", "--percentile", "99"], "percentile"),
    (["--data", "data", "--target", "turing"], "turing"), (["--data", "data", "--on", "sm_75"], "sm_75"), (["--data", "-"], "more than once"),
    (["--data", "data", "--random", "1"], "does not go with it"), (["--random", "0"], "--random is from 1"), (["--data", "x.npy"], "a file of one array"),
    (["--data", "data", "-o", "data"], "is a folder"), (["--data", "data", "--pipeline", "other"], "no pipeline '@other'"),
    (["--data", "data", "--in", "x=more/*.npy"], "different numbers of files"), (["--data", "data", "--seed", "1"], "--seed is for random numbers"),
    (["--random", "1", "--size", "N=4,Q=2"], "has no size 'Q'"), (["--data", "data", "-o", "-", "--format", "json"], "do not go together")]


@pytest.mark.parametrize(("flags", "says"), WRONG, ids=[" ".join(f) for f, _ in WRONG])
def test_flags_that_do_not_fit(pipelinkc: Command, net: Path, flags: list[str], says: str) -> None:
    Path("empty").mkdir()
    Path("more").mkdir()
    for k in range(3):
        np.save(f"more/{k}.npy", X[0])
    np.save("x.npy", X[0])
    if "x.npy" in flags:
        net.write_text(NET.replace("param %w", "%w"))
    done = pipelinkc("calibrate", "net.plir", *flags, *(["--on", "cpu"] if "--on" not in flags else []))
    assert done.status == 2, done.err
    assert says in done.err
    assert "Traceback" not in done.err
    assert not Path("net.calibration.yaml").exists()


def test_arrays_that_do_not_fit_name_their_file(pipelinkc: Command, net: Path) -> None:
    np.savez("data/s2.npz", x=np.zeros((2, 7), np.float32))
    done = pipelinkc("calibrate", "net.plir", "--data", "data", "--inputs", "weights.npz", "--on", "cpu")
    assert done.status == 1
    assert "data/s2.npz" in done.err


def test_a_spoilt_file_is_told_at_its_line(pipelinkc: Command, net: Path) -> None:
    Path("net.calibration.yaml").write_text("calibration: 1\npipeline: net\nmethod: minmax\nedges:\n  x: {min: 2, max: 1, low: 0, high: 0}\n")
    done = pipelinkc("net.plir", "--target", "sm_75")
    assert done.status == 2
    assert "net.calibration.yaml:5:6: error[PL9104]" in done.err
    assert pipelinkc("net.plir", "--target", "sm_75", "--calibration", "off").status == 0
    assert pipelinkc("net.plir", "--target", "sm_75", "--calibration", "none.yaml").status == 2
    assert pipelinkc("calibrate", "net.plir", "--data", "data", "--inputs", "weights.npz", "--on", "cpu").status == 0
    assert pipelinkc("net.plir", "--target", "sm_75").status == 0


# ----------------------------------------------------------------------------------------------------------------------- compare


def test_compare_tells_where_it_is_lost(pipelinkc: Command, net: Path) -> None:
    data = ["--data", "data", "--inputs", "weights.npz"]
    done = pipelinkc("compare", "net.plir", "--b", "target=sm_75,on=cpu", *data, "--threshold", "1e-6")
    assert done.status == 0, done.err
    assert "the error first exceeds 1e-06 at %h, made by @linear" in done.out
    assert "<- first" in done.out
    done = pipelinkc("compare", "net.plir", "--a", "cpu", "--b", "sm_75,on=cpu", *data, "--format", "json")
    said = json.loads(done.out)
    h = np.concatenate(X).astype(np.float64) @ W
    low = (np.concatenate(X).astype(np.float16).astype(np.float64) @ W.astype(np.float16).astype(np.float64)).astype(np.float16)
    row = said["edges"][0]
    assert (row["edge"], row["label"], row["elements"], row["lost"]) == ("h", "up", h.size, 0)
    assert row["max"] == pytest.approx(np.abs(low - h).max(), rel=0.1)
    assert row["error"] == pytest.approx(np.abs(low - h).max() / np.abs(h).max(), rel=0.1)
    assert row["psnr"] == pytest.approx(20 * np.log10((h.max() - h.min()) / np.sqrt(np.mean((low - h) ** 2))), rel=0.05)
    assert said["first"] is None


def test_compare_counts_what_is_not_finite(pipelinkc: Command, net: Path) -> None:
    x = X[0].copy()
    x[0] = 7e4  # infinite in f16
    np.savez("big.npz", x=x, w=np.abs(W), v=np.abs(V))
    done = pipelinkc("compare", "net.plir", "--a", "cpu", "--b", "sm_75,on=cpu", "--data", "big.npz", "--format", "json")
    assert done.status == 0, done.err
    said = json.loads(done.out)
    assert said["edges"][0]["lost"] == 4
    assert said["edges"][0]["error"] is None
    assert said["first"] == "h"
    assert "4 not finite in one" in pipelinkc("compare", "net.plir", "--a", "cpu", "--b", "sm_75,on=cpu", "--data", "big.npz").out


@pytest.mark.parametrize(("way", "says"), [("lower=off", "say which target"), ("target=gpu", "no target 'gpu'"), ("cpu,lower=x", "on or off"),
                                           ("cpu,file=none.plir", "cannot be read"), ("cpu,calibration=none", "no file 'none'"), ("cpu,tarjet=x", "did you mean")])
def test_ways_that_are_none(pipelinkc: Command, net: Path, way: str, says: str) -> None:
    done = pipelinkc("compare", "net.plir", "--b", way, "--data", "data", "--inputs", "weights.npz")
    assert done.status == 2
    assert says in done.err


def test_compare_made_by_a_process_has_a_clean_standard_output(net: Path, tmp_path: Path) -> None:
    from tests.unit.cli.command import process
    done: Any = process("compare", "net.plir", "--a", "cpu", "--b", "cpu", "--data", "data", "--inputs", "weights.npz", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["first"] is None


def test_the_page_tells_what_happens(pipelinkc: Command, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    (tmp_path / "net.plir").write_text(page.partition("```plir\n")[2].partition("```")[0], encoding="utf-8")
    exec(page.partition("```python\n")[2].partition("```")[0], {})
    with np.load("weights.npz") as weights:
        w, b = weights["w"], weights["b"]
    xs = [np.load(f"samples/{k}.npz")["x"] for k in range(8)]
    commands = re.findall(r"^    pipelinkc (.*)$", page, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["calibrate", "compare"]
    done = pipelinkc(*commands[0].split(), "--on", "cpu")
    assert done.status == 0, done.err
    h = np.concatenate(xs).astype(np.float64) @ w + b
    # The first rows are those of ranges; rows of errors come after them.
    seen, told = ({line.split()[0]: line.split() for line in reversed(text.splitlines()) if line.strip().startswith("%")} for text in (done.out, page))
    for edge, whole in (("%x", np.concatenate(xs)), ("%y.h", h), ("%y.r", np.maximum(h, 0))):
        for row in (seen, told):
            assert [float(t) for t in row[edge][1:3]] == pytest.approx([whole.min(), whole.max()], rel=1e-4)
    for line in re.findall(r"^      (?:x|y\.h): \{min: (.*?), max: (.*?), ", page, re.MULTILINE):
        assert any([float(t) for t in line] == pytest.approx([a.min(), a.max()], rel=1e-4) for a in (np.concatenate(xs), h))
    done = pipelinkc(*commands[1].replace("sm_87", "sm_87,on=cpu").split())
    assert done.status == 0, done.err
    assert "the error first exceeds 0.01 at %y.h, made by @std.nn.linear as mlp.up" in done.out
    assert "the error first exceeds 0.01 at %y.h, made by @std.nn.linear as mlp.up" in page


def test_the_file_on_standard_output(pipelinkc: Command, net: Path) -> None:
    done = pipelinkc("calibrate", "net.plir", "--data", "data", "--inputs", "weights.npz", "--on", "cpu", "-o", "off")
    assert done.status == 0
    assert not Path("net.calibration.yaml").exists()
    from tests.unit.cli.command import process
    run: Any = process("calibrate", "net.plir", "--data", "data", "--inputs", "weights.npz", "--on", "cpu", "-o", "-", cwd=net.parent)
    assert run.returncode == 0
    assert parse_calibration(run.stdout, "-").edges["x"].max == pytest.approx(float(np.concatenate(X).max()))
    assert not Path("net.calibration.yaml").exists()
