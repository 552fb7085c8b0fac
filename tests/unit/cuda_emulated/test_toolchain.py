"""Finding a compiler and calling it; what it refuses; the other way to change stacks; symbols of a library."""
from __future__ import annotations

import stat
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate import library, toolchain
from pipelink_ir.backends.cuda.emulate.symbols import Static, constants, statics, value_of
from pipelink_ir.ir.diagnostics import UsageError
from tests.emulated import NEEDS_COMPILER
from tests.unit.cuda_emulated.hand import HEAD, frozen, run

ADD = 'extern "C" __global__ void add(const float* x, float* y, const index_t n) { for (index_t i = pl::grid_thread(); i < n; i += pl::grid_threads()) y[i] = x[i] + 1; }\n'


def _add(lib: library.Library) -> None:
    x, y = frozen(np.arange(100, dtype=np.float32)), np.zeros(100, np.float32)
    run(lib, "add", 2, 32, x, y, np.int32(100))
    np.testing.assert_array_equal(y, x + 1)


def _text(comment: str = "") -> library.Text:
    return library.Text(f"{HEAD}{comment}{ADD}", ("add",))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIPELINK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_compiler_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "own compiler"
    script.write_text("#!/bin/sh\necho \"my compiler 1.0 $1\"\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", f"'{script}' --fast")
    found = toolchain.compiler()
    assert found.command == (str(script), "--fast")
    assert found.version == "my compiler 1.0 --fast"


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(UsageError, match="CXX names '/nowhere/c\\+\\+', which cannot be called"):
        toolchain.compiler()


def test_no_compiler_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(toolchain, "NAMES", ())
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    toolchain._find.cache_clear()
    try:
        with pytest.raises(UsageError, match="needs a C\\+\\+ compiler, and there is none: install"):
            toolchain.compiler()
        assert not toolchain.available()
    finally:
        toolchain._find.cache_clear()


@NEEDS_COMPILER
def test_what_the_compiler_refuses(own_cache: Path) -> None:
    with pytest.raises(toolchain.CompileFailed) as caught:
        library.compile_text(library.Text(HEAD + '#line 1 "mine.cu"\nextern "C" __global__ void k() {\n  undeclared = 1;\n}\n', ("k",)))
    assert caught.value.first.startswith("mine.cu:2:")
    assert "undeclared" in caught.value.first


@NEEDS_COMPILER
def test_libraries_are_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _add(library.compile_text(_text("// /tmp/one.plir:3: a comment\n")))
    monkeypatch.setattr(toolchain.Compiler, "run", lambda *args: pytest.fail("compiled again"))
    _add(library.compile_text(_text("// /tmp/another.plir:3: a comment\n")))
    with pytest.raises(pytest.fail.Exception):
        library.compile_text(_text("static int other;\n"))


@NEEDS_COMPILER
def test_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_CACHE_DIR", "off")
    _add(library.compile_text(_text()))


@NEEDS_COMPILER
def test_the_other_way_to_change_stacks(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor whose registers nobody has listed, `ucontext` does it."""
    monkeypatch.setattr(library, "MACHINE", (*library.MACHINE, "-DPL_UCONTEXT"))
    library._machine_object.cache_clear()
    source = HEAD + ('extern "C" __global__ void turn(float* y) { __shared__ float s[64]; const int t = threadIdx.x; for (int k = 0; k < 5; k++) { s[t] = y[t]; '
                     "__syncthreads(); y[t] = s[(t + 1) % 64] + pl::block_sum(1); __syncthreads(); } }\n")
    try:
        lib = library.compile_text(library.Text(source, ("turn",)))
    finally:
        library._machine_object.cache_clear()
    y = np.arange(64, dtype=np.float32)
    run(lib, "turn", 1, 64, y)
    np.testing.assert_array_equal(y, np.roll(np.arange(64), -5) + 5 * 64)


@NEEDS_COMPILER
def test_calls_from_several_threads(own_cache: Path) -> None:
    lib, failed = library.compile_text(_text()), []

    def work() -> None:
        try:
            for _ in range(20):
                _add(lib)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failed == []


@NEEDS_COMPILER
def test_symbols_of_a_library(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("""static int number = 3;
extern "C" const int table[5] = {1, 2, 3, 4, 5};
template <typename T> static T of(T x) { static T partial[8]; partial[0] += x; return partial[0]; }
extern "C" float kernel(float x) { static float tile[16]; tile[1] += x; number++; return tile[1] + of(x) + of(number); }
""")
    subprocess.run([*toolchain.compiler().command, "-shared", "-fPIC", "a.cpp", "-o", "a.so"], cwd=tmp_path, check=True)
    data = (tmp_path / "a.so").read_bytes()
    found = statics(data)
    assert any(begin <= value_of(data, "table") and value_of(data, "table") + 20 <= begin + size for begin, size in constants(data))
    shared = [(s.shown, s.kernel, s.bytes) for s in found if s.shared]
    assert sorted(shared, key=str) == [("partial", None, 32), ("partial", None, 32), ("tile", "kernel", 64)]
    assert [s.bytes for s in found if "number" in s.name] == [4]


def test_names_of_static_variables() -> None:
    def static(name: str) -> Static:
        return Static(name, 0, 4)

    assert (static("_ZZ4softE4tile").kernel, static("_ZZ4softE4tile").shown) == ("soft", "tile")
    assert static("_ZZ4softE4tile_0").shown == "tile"
    assert static("_ZZN8pipelinkL13block_combineINS_3SumEdEET0_S2_E7partial").kernel is None
    assert static("_ZZN8pipelinkL13block_combineINS_3SumEdEET0_S2_E7partial").shown == "partial"
    assert not static("_ZL6number").shared


def test_the_sanitizers_own_run_times_are_not_linked() -> None:
    assert "-fsanitize=thread" in toolchain.KERNELS
    assert not any(o.startswith("-fsanitize") for o in (*toolchain.MACHINE, *toolchain.LINK))
