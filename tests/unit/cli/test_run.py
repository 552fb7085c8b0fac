"""`run`: arrays from files, through a pipeline, to files."""
from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

from tests.unit.cli.command import SCALE, UNKNOWN, Done, process

Command = Callable[..., Done]
X = np.arange(6, dtype=np.float32).reshape(2, 3)

INVERT = """\
op @invert(%x: tensor<NxHxWxCxu8, NHWC>) -> (%y: tensor<NxHxWxCxu8, NHWC>) {
  compute { %y[n, h, w, c] = sat_u8(255 - %x[n, h, w, c]) }
}

pipeline @main(%img: tensor<NxHxWx3xu8, NHWC>) -> (%out: tensor<NxHxWx3xu8, NHWC>) {
  %out = @invert(%img)
}
"""

UNIT = """\
op @halve(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  semantic { %y { range = [0, 0.5] } }
  compute  { %y[h, w] = clamp(%x[h, w], 0, 1) / 2 }
}

op @double(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  compute { %y[h, w] = 2 * %x[h, w] }
}

pipeline @main(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>, %z: tensor<HxWxf32>) {
  %y = @halve(%x)
  %z = @double(%y)
}
"""

NARROW = """\
op @double(%x: tensor<Nxbf16>) -> (%y: tensor<Nxbf16>) {
  compute { %y[n] = 2 * %x[n] }
}

pipeline @main(%x: tensor<Nxbf16>) -> (%y: tensor<Nxbf16>) {
  %y = @double(%x)
}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def one(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name
    return one


@pytest.fixture
def run(pipelinkc: Command) -> Command:
    def on_reference(*args: Any) -> Done:
        return pipelinkc("run", *args, "--target", "reference")
    return on_reference


def save(path: Path, array: Any) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_npz_to_npz(pipelinkc: Command, tmp_path: Path, scale: Path, target: str) -> None:
    np.savez(tmp_path / "in.npz", x=X)
    done = pipelinkc("run", scale, "--inputs", "in.npz", "--outputs", "out.npz", "--target", target)
    assert (done.status, done.out, done.err) == (0, "", "")
    with np.load(tmp_path / "out.npz") as z:
        assert z.files == ["y"]
        np.testing.assert_array_equal(z["y"], 2 * X, strict=True)


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
def test_one_array_of_each_kind(run: Command, tmp_path: Path, scale: Path, kind: str) -> None:
    np.save(tmp_path / "in.npy", X)
    np.savez(tmp_path / "in.npz", x=X, other=np.zeros(3))
    safetensors.numpy.save_file({"x": X, "other": np.zeros(3)}, tmp_path / "in.safetensors")
    done = run(scale, "--in", f"x=in.{kind}", "--out", f"y=out.{kind}")
    assert (done.status, done.out, done.err) == (0, "", "")
    path = tmp_path / f"out.{kind}"
    got = np.load(path) if kind == "npy" else safetensors.numpy.load_file(path)["y"] if kind == "safetensors" else np.load(path)["y"]
    np.testing.assert_array_equal(got, 2 * X, strict=True)


def test_a_summary_without_outputs(run: Command, tmp_path: Path, scale: Path) -> None:
    save(tmp_path / "x.npy", X)
    assert run(scale, "--in", "x=x.npy").out == "%y: f32[2, 3]  min 0  max 10  mean 5\n"
    save(tmp_path / "x.npy", np.array([[np.nan, 1]], np.float32))
    assert run(scale, "--in", "%x=x.npy").out == "%y: f32[1, 2]  min 2  max 2  mean 2  NaN 1\n"
    save(tmp_path / "x.npy", np.zeros((0, 3), np.float32))
    assert run(scale, "--in", "x=x.npy").out == "%y: f32[0, 3]\n"


def test_verbose_goes_to_standard_error(run: Command, tmp_path: Path, scale: Path) -> None:
    save(tmp_path / "x.npy", X)
    quiet, loud = run(scale, "--in", "x=x.npy"), run(scale, "--in", "x=x.npy", "-v")
    assert loud.out == quiet.out
    assert "@main for reference: " in loud.err
    assert "sizes: N = 2, K = 3" in loud.err


def test_streams_of_npz(scale: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, x=X)
    done = process("run", scale, "--inputs", "-", "--outputs", "-", "--target", "reference", input=stream.getvalue())
    assert (done.returncode, done.stderr) == (0, b"")
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout))["y"], 2 * X, strict=True)


def test_a_program_from_standard_input(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "x.npy", X)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SCALE.encode())))
    assert run("-", "--in", "x=x.npy", "--out", "y=y.npy").status == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), 2 * X, strict=True)
    done = run("-", "--inputs", "-")
    assert done.status == 2
    assert "twice" in done.err


def test_attributes(run: Command, tmp_path: Path, scale: Path) -> None:
    save(tmp_path / "x.npy", X)
    assert run(scale, "--in", "x=x.npy", "--out", "y=y.npy", "--set", "by=-0.5").status == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), -0.5 * X, strict=True)


def test_attributes_that_have_no_value(run: Command, tmp_path: Path, write: Any) -> None:
    path = write("x.plir", SCALE.replace("by: f32 = 2.0) -> (%y: tensor<NxKxf32>) {\n  %y", "by: f32) -> (%y: tensor<NxKxf32>) {\n  %y"))
    save(tmp_path / "x.npy", X)
    done = run(path, "--in", "x=x.npy")
    assert done.status == 2
    assert "'@main' needs a value for by: f32: give '--set by=VALUE'" in done.err
    assert run(path, "--in", "x=x.npy", "--set", "by=1").status == 0


def test_passes_can_be_chosen(run: Command, tmp_path: Path, scale: Path) -> None:
    save(tmp_path / "x.npy", X)
    for passes in ("none", "resolve", "resolve,infer-types", "resolve,infer-types,flatten,simplify"):
        assert run(scale, "--in", "x=x.npy", "-p", passes).out.startswith("%y: f32[2, 3]"), passes
    done = run(scale, "--in", "x=x.npy", "--stop-after", "resolve")
    assert done.status == 2
    assert "--stop-after" in done.err


def test_dumps_run_elsewhere(run: Command, tmp_path: Path, scale: Path) -> None:
    save(tmp_path / "x.npy", X)
    whole = run(scale, "--in", "x=x.npy", "--dump-dir", "d", "-p", "resolve,infer-types,flatten")
    for i, dump in enumerate(sorted((tmp_path / "d").glob("*.plir"))):
        copy = tmp_path / f"copy{i}.plir"
        copy.write_text(dump.read_text())
        assert run(copy, "--in", "x=x.npy").out == whole.out


# ---------------------------------------------------------------------------------------------------------------- narrow floats


def test_bit_patterns_in_numpy_files(run: Command, tmp_path: Path, write: Any) -> None:
    path = write("narrow.plir", NARROW)
    save(tmp_path / "x.npy", np.array([0x3F80, 0xC020], np.uint16))         # 1, -2.5
    assert run(path, "--in", "x=x.npy", "--outputs", "out.npz", "--out", "y=y.npy").status == 0
    expected = np.array([0x4000, 0xC0A0], np.uint16)                        # 2, -5
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected, strict=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], expected, strict=True)


def test_names_in_safetensors(run: Command, tmp_path: Path, write: Any) -> None:
    path = write("narrow.plir", NARROW)
    header = b'{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + np.array([1, -2.5], ml_dtypes.bfloat16).tobytes())
    assert run(path, "--inputs", "x.safetensors", "--outputs", "y.safetensors").status == 0
    data = (tmp_path / "y.safetensors").read_bytes()
    assert b'"dtype":"BF16"' in data
    assert data.endswith(np.array([2, -5], ml_dtypes.bfloat16).tobytes())


# --------------------------------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_images(pipelinkc: Command, tmp_path: Path, write: Any, target: str) -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    Image.fromarray(pixels).save(tmp_path / "in.png")
    done = pipelinkc("run", write("invert.plir", INVERT), "--in", "img=in.png", "--out", "out=out.png", "--target", target)
    assert (done.status, done.out, done.err) == (0, "", "")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out.png")), 255 - pixels)


def test_images_that_do_not_fit(run: Command, tmp_path: Path, write: Any) -> None:
    Image.fromarray(np.zeros((2, 3), np.uint8)).save(tmp_path / "gray.png")
    path = write("invert.plir", INVERT)
    done = run(path, "--in", "img=gray.png")
    assert done.status == 1
    assert done.err.startswith(f"{path}:5:16: error[PL6001]: input: 'gray.png' has 1 channel, and '%img' has 3")
    assert "help: append ':rgb'" in done.err
    assert run(path, "--in", "img=gray.png:rgb").out.startswith("%out: u8[1, 2, 3, 3]  min 255")


def test_ranges_of_images(run: Command, tmp_path: Path, write: Any) -> None:
    path = write("unit.plir", UNIT)
    Image.fromarray(np.array([[0, 51, 255]], np.uint8)).save(tmp_path / "x.png")
    done = run(path, "--in", "x=x.png")
    assert done.status == 1
    assert "not scaled silently" in done.err
    # %y promises [0, 0.5]; nothing promises anything of %z.
    assert run(path, "--in", "x=x.png:unit", "--out", "y=y.png").status == 0
    assert np.asarray(Image.open(tmp_path / "y.png")).tolist() == [[0, 26, 128]]            # 25.5 and 127.5 to even
    done = run(path, "--in", "x=x.png:unit", "--out", "z=z.png")
    assert done.status == 1
    assert "nothing promises that it lies in [0, 1]" in done.err
    assert not (tmp_path / "z.png").exists()
    assert run(path, "--in", "x=x.png:unit", "--out", "z=z.png:unit").status == 0
    assert np.asarray(Image.open(tmp_path / "z.png")).tolist() == [[0, 51, 255]]


# --------------------------------------------------------------------------------------------------------------------- faults


def test_arrays_that_do_not_fit(run: Command, tmp_path: Path, scale: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X.astype(np.float64))
    done = run(scale, "--inputs", "in.npz", "--outputs", "out.npz")
    assert done.status == 1
    assert done.err.startswith(f"{scale}:6:16: error[PL6001]: dtype: '%x' is tensor<NxKxf32>, but the array is f64[2, 3] ('in.npz')")
    assert not (tmp_path / "out.npz").exists()
    np.savez(tmp_path / "in.npz", xx=X)
    assert "did you mean '%x'?" in run(scale, "--inputs", "in.npz").err
    done = run(scale)
    assert done.status == 1
    assert "the input '%x' is missing; '@main' takes %x: tensor<NxKxf32>; given: nothing" in done.err


@pytest.mark.parametrize(("args", "said"), [
    (["--in", "z=x.npy"], "has no input '%z'"), (["--in", "x=missing.npy"], "missing.npy: error[PL9101]"), (["--in", "x=x.txt"], "none of .npy"),
    (["--inputs", "x.npy"], "'--in NAME=x.npy'"), (["--in", "x=x.npy:unit"], "':unit'|for images|none of"), (["--in", "x=x.npz"], "has no array 'x'"),
    (["--in", "x=x.npy", "--out", "z=z.npy"], "has no result '%z'"), (["--in", "x=x.npy", "--out", "y=y.txt"], "none of .npy"),
    (["--in", "x=x.npy", "--outputs", "y.npy"], "'--out NAME=y.npy'"), (["--in", "x=x.npy", "--in", "x=x.npy"], "given twice"),
    (["--inputs", "both.npz", "--in", "x=x.npy", "--inputs", "both.npz"], "is in 'both.npz'"), (["--in", "x=x.npy", "--float64", "--target", "cpu"], "float64"),
    (["--in", "x=x.npy", "--outputs", "a.npz", "--out", "y=a.npz"], "to one file"), (["--in", "x=x.npy", "--out", "y=x.npy"], "never overwritten"),
])
def test_wrong_usage(pipelinkc: Command, tmp_path: Path, scale: Path, args: list[str], said: str) -> None:
    save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", other=X)
    np.savez(tmp_path / "both.npz", x=X)
    done = pipelinkc("run", scale, *args)
    assert done.status == 2
    assert done.out == ""
    assert any(s in done.err for s in said.split("|"))
    assert "Traceback" not in done.err
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)


def test_outputs_that_cannot_be_written(run: Command, tmp_path: Path, scale: Path) -> None:
    save(tmp_path / "x.npy", X)
    done = run(scale, "--in", "x=x.npy", "--outputs", "missing/out.npz")
    assert done.status == 2
    assert done.err.startswith("missing/out.npz: error[PL9101]: file: cannot be written")


def test_a_failed_run_leaves_old_results(run: Command, tmp_path: Path, write: Any) -> None:
    save(tmp_path / "x.npy", X)
    old = save(tmp_path / "y.npy", np.zeros(3)).read_bytes()
    assert run(write("bad.plir", UNKNOWN), "--in", "x=x.npy", "--out", "y=y.npy").status == 1
    assert (tmp_path / "y.npy").read_bytes() == old


def test_faults_of_the_data(run: Command, tmp_path: Path, write: Any) -> None:
    path = write("gather.plir", "op @gather(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) {\n  compute { %y[m] = %x[%i[m]] }\n}\n"
                 "pipeline @main(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) {\n  %y = @gather(%x, %i)\n}\n")
    save(tmp_path / "x.npy", X[0])
    save(tmp_path / "i.npy", np.array([0, 3], np.int32))
    done = run(path, "--in", "x=x.npy", "--in", "i=i.npy")
    assert done.status == 1
    assert done.err.startswith(f"{path}:2:21: error[PL6101]: execution: ")


def test_a_fault_of_the_backend(pipelinkc: Command, tmp_path: Path, scale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.runtime import targets
    save(tmp_path / "x.npy", X)
    monkeypatch.setattr(targets, "_HERE", {**targets._HERE, "cpu": targets.Target("cpu", "cpu")})
    monkeypatch.setattr("pipelink_ir.runtime.runnable.load", lambda *a: 1 / 0)
    done = pipelinkc("run", scale, "--in", "x=x.npy", "--out", "y=y.npy")
    assert done.status == 70
    assert "in the backend 'cpu'" in done.err
    assert "Traceback" not in done.err
    crash = (tmp_path / "pipelinkc-crash.plir").read_text()
    assert "// To reproduce: pipelinkc run pipelinkc-crash.plir --in x=x.npy\n" in crash
    assert not (tmp_path / "y.npy").exists()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert pipelinkc("run", "pipelinkc-crash.plir", "--in", "x=x.npy", "--target", "reference").out.startswith("%y: f32[2, 3]")


def test_optimised_python(tmp_path: Path, write: Any) -> None:
    """Nothing hangs on `assert`: costs of loops whose bounds are no simple sizes are told without it."""
    path = write("max.plir", "op @f(%x: tensor<MxKxf32>) -> (%y: tensor<MxKxf32>) {\n  compute {\n    %m[i] = max[k < K](%x[i, k])\n"
                 "    %y[i, k] = exp(%x[i, k] - %m[i])\n  }\n}\n\npipeline @p(%x: tensor<MxKxf32>) -> (%y: tensor<MxKxf32>) {\n  %y = @f(%x)\n}\n")
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    done = process("run", path, "--in", f"x={tmp_path / 'x.npy'}", env={"PYTHONOPTIMIZE": "2"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"min 1" in done.stdout
