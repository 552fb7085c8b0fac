"""Operators that cuBLASLt computes, on a device that is played: the calls it gets, what becomes of graphs, and what is told where it is missing."""
from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cuda import cublaslt
from pipelink_ir.backends.cuda.cublaslt import Matrix, Missing, Problem
from pipelink_ir.ir.diagnostics import ExecutionError, ProgramError
from tests.unit.device.emulated import EmulatingDriver
from tests.unit.device.fake import FakeDriver, Launch

PROGRAM = """op @mm(%x: tensor<MxKxf16>, %w: tensor<KxNxf16>, %b: tensor<Nxf16>) -> (%y: tensor<MxNxf16>) {
  compile { library = [LISTED] }
  compute { %y[i, j] = 0.5 * sum[k < K](%x[i, k] * %w[k, j]) + %b[j] }
}
op @turned(%x: tensor<BxMxKxf16>, %w: tensor<BxNxKxf16>) -> (%y: tensor<BxMxNxf32>) {
  compile { library = [LISTED] }
  compute { %y[b, i, j] = sum[k < K](%x[b, i, k] * %w[b, j, k]) }
}
op @twice(%x: tensor<...xf16>) -> (%y: tensor<...xf16>) { compute { %y[...] = 2 * %x[...] } }
pipeline @p(%x: tensor<MxKxf16>, %w: tensor<KxNxf16>, %b: tensor<Nxf16>) -> (%y: tensor<MxNxf16>) {
  %a = @twice(%x)
  %m = @mm(%a, %w, %b)
  %y = @twice(%m)
}
pipeline @q(%x: tensor<BxMxKxf16>, %w: tensor<BxNxKxf16>) -> (%y: tensor<BxMxNxf32>) { %y = @turned(%x, %w) }
"""
DTYPES = {"f16": (np.float16, ctypes.c_uint16), "f32": (np.float32, ctypes.c_uint32)}


class Played:
    """cuBLASLt with NumPy for its kernels. It works on memory of the host, which is what a `FakeDriver` has."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver, self.problems, self.open = driver, list[Problem](), 0
        self.able = True

    def choose(self, device: int, problem: Problem) -> PlayedChoice:
        self.problems.append(problem)
        return PlayedChoice(self, problem)


class PlayedChoice:
    workspace = 1000

    def __init__(self, library: Played, problem: Problem) -> None:
        self.library, self.problem, self.able = library, problem, library.able

    def call(self, places: list[int]) -> PlayedCall:
        return PlayedCall(self, places)


class PlayedCall:
    def __init__(self, chosen: PlayedChoice, places: list[int]) -> None:
        self.chosen, self.places, self.function = chosen, places, 1
        self._own = ctypes.c_int64()
        self.argument = ctypes.addressof(self._own)
        chosen.library.driver.foreign[self.argument] = self.launch
        chosen.library.open += 1

    def launch(self, driver: FakeDriver) -> Launch:
        words = [ctypes.c_int64.from_address(place).value for place in self.places]
        name = f"cublaslt {len(words)}"
        driver.kernels[name] = self.run
        driver.pointers[name] = [(n, n in (2, 3)) for n in range(len(words))]  # type: ignore[attr-defined]
        return Launch(name, 0, (), (), 0, words, [], self)

    def run(self, launch: Launch) -> None:
        call: PlayedCall = launch.keep
        p, (left, right, result, space, *bias) = call.chosen.problem, launch.words
        assert space % 256 == 0
        ctypes.memset(space, 0xCD, call.chosen.workspace)
        a = look(left, p.left, p.batch, p.rows, p.terms).astype(np.float64)
        b = look(right, p.right, p.batch, p.terms, p.columns).astype(np.float64)
        y = look(result, p.result, p.batch, p.rows, p.columns)
        y[...] = p.alpha * (a @ b) + (look(bias[0], Matrix(p.result.dtype, False, 0, 0), 1, 1, p.columns) if bias else 0)

    def fits(self) -> bool:
        return all(ctypes.c_int64.from_address(place).value % 16 == 0 for place in self.places)

    def close(self) -> None:
        self.chosen.library.open -= 1


def look(address: int, m: Matrix, batch: int, rows: int, columns: int) -> Any:
    """The matrix that a description speaks of, as a view of memory."""
    dtype, word = DTYPES[m.dtype]
    size = np.dtype(dtype).itemsize
    lines, along = (columns, rows) if m.turned else (rows, columns)
    assert m.across in (0, along)
    count = (batch - 1) * m.batch + lines * along
    flat = np.frombuffer((word * count).from_address(address), dtype)
    strides = (m.batch * size, size, along * size) if m.turned else (m.batch * size, along * size, size)
    return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides, writeable=True)


def installed(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    """Whether nvmath-python seems to be installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: (True if there else None) if name == "nvmath" else find(name))


@pytest.fixture
def played(device: EmulatingDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    library = Played(device)
    monkeypatch.setattr(cublaslt, "opened", lambda: library)
    installed(monkeypatch, True)
    yield library
    device.foreign.clear()


def program(folder: Path, listed: str = "cublaslt, generated") -> Path:
    (folder / "p.plir").write_text(PROGRAM.replace("LISTED", listed))
    return folder / "p.plir"


def arrays(m: int, k: int, n: int) -> dict[str, Any]:
    r = np.random.default_rng(m + k + n)
    return {"x": r.integers(-4, 5, (m, k)).astype(np.float16), "w": r.integers(-4, 5, (k, n)).astype(np.float16), "b": r.integers(-4, 5, n).astype(np.float16)}


def expected(x: Any, w: Any, b: Any) -> Any:
    return 2 * (0.5 * (2 * x.astype(np.float64)) @ w.astype(np.float64) + b)


def test_a_product_in_a_pipeline(device: EmulatingDriver, played: Played, tmp_path: Path) -> None:
    p = pl.compile(program(tmp_path), target="cuda", pipeline="p")
    for m, k, n in ((32, 24, 40), (16, 16, 16), (32, 24, 40), (32, 24, 40), (32, 24, 40)):
        given = arrays(m, k, n)
        np.testing.assert_array_equal(p(**given).y, expected(**given))
    assert len(played.problems) == 2
    assert played.problems[0] == Problem(32, 40, 24, 1, Matrix("f16", False, 24, 768), Matrix("f16", False, 40, 960), Matrix("f16", False, 40, 1280), True, "", 0.5)
    assert {entry[0] for entry in device.log} >= {"replay", "launch"}
    assert any("cuBLASLt computes '%y', with a scale and a bias" in str(e) for e in p.ledger)


def test_arguments_of_a_graph(device: EmulatingDriver, played: Played, tmp_path: Path) -> None:
    """Weights come from the caller: another array is told to the graph, as for any kernel; where one begins elsewhere the kernels are launched one by one."""
    p = pl.compile(program(tmp_path), target="cuda", pipeline="p")
    given = arrays(32, 24, 40)
    held = []
    for n in range(6):
        w = device.given(given["w"] + n, 0)
        held.append(w)
        out = p.executable.run(_given(device, given, w.address))
        np.testing.assert_array_equal(out["y"], expected(given["x"], given["w"] + n, given["b"]))
    replays = sum(entry[0] == "replay" for entry in device.log)
    assert replays > 0
    odd = device.given(np.concatenate([np.zeros(1, np.float16), given["w"].reshape(-1)]), 0)
    out = p.executable.run(_given(device, given, odd.address + 2))
    np.testing.assert_array_equal(out["y"], expected(**given))
    assert sum(entry[0] == "replay" for entry in device.log) == replays
    out = p.executable.run(_given(device, given, held[1].address))
    np.testing.assert_array_equal(out["y"], expected(given["x"], given["w"] + 1, given["b"]))
    assert sum(entry[0] == "replay" for entry in device.log) == replays + 1


def _given(device: EmulatingDriver, given: dict[str, Any], w: int) -> Any:
    from pipelink_ir.backends.cuda.run import Given
    return Given(tuple(a.shape for a in given.values()), [given["x"].ctypes.data, w, given["b"].ctypes.data], (0, 2), others=(0,))


def test_batches_and_factors_that_are_turned(device: EmulatingDriver, played: Played, tmp_path: Path) -> None:
    q = pl.compile(program(tmp_path), target="cuda", pipeline="q")
    r = np.random.default_rng(0)
    x, w = (r.integers(-4, 5, (3, n, 24)).astype(np.float16) for n in (20, 36))
    np.testing.assert_array_equal(q(x=x, w=w).y, x.astype(np.float64) @ w.astype(np.float64).transpose(0, 2, 1))
    assert played.problems[0] == Problem(20, 36, 24, 3, Matrix("f16", False, 24, 480), Matrix("f16", True, 24, 864), Matrix("f32", False, 36, 720))


def test_sizes_that_the_library_has_nothing_for(device: EmulatingDriver, played: Played, tmp_path: Path) -> None:
    q = pl.compile(program(tmp_path), target="cuda", pipeline="q")
    x, w = np.ones((2, 20, 0), np.float16), np.ones((2, 24, 0), np.float16)
    np.testing.assert_array_equal(q(x=x, w=w).y, np.zeros((2, 20, 24), np.float32))
    assert not played.problems
    played.able = False
    x, w = np.ones((2, 20, 16), np.float16), np.ones((2, 24, 16), np.float16)
    np.testing.assert_array_equal(q(x=x, w=w).y, np.full((2, 20, 24), 16, np.float32))
    assert q(x=np.ones((2, 0, 16), np.float16), w=w).y.shape == (2, 0, 24)
    alone = pl.compile(program(tmp_path, "cublaslt"), target="cuda", pipeline="q")
    with pytest.raises(ExecutionError) as caught:
        alone(x=x, w=w)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "PL4101"
    assert "has no kernel for 20 rows, 24 columns and 16 terms" in diagnostic.message


def test_what_was_made_is_given_back(device: EmulatingDriver, played: Played, tmp_path: Path) -> None:
    p = pl.compile(program(tmp_path), target="cuda", pipeline="p")
    for m in range(16, 16 + 70):
        p(**arrays(m, 16, 16))
    assert played.open <= 64


@pytest.mark.parametrize("there", [True, False])
def test_a_library_that_is_missing(device: EmulatingDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    """It is not installed, which is seen when a program is planned, or cannot be loaded, which is seen later."""
    installed(monkeypatch, there)

    def opened() -> Any:
        raise Missing("cuBLASLt cannot be loaded (no libcublasLt.so)", cublaslt.INSTALL)

    monkeypatch.setattr(cublaslt, "opened", opened)
    p = pl.compile(program(tmp_path), target="cuda", pipeline="p")
    given = arrays(32, 24, 40)
    np.testing.assert_array_equal(p(**given).y, expected(**given))
    (entry,) = (str(e) for e in p.ledger if "cuBLASLt" in str(e) and "'%m'" in str(e))
    assert entry.startswith("fallback: '%m' = '@mm" if there else "declined: '%m' = '@mm")
    assert ("cannot be loaded" if there else "is not installed") in entry
    assert "pip install 'pipelink-ir[libraries]'" in entry
    with pytest.raises(ProgramError) as caught:
        pl.compile(program(tmp_path, "cublaslt"), target="cuda", pipeline="p")
    assert {d.code for d in caught.value.diagnostics} == {"PL4101"}
    assert ("cannot be loaded" if there else "is not installed") in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].span.line == 2


def test_texts(device: EmulatingDriver, played: Played, tmp_path: Path) -> None:
    q = pl.compile(program(tmp_path), target="cuda", pipeline="q")
    assert "is computed by cuBLASLt.\n" in str(q.artifacts["cu"])
    assert "__global__" not in str(q.artifacts["cu"])
    text = str(pl.compile(program(tmp_path), target="sm_90", pipeline="q").artifacts["cu"])
    assert "is computed by cuBLASLt; what is below for it runs where the library cannot." in text
    assert "__global__" in text


def test_calls_are_timed_like_kernels(device: EmulatingDriver, played: Played, cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.backends.cuda import timing
    from pipelink_ir.runtime import bench
    monkeypatch.setattr(timing, "FLUSH", 1 << 16)
    monkeypatch.setattr(timing.DeviceClock.__init__, "__defaults__", (1 << 16,))
    monkeypatch.setitem(bench.COPY_BYTES, "cuda", 1 << 12)
    monkeypatch.setattr(timing.DeviceClock, "array", lambda clock, array, dtype: cupy.ndarray(device, array))
    p = pl.compile(program(tmp_path), target="cuda", pipeline="p")
    found = bench.measure(p, arrays(32, 24, 40), 2)
    assert [k.node for k in found.kernels] == ["%a", "%m", "%y"]
    assert found.kernels[1].kernel.endswith(".cublaslt")
