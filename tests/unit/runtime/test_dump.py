"""Dumps of tensors, and where two of them differ."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.runtime.dump import compare, read_dump
from tests.unit.cli.command import Done

Command = Callable[..., Done]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_come_back(tmp_path: Path, dtype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(DTYPES[dtype].numpy())
    pl.as_view(array.T[::-1], layout="HW").debug_dump(tmp_path / "t", name="edges")
    dump = read_dump(str(tmp_path / "t"))
    assert (dump.dtype, dump.values.dtype) == (DTYPES[dtype], array.dtype)
    np.testing.assert_array_equal(dump.values.astype(float), array.T[::-1].astype(float))
    said = json.loads((tmp_path / "t.json").read_text())
    assert (said["shape"], said["layout"], said["name"], said["contiguity"], said["data"]) == ([3, 2], "HW", "edges", "any", "t.bin")
    assert said["made"].startswith(__file__)
    assert (tmp_path / "t.bin").read_bytes() == np.ascontiguousarray(array.T[::-1]).tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1)])
def test_small_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pl.as_view(np.ones(shape, np.float32)).debug_dump(tmp_path / "t.json")
    assert read_dump(str(tmp_path / "t.bin")).values.shape == shape


def test_statistics_leave_out_what_is_not_finite(tmp_path: Path) -> None:
    pl.as_view(np.array([1, np.nan, 3, np.inf, -np.inf])).debug_dump(tmp_path / "t")
    assert read_dump(str(tmp_path / "t")).said["statistics"] == {"nan": 1, "inf": 2, "min": 1.0, "max": 3.0, "mean": 2.0}


def dumped(folder: Path, name: str, array: Any, layout: str | None = None) -> str:
    pl.as_view(array, layout).debug_dump(folder / name)
    return str(folder / name)


def compared(folder: Path, a: Any, b: Any) -> tuple[bool, str]:
    return compare(read_dump(dumped(folder, "a", a)), read_dump(dumped(folder, "b", b)))


def test_equal_whatever_the_memory(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert compared(tmp_path, array, np.asfortranarray(array)) == (True, "equal values, f32[2, 3]")
    nan = np.array([np.nan, 1])
    assert compared(tmp_path, nan, nan.copy())[0]


def test_where_they_differ_first_and_how_much(tmp_path: Path) -> None:
    a = np.ones((2, 3), np.float32)
    b = a.copy()
    b[0, 2], b[1, 1] = np.nextafter(np.float32(1), np.float32(2)), 1.5
    equal, said = compared(tmp_path, a, b)
    assert not equal
    assert said.splitlines()[0] == "different at [0, 2]: 1.0 and 1.0000001"
    assert "2 of 6 elements differ (33.3 %)" in said
    assert "largest absolute difference 0.5 at [1, 1]: 1.0 and 1.5" in said
    assert "largest relative difference 0.333333 at [1, 1]" in said
    assert "units of the last place: 4194304" in said        # 0.5 / 2^-23


@pytest.mark.parametrize(("a", "b", "part"), [
    (np.array([0.0]), np.array([-0.0]), "different at [0]: 0.0 and -0.0"), (np.array([np.nan, 1]), np.array([2, 1.0]), "NaN on one side only: 1"),
    (np.array([255], np.uint8), np.array([0], np.uint8), "largest absolute difference 255"), (np.zeros(2), np.zeros(3), "shape: [2] and [3]"),
    (np.array([2**53 + 1]), np.array([2**53]), "different at [0]: 9007199254740993 and 9007199254740992"), (np.zeros(2), np.zeros(2, np.float32), "dtype: f64 and f32"),
    (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2.015625], ml_dtypes.bfloat16), "units of the last place: 1"),
    (np.array([np.inf]), np.array([1.0]), "largest absolute difference inf"),
])
def test_kinds_of_differences(tmp_path: Path, a: Any, b: Any, part: str) -> None:
    equal, said = compared(tmp_path, a, b)
    assert not equal
    assert part in said


def test_layouts_are_compared(tmp_path: Path) -> None:
    x = np.zeros((2, 2), np.float32)
    assert compare(read_dump(dumped(tmp_path, "a", x, "HW")), read_dump(dumped(tmp_path, "b", x, "WH"))) == (False, "equal values, f32[2, 2]\n  layout: HW and WH")


class TestCommand:
    """`pipelinkc inspect`."""

    def test_one_dump(self, pipelinkc: Command, tmp_path: Path) -> None:
        dumped(tmp_path, "t", np.arange(12, dtype=np.float32).reshape(3, 4).T, "HW")
        for name in ("t", "t.json", "t.bin"):
            done = pipelinkc("inspect", name)
            assert (done.status, done.err) == (0, "")
            for part in ("t: f32[4, 3] HW", "contiguity   any", "mean         5.5", "first        0.0 4.0 8.0 1.0 5.0 9.0 2.0 6.0 …", f"made         {__file__}:"):
                assert part in done.out

    def test_two_dumps(self, pipelinkc: Command, tmp_path: Path) -> None:
        dumped(tmp_path, "a", np.arange(3.0))
        dumped(tmp_path, "b", np.array([0, 1, 2.5]))
        assert pipelinkc("inspect", "a", "a.json") == Done(0, "equal values, f64[3]\n", "")
        done = pipelinkc("inspect", "a", "b")
        assert done.status == 1
        assert done.out.startswith("different at [2]: 2.0 and 2.5\n")

    def test_what_is_no_dump(self, pipelinkc: Command, tmp_path: Path) -> None:
        dumped(tmp_path, "t", np.arange(3.0))
        (tmp_path / "other.json").write_text("{}")
        (tmp_path / "text.json").write_text("no JSON")
        (tmp_path / "list.json").write_text("[]")
        for name, said in (("missing", "missing.json: error[PL9101]"), ("other", "is not a dump of a tensor"), ("text", "is not a dump of a tensor"),
                           ("list", "is not a dump of a tensor")):
            done = pipelinkc("inspect", name)
            assert (done.status, said in done.err) == (2, True)
        (tmp_path / "t.bin").write_bytes(b"\0" * 23)
        assert "has 23 bytes, but f64[3] has 24" in pipelinkc("inspect", "t").err
        (tmp_path / "t.bin").write_bytes(b"\0" * 24)
        assert "its digest is another" in pipelinkc("inspect", "t").err
        assert pipelinkc("inspect", "t", "t", "t").status == 2
        assert pipelinkc("inspect").status == 2


def test_what_cannot_be_dumped(tmp_path: Path) -> None:
    with pytest.raises(pl.UsageError, match="on cuda:0"):
        pl.from_raw_ptr(4096, (2,), "f32", device="cuda:0").debug_dump(tmp_path / "t")
    with pytest.raises(pl.ProgramError, match="PL9101"):
        pl.as_view(np.zeros(2)).debug_dump(tmp_path / "nowhere" / "t")
