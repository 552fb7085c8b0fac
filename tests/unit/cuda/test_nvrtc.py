"""NVRTC: architectures, logs, failures, the cache. Nothing here needs a GPU."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipelink_ir.backends.cuda import compile as compiling
from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emit import UnitCode, emit_program
from pipelink_ir.backends.cuda.nvrtc import Binary, CompileFailed, Source, Usage
from pipelink_ir.backends.cuda.target_facts import CUDA
from pipelink_ir.backends.loops.form import Store
from pipelink_ir.ir.diagnostics import InternalError, UsageError
from pipelink_ir.ir.dtypes import F32
from pipelink_ir.ir.targets import Arch
from tests.unit.cuda.forms import SM90, I, grid, kernel, load, op, pipelines, program

pytestmark = pytest.mark.usefixtures("nvrtc")
TEXT = '#include "pipelink.cuh"\nextern "C" __global__ void k(float* x) { x[pipelink::grid_thread()] = 1.0f; }\n'


def compiled(text: str = TEXT, arch: Arch = SM90, wide: bool = False) -> Binary:
    return nvrtc.compile_source(Source(text, wide=wide), arch)


def test_a_cubin_is_whole() -> None:
    """CuPy leaves off the last byte. The section header table is the last thing in the file."""
    cubin = compiled().cubin
    assert cubin[:4] == b"\x7fELF"
    offset, size, count = int.from_bytes(cubin[40:48], "little"), int.from_bytes(cubin[58:60], "little"), int.from_bytes(cubin[60:62], "little")
    program, each, number = int.from_bytes(cubin[32:40], "little"), int.from_bytes(cubin[54:56], "little"), int.from_bytes(cubin[56:58], "little")
    assert len(cubin) >= max(offset + size * count, program + each * number)


def test_architectures() -> None:
    assert set(nvrtc.architectures()) >= {75, 80, 86, 90}
    assert ".target sm_75" in compiled(arch=Arch("cuda", 75)).ptx
    assert ".target sm_90a" in compiled(arch=Arch("cuda", 90, "a")).ptx


def test_newer_devices_get_ptx() -> None:
    newest = nvrtc.architectures()[-1]
    b = compiled(arch=Arch("cuda", newest + 50))
    assert b.cubin == b""
    assert b.arch == f"compute_{newest}"
    assert f"does not know sm_{newest + 50}" in (b.note or "")
    assert b.image == b.ptx.encode()
    assert f".target sm_{newest}" in b.ptx


def test_older_devices_are_refused() -> None:
    with pytest.raises(UsageError, match=r"has no 'sm_50'; it compiles for sm_75, sm_80"):
        compiled(arch=Arch("cuda", 50))


def test_options_keep_denormals_and_do_not_contract() -> None:
    ptx = compiled('extern "C" __global__ void k(float* x, double* d) { x[0] = x[1] * x[2] + x[3]; x[4] = x[5] / x[6]; d[0] = d[1] * d[2] + d[3]; }').ptx
    assert "fma" not in ptx.split("{", 1)[1]
    assert ".ftz" not in ptx
    assert "div.rn.f32" in ptx


def test_usage_of_each_kernel() -> None:
    text = '''extern "C" __global__ void a(float* x) { __shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x]; }
    extern "C" __global__ void b(float* x, int n) { float s[200]; for (int i = 0; i < n; i++) s[i] = x[i]; x[0] = s[n / 2]; }'''
    usage = compiled(text).usage
    assert sorted(usage) == ["a", "b"]
    assert usage["a"].shared == 256
    assert usage["b"].stack >= 800
    assert all(u.registers > 0 for u in usage.values())


def test_the_log_is_read() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     400 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 400 bytes cumulative stack size, 768 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'l' for 'sm_90'
ptxas info    : Used 8 registers, used 0 barriers
"""
    usage = nvrtc.parse_usage(log)
    assert usage == {"k": Usage(255, 768, 400, 12, 16), "l": Usage(8, 0, 0, 0, 0)}
    assert str(usage["k"]) == "255 registers, 768 bytes of shared memory, 400 bytes of stack, 28 bytes spilled"


def test_wide_indices() -> None:
    text = emit_program(program(kernel(grid(Store("y", I, load("x"), F32))))).text
    narrow, wide = compiled(text), compiled(text, wide=True)
    assert ".param .u64 test_y_param_2" in wide.ptx
    assert ".param .u32 test_y_param_2" in narrow.ptx


# ----------------------------------------------------------------------------------------------------------------------- failures


def test_a_text_that_is_refused() -> None:
    with pytest.raises(CompileFailed) as caught:
        compiled('extern "C" __global__ void k() { nothing; }')
    assert 'identifier "nothing" is undefined' in caught.value.log


def test_a_text_of_ours_that_is_refused_is_kept(cache_folder: Path) -> None:
    units = [emit_program(program(kernel(grid(Store("y", I, load("x"), F32))))), UnitCode("struct X {};\nstatic_assert(foo);\n", (), CUDA)]
    with pytest.raises(InternalError) as caught:
        compiling.compile_units(units, SM90)
    message = str(caught.value)
    assert 'kernels1.cu(2): error: identifier "foo" is undefined' in message
    kept = Path(message.split("numbered source is in ")[1].removesuffix(")"))
    assert kept.parent == cache_folder / "failed"
    assert kept.read_text() == "    1  struct X {};\n    2  static_assert(foo);\n    3  \n"


def test_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PIPELINK_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "file"))
    assert nvrtc.keep_numbered("x", "refused").startswith("<nowhere")


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._library.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", None)


@pytest.mark.usefixtures("without_cupy")
def test_without_cupy() -> None:
    code, = pipelines("x.plir", PROGRAM)
    try:
        assert not nvrtc.available()
        with pytest.raises(UsageError, match=r"CuPy is not installed: pip install 'pipelink-ir\[cuda13\]'"):
            nvrtc._library()
        assert sorted(code.artifacts) == ["cu", "hip", "loops"]
        with pytest.raises(UsageError, match="CuPy is not installed"):
            raise code.missing("ptx")
    finally:
        nvrtc._library.cache_clear()


# ---------------------------------------------------------------------------------------------------------------------- the cache

PROGRAM = """op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 2 * %x[n] } }
pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @twice(%x) }
"""


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of what NVRTC was really asked for, with a cache of its own."""
    asked: list[str] = []
    real = nvrtc._compile

    def compile(source: Source, header: str, options: list[str]) -> tuple[bytes, str, str]:
        asked.append(source.name)
        return real(source, header, options)

    monkeypatch.setenv("PIPELINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "_compile", compile)
    return asked


def test_what_was_compiled_is_kept(count: list[str]) -> None:
    first, again = compiled(), compiled()
    assert len(count) == 1
    assert first == again
    assert again.usage == first.usage


def test_comments_compile_to_nothing(count: list[str]) -> None:
    assert compiled("// here\n" + TEXT).cubin == compiled("// there\n" + TEXT).cubin
    assert len(count) == 1


@pytest.mark.parametrize("change", ["text", "arch", "wide", "name", "option", "header", "version"])
def test_the_key_has_everything(count: list[str], monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    compiled()
    if change == "option":
        monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--restrict"))
    if change == "header":
        monkeypatch.setattr("pipelink_ir.backends.cuda.prelude.header", lambda facts: CUDA.define() + "namespace pipelink { __device__ int grid_thread() { return 1; } }")
    if change == "version":
        monkeypatch.setattr(nvrtc, "version", lambda: "99.9")
    source = Source(TEXT.replace("1.0f", "2.0f") if change == "text" else TEXT, "other.cu" if change == "name" else "kernels.cu", wide=change == "wide")
    nvrtc.compile_source(source, Arch("cuda", 80) if change == "arch" else SM90)
    assert len(count) == 2


def test_a_damaged_entry_is_made_anew(count: list[str], tmp_path: Path) -> None:
    good = compiled()
    entry, = (p for p in (tmp_path / "cache").rglob("*") if p.is_file())
    entry.write_bytes(entry.read_bytes()[:-7])
    assert compiled().cubin == good.cubin
    assert len(count) == 2


def test_what_includes_folders_is_not_kept(count: list[str], tmp_path: Path) -> None:
    """Their headers are not in the key."""
    (tmp_path / "own.h").write_text("#define VALUE 1.0f\n")
    text = '#include "own.h"\nextern "C" __global__ void k(float* x) { *x = VALUE; }'
    source = Source(text, include=(str(tmp_path),))
    first = nvrtc.compile_source(source, SM90)
    (tmp_path / "own.h").write_text("#define VALUE 2.0f\n")
    assert nvrtc.compile_source(source, SM90).ptx != first.ptx


def test_several_texts_at_once() -> None:
    texts = [TEXT.replace("void k", f"void k{n}") for n in range(5)]
    binaries = nvrtc.compile_sources([Source(t, f"{n}.cu") for n, t in enumerate(texts)], SM90)
    assert [list(b.usage) for b in binaries] == [[f"k{n}"] for n in range(5)]


def test_equal_text_equal_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    total = op("+", load("x"), load("x"))
    text = emit_program(program(kernel(grid(Store("y", I, total, F32))))).text
    made = []
    for folder in ("a", "b"):
        monkeypatch.setenv("PIPELINK_CACHE_DIR", str(tmp_path / folder))
        made.append(compiled(text).cubin)
    assert made[0] == made[1]
