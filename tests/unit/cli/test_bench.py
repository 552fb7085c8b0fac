"""`pipelinkc bench`: which arrays are measured, what is told of them, what is refused. How long anything takes is not looked at."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelink_ir.runtime.bench import KernelTime, Measured, made_inputs
from tests.unit.cli.command import Done

Command = Callable[..., Done]

PROGRAM = """op @add(%x: tensor<NxHxf32>, %b: tensor<Hxf32>) -> (%y: tensor<NxHxf32>) { compute { %y[n, h] = %x[n, h] + %b[h] } }
op @shares(%x: tensor<NxHxf32>) -> (%y: tensor<NxHxf32>) {
  compute {
    %t[n] = sum[h < H](%x[n, h])
    %y[n, h] = %x[n, h] / %t[n]
  }
}
pipeline @p(%x: tensor<NxHxf32>, %b: tensor<Hxf32>) -> (%y: tensor<NxHxf32>) {
  %s = @add(%x, %b)
  %y = @shares(%s)
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "p.plir"
    path.write_text(PROGRAM)
    return path


def test_json_counts_what_must_move(pipelinkc: Command, program: Path) -> None:
    done = pipelinkc("bench", program, "--target", "cpu", "--size", "N=64,H=32", "--runs", "3", "--format", "json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["pipeline"] == "p"
    assert found["sizes"] == {"N": 64, "H": 32}
    assert found["bytes"] == 4 * (64 * 32 + 32 + 64 * 32)
    assert found["runs"] == 3
    assert found["floor_ms"] == pytest.approx(found["bytes"] / found["copy_gb_s"] / 1e6)
    assert found["of_floor"] == pytest.approx(found["floor_ms"] / found["ms"])
    assert found["least_ms"] <= found["ms"] <= found["most_ms"]
    assert sum(k["bytes"] for k in found["kernels"]) >= found["bytes"]
    assert all(k["least_ms"] <= k["ms"] for k in found["kernels"])
    assert {k["node"] for k in found["kernels"]} <= {"%s", "%y"}
    assert found["kernels"]


def test_unfused_kernels_have_the_bytes_of_their_arrays(pipelinkc: Command, program: Path) -> None:
    done = pipelinkc("bench", program, "--target", "cpu", "--size", "N=64", "--size", "H=32", "--runs", "1", "--format", "json", "-p",
                     "frontend,flatten,simplify")
    assert done.status == 0, done.err
    kernels = json.loads(done.out)["kernels"]
    assert [k["bytes"] for k in kernels if k["node"] == "%s"] == [4 * (64 * 32 + 32 + 64 * 32)]
    assert {k["operator"] for k in kernels} == {"add", "shares"}


def test_what_depends_on_parameters_alone_is_not_measured(pipelinkc: Command, tmp_path: Path) -> None:
    """%s is computed when the parameter is bound; the floor still counts the arrays as the signature has them."""
    path = tmp_path / "q.plir"
    path.write_text(PROGRAM.partition("pipeline")[0] + "pipeline @q(%x: tensor<NxHxf32>, param %w: tensor<NxHxf32>, param %b: tensor<Hxf32>) -> (%y: tensor<NxHxf32>) {\n"
                    "  %s = @shares(%w)\n  %t = @add(%x, %b)\n  %y = @both(%t, %s)\n}\n"
                    "op @both(%x: tensor<NxHxf32>, %z: tensor<NxHxf32>) -> (%y: tensor<NxHxf32>) { compute { %y[n, h] = %x[n, h] * %z[n, h] } }\n")
    done = pipelinkc("bench", path, "--target", "cpu", "--size", "N=16,H=8", "--runs", "2", "--format", "json", "--pass-options", "fuse{nodes=1}")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["pipeline"] == "q"
    assert found["bytes"] == 4 * (3 * 16 * 8 + 8)
    assert "shares" not in {k["operator"] for k in found["kernels"]}
    assert {"add", "both"} <= {k["operator"] for k in found["kernels"]}


def test_the_table(pipelinkc: Command, program: Path) -> None:
    done = pipelinkc("bench", program, "--target", "cpu", "--size", "N=8,H=4", "--runs", "2", "-p", "frontend,flatten,simplify")
    assert done.status == 0, done.err
    assert done.out.startswith("@p on cpu with N = 8, H = 4, 2 calls\n")
    assert "floor" in done.out
    rows = [line.split() for line in done.out.splitlines() if line.split()[:1] in (["%s"], ["%y"])]
    assert {row[1] for row in rows} == {"add", "shares"}
    assert all(row[-1] == "%" for row in rows)


def test_arrays_from_files_decide_sizes(pipelinkc: Command, program: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((6, 5), np.float32))
    done = pipelinkc("bench", program, "--target", "cpu", "--in", f"x={tmp_path / 'x.npy'}", "--runs", "1", "--format", "json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["sizes"] == {"N": 6, "H": 5}
    done = pipelinkc("bench", program, "--target", "cpu", "--in", f"x={tmp_path / 'x.npy'}", "--runs", "1", "--size", "H=4")
    assert (done.status, done.out) == (2, "")
    assert "--size: H is 4, but 5 in the array for '%x', [6, 5]" in done.err
    np.savez(tmp_path / "all.npz", x=np.ones((6, 5), np.float32), b=np.ones(4, np.float32))
    done = pipelinkc("bench", program, "--target", "cpu", "--inputs", tmp_path / "all.npz", "--runs", "1")
    assert done.status == 1
    assert "PL6001" in done.err


@pytest.mark.parametrize(("args", "says"), [
    (["--size", "N=4"], "the size H of '@p' must be given: --size H=256"),
    ([], "the sizes N, H of '@p' must be given: --size N=256,H=256"),
    (["--size", "N=4,H=4,Q=3"], "has no size 'Q' in its inputs; it has H, N"),
    (["--size", "N"], "--size takes NAME=N"),
    (["--size", "N=-4"], "--size takes NAME=N"),
    (["--size", "N=4,H=4,N=5"], "--size: 'N' is given twice"),
    (["--size", "N=4", "--size", "N=4,H=2"], "--size: 'N' is given twice"),
    (["--size", "N=\u00b2,H=2"], "--size takes NAME=N"),
    (["--size", "N=9223372036854775808,H=2"], "a size is below 2**63"),
    (["--size", "N=2305843009213693952,H=300"], "which no memory holds"),
    (["--runs", "0", "--size", "N=4,H=4"], "--runs is 1 or more"),
    (["--seed", "-1", "--size", "N=4,H=4"], "--seed is 0 or more"),
    (["--target", "reference", "--size", "N=4,H=4"], "times are measured on 'cpu' and 'cuda', not on 'reference'"),
    (["--target", "cuda-emulated:sm_80", "--size", "N=4,H=4"], "times are measured on 'cpu' and 'cuda', not on 'cuda-emulated:sm_80'"),
    (["--stop-after", "fuse", "--size", "N=4,H=4"], "does not go with 'bench'"),
])
def test_what_is_refused(pipelinkc: Command, program: Path, args: list[str], says: str) -> None:
    given = args if "--target" in args else [*args, "--target", "cpu"]
    done = pipelinkc("bench", program, *given)
    assert done.status == 2
    assert says in done.err
    assert done.out == ""


def test_random_inputs_fit_their_dtypes() -> None:
    import pipelink_ir as pl
    p = pl.compile("op @f(%a: tensor<Nxu8>, %b: tensor<(2 * N)xbf16>, %c: tensor<Nxi64>, %d: tensor<Nxbool>, %e: tensor<Nxi8>) -> (%y: tensor<Nxf32>) {\n"
                   "  compute { %y[n] = f32(%a[n]) + %b[2 * n] + f32(%c[n]) + select(%d[n], 1, 0) + f32(%e[n]) }\n}\n"
                   "pipeline @p(%a: tensor<Nxu8>, %b: tensor<(2 * N)xbf16>, %c: tensor<Nxi64>, %d: tensor<Nxbool>, %e: tensor<Nxi8>) -> (%y: tensor<Nxf32>) {\n"
                   "  %y = @f(%a, %b, %c, %d, %e)\n}\n", target="reference")
    made = made_inputs(p, {}, {"N": 4000})
    assert {k: (v.shape, str(v.dtype)) for k, v in made.items()} == {
        "a": ((4000,), "uint8"), "b": ((8000,), "bfloat16"), "c": ((4000,), "int64"), "d": ((4000,), "bool"), "e": ((4000,), "int8")}
    assert (made["a"].min(), made["a"].max()) == (0, 255)
    assert (made["e"].min(), made["e"].max()) == (-128, 127)
    assert set(made["c"]) == {0, 1}
    assert 0 <= float(made["b"].astype(np.float32).min()) < float(made["b"].astype(np.float32).max()) <= 1
    given = np.zeros(7, np.uint8)
    assert made_inputs(p, {"a": given}, {})["b"].shape == (14,)
    assert made_inputs(p, {"a": given}, {})["a"] is given


def test_rates() -> None:
    kernel = KernelTime("%y", "f", "f.y", 8_000_000, 2.0, 1.5)
    assert kernel.gb_s == pytest.approx(4.0)
    found: Any = Measured("p", "cpu", {}, 16e9, 8_000_000, (3.0, 1.0, 2.0), None, (kernel,)).as_json()
    assert (found["ms"], found["floor_ms"], found["of_floor"]) == (2.0, 0.5, 0.25)
    assert found["kernels"][0]["of_copy_rate"] == pytest.approx(0.25)


@pytest.mark.parametrize("more", [[], ["--tune"]], ids=["plain", "tuned"])
def test_what_the_compiler_does_is_shown_once(pipelinkc: Command, program: Path, tmp_path: Path, more: list[str]) -> None:
    """With `--tune` programs are compiled twice, to learn which arrays they take and with what was measured."""
    done = pipelinkc("bench", program, "--target", "cpu", "--size", "N=4,H=4", "--runs", "1", "--print-pipeline", "--time-passes", "--print-ir-after=fuse",
                     "--dump-dir", tmp_path / "dump", *more)
    assert done.status == 0, done.err
    assert done.err.count("resolve,infer-types,") == 1
    assert done.err.count("IR Dump After fuse") == 1
    assert {p.suffix for p in (tmp_path / "dump").iterdir()} >= {".plir", ".ll", ".s"}
