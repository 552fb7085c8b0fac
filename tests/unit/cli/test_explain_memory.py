"""What `--explain` and `--emit plan` say of memory."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.unit.cli.command import Done

PROGRAM = """
op @s(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { memory { border = wrap } compute { %y[n, k] = %x[n, k + 1] + sum[i < K](%x[n, i]) } }
pipeline @p(%x: tensor<SIZExf32>) -> (%y: tensor<SIZExf32>) { %a = @s(%x) %b = @s(%a) %c = @s(%b) %y = @s(%c) }
"""
PASSES = "resolve,infer-types,flatten,assign-streams{max_streams=1},alias-buffers{device=cpu},verify-plan"


def written(folder: Path, size: str) -> str:
    path = folder / "p.plir"
    path.write_text(PROGRAM.replace("SIZE", size), encoding="utf-8")
    return str(path)


def test_sizes_that_are_known(tmp_path: Path, pipelinkc: Callable[..., Done]) -> None:
    done = pipelinkc(written(tmp_path, "4x6"), "--explain", "-p", PASSES)
    assert "memory: cpu: peak 256 bytes, lower bound 256, 1.000x, 3 buffers" in done.err
    assert "memory:   cpu 0..96: %a, shares bytes with %c" in done.err
    assert "memory:" not in done.out


def test_sizes_that_the_call_decides(tmp_path: Path, pipelinkc: Callable[..., Done]) -> None:
    path = written(tmp_path, "NxK")
    done = pipelinkc(path, "--explain", "-p", PASSES)
    assert "memory: 3 buffers whose sizes the call decides" in done.err
    assert "%a: 4 * K * N bytes, may share bytes with %c" in done.err
    np.savez(tmp_path / "in.npz", x=np.ones((4, 6), np.float32))
    done = pipelinkc("run", path, "--inputs", str(tmp_path / "in.npz"), "--target", "cpu", "--explain", "-p", PASSES)
    assert "memory: cpu: peak 256 bytes, lower bound 256, 1.000x, 3 buffers" in done.err


def test_the_plan_as_data(tmp_path: Path, pipelinkc: Callable[..., Done]) -> None:
    said = json.loads(pipelinkc(written(tmp_path, "4x6"), "--emit", "plan", "-p", PASSES).out)
    assert said["memory"]["arenas"] == [{"name": "cpu", "peak": 256, "lower_bound": 256, "exact": True}]
    assert said["memory"]["buffers"][0] == {"name": "%a", "arena": "cpu", "offset": 0, "bytes": 96, "shares": ["%c"]}
    assert said["nodes"][0]["plan"]["%a"] == {"arena": "\"cpu\"", "offset": "0", "bytes": "96"}
    said = json.loads(pipelinkc(written(tmp_path, "NxK"), "--emit", "plan", "-p", PASSES).out)
    assert said["memory"]["buffers"][0] == {"name": "%a", "arena": "cpu", "bytes": "4 * K * N"}
