"""`pipelinkc FILE --target sm_XX --emit …`, on a machine without a GPU."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelink_ir.backends.cuda import nvrtc
from tests.unit.cli.command import Done, in_process
from tests.unit.cuda.test_user_kernel import KERNEL, OPERATOR

MIXED = OPERATOR.replace("}}\npipeline", """}}
op @thrice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ compute {{ %y[n] = 3 * %x[n] }} }}
pipeline""").replace("%y = @twice(%x)", "%t = @twice(%x)\n  %y = @thrice(%t)")
PLAIN = """op @thrice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 3 * %x[n] } }
pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @thrice(%x) }
"""
Command = Callable[..., Done]


@pytest.fixture
def pipelinkc(capsys: pytest.CaptureFixture[str]) -> Command:
    return in_process(capsys)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.plir"
    path.write_text(PLAIN)
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.plir"
    path.write_text(MIXED.format(file="twice.cu", settings='entry = "twice", block = [256]'))
    (tmp_path / "twice.cu").write_text(KERNEL)
    return path


def test_the_text_is_a_whole_file(pipelinkc: Command, plain: Path) -> None:
    done = pipelinkc(plain, "--target", "sm_75", "--emit", "cuda")
    assert (done.status, done.err) == (0, "")
    assert "#include" not in done.out.replace("//", "")
    assert f"// {plain}:1: op @thrice" in done.out
    assert "thrice_y(const float* __restrict__ x, float* __restrict__ y, const index_t N) {" in done.out


def test_the_loops_are_those_of_a_gpu(pipelinkc: Command, plain: Path) -> None:
    text = pipelinkc(plain, "--target", "sm_75", "--emit", "loops").out
    assert "grid for n in 0.." in text
    assert "move %y[" in text


@pytest.mark.usefixtures("nvrtc")
class TestCompiled:
    def test_ptx(self, pipelinkc: Command, plain: Path) -> None:
        done = pipelinkc(plain, "--target", "sm_80", "--emit", "ptx")
        assert (done.status, done.err) == (0, "")
        assert ".target sm_80" in done.out
        assert ".entry thrice_y(" in done.out

    def test_cubin_and_what_the_compiler_says(self, pipelinkc: Command, plain: Path, tmp_path: Path) -> None:
        done = pipelinkc(plain, "--target", "sm_90", "-o", tmp_path / "x.cubin", "-v")
        assert (done.status, done.out) == (0, "")
        assert (tmp_path / "x.cubin").read_bytes()[:4] == b"\x7fELF"
        assert "thrice_y: " in done.err
        assert " registers, 0 bytes of shared memory, 0 bytes of stack\n" in done.err

    def test_an_older_architecture(self, pipelinkc: Command, plain: Path) -> None:
        done = pipelinkc(plain, "--target", "sm_50", "--emit", "ptx")
        assert done.status == 2
        assert "has no 'sm_50'; it compiles for sm_75" in done.err

    def test_a_newer_one(self, pipelinkc: Command, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nvrtc, "architectures", lambda: (75, 80))
        done = pipelinkc(plain, "--target", "sm_90", "--emit", "ptx", "-v")
        assert ".target sm_80" in done.out
        assert "does not know sm_90: this is PTX for sm_80" in done.err
        refused = pipelinkc(plain, "--target", "sm_90", "--emit", "cubin")
        assert refused.status == 2
        assert "there is no cubin for sm_90" in refused.err

    def test_everything_in_a_folder(self, pipelinkc: Command, mixed: Path, tmp_path: Path) -> None:
        assert pipelinkc(mixed, "--target", "sm_90", "--dump-dir", tmp_path / "d").status == 0
        names = {p.name.split(".", 1)[1] for p in (tmp_path / "d").iterdir()}
        assert {"main.loops", "main.cu", "main.hip", "main.ptx", "main.log", "main.kernels.cubin", "main.twice.cubin"} <= names

    def test_kernels_in_files_of_their_own(self, pipelinkc: Command, mixed: Path) -> None:
        ptx = pipelinkc(mixed, "--target", "sm_90", "--emit", "ptx").out
        assert ".entry twice(" in ptx
        assert ".entry thrice_y(" in ptx
        refused = pipelinkc(mixed, "--target", "sm_90", "--emit", "cubin")
        assert refused.status == 2
        assert "'@twice' are kernels in files of their own" in refused.err
        text = pipelinkc(mixed, "--target", "sm_90", "--emit", "cuda").out
        assert "// The kernel of '@twice': " in text
        assert text.endswith(KERNEL)

    def test_a_user_s_mistake(self, pipelinkc: Command, mixed: Path, tmp_path: Path) -> None:
        (tmp_path / "twice.cu").write_text(KERNEL.replace("2 * in[i]", "two * in[i]"))
        done = pipelinkc(mixed, "--target", "sm_90", "--emit", "ptx")
        assert done.status == 1
        assert f"{tmp_path / 'twice.cu'}:4:105: error[PL4501]: kernel: identifier \"two\" is undefined" in done.err
        assert "mixed.plir:2:28: note: '@twice' names the file here" in done.err


@pytest.mark.usefixtures("no_gpu")
def test_an_architecture_needs_a_gpu_to_run(plain: Path, pipelinkc: Command, tmp_path: Path) -> None:
    import numpy as np

    import pipelink_ir
    from pipelink_ir.ir.diagnostics import ProgramError
    compiled = pipelink_ir.compile(plain, target="sm_90")
    assert "thrice_y(" in compiled.as_text("cu")
    for call in (lambda: compiled(x=np.ones(3, np.float32)), lambda: compiled.check({"x": np.ones(3, np.float32)}), lambda: compiled.arena_bytes(x=(3,))):
        with pytest.raises(ProgramError, match="'sm_90' is an architecture to compile for, and there is no GPU to run it on: none here"):
            call()
    np.savez(tmp_path / "in.npz", x=np.ones(3, np.float32))
    for command in (("run", plain, "--inputs", tmp_path / "in.npz"), ("bench", plain, "--size", "N=3")):
        done = pipelinkc(*command, "--target", "sm_90")
        assert done.status == 2
        assert "error[PL9001]: unsupported: 'sm_90' is an architecture to compile for" in done.err
        assert "the target 'cuda-emulated:sm_90' plays it on the processor" in done.err


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.backends.cuda import opened
    from pipelink_ir.ir.diagnostics import UsageError

    def none() -> None:
        raise UsageError("none here")
    monkeypatch.setattr(opened, "driver", none)
