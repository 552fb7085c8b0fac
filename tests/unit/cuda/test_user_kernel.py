"""Kernels that users write: their file, its messages at their places, the header that they see."""
from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pipelink_ir.backends.cuda import nvrtc, prelude
from pipelink_ir.backends.cuda.user_kernel import compile_user, messages, user_kernel
from pipelink_ir.ir.diagnostics import Diagnostic, InternalError, ProgramError
from pipelink_ir.ir.dtypes import BF16, DTYPES, F32
from pipelink_ir.ir.nodes import Apply
from tests.unit.cuda.forms import ROOT, SM90, pipelines, prepared

OPERATOR = """op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{
  kernel cuda "{file}" {{ {settings} }}
  compute {{ %y[n] = 2 * %x[n] }}
}}
pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ %y = @twice(%x) }}
"""
KERNEL = """extern "C" __global__ void twice(const pipelink::TensorView* x, pipelink::TensorView* y, const void* params) {
  const auto* in = static_cast<const float*>(x->data());
  auto* out = static_cast<float*>(y->data());
  for (auto i = pipelink::grid_thread(); i < x->num_elements(); i += pipelink::grid_threads()) out[i] = 2 * in[i];
}
"""


def program(folder: Path, kernel: str | bytes | None = KERNEL, settings: str = 'entry = "twice", block = [256]', file: str = "twice.cu") -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    if kernel is not None:
        (folder / file).write_bytes(kernel if isinstance(kernel, bytes) else kernel.encode())
    path = folder / "twice.plir"
    path.write_text(OPERATOR.format(file=file, settings=settings))
    return path


def fault(path: Path) -> tuple[Diagnostic, ...]:
    """What compiling the kernel of a program reports."""
    op = next(o for o in prepared(path).operators if o.kernel)
    with pytest.raises(ProgramError) as caught:
        compile_user(user_kernel(op), SM90)
    assert all(d.code == "PL4501" for d in caught.value.diagnostics)
    assert caught.value.diagnostics[0].text().startswith(str(caught.value.diagnostics[0].span))
    return caught.value.diagnostics


def at(d: Diagnostic) -> str:
    return f"{Path(d.span.source.path).name}:{d.span.line}:{d.span.column}"


def place(text: str, line: int, word: str) -> str:
    """Where a word stands, as `at` says it."""
    return f"twice.cu:{line}:{text.splitlines()[line - 1].index(word) + 1}"


# ------------------------------------------------------------------------------------------------------------------- file, settings


def test_settings(tmp_path: Path) -> None:
    path = program(tmp_path, settings='entry = "twice", block = [32, 8], grid = ceildiv(N, 256), shared = 4 * N')
    kernel = user_kernel(prepared(path).operators[0])
    assert (kernel.entry, len(kernel.block or ()), len(kernel.grid or ())) == ("twice", 2, 1)
    assert isinstance(kernel.shared, Apply)
    assert kernel.source.text == KERNEL


def test_nothing_but_a_file(tmp_path: Path) -> None:
    kernel = user_kernel(prepared(program(tmp_path, settings="")).operators[0])
    assert (kernel.entry, kernel.block, kernel.grid, kernel.shared) == ("twice", None, None, None)


@pytest.mark.parametrize(("kernel", "text"), [(None, "cannot be read: No such file"), (b"\xff\xfe", "is not UTF-8: byte 0")])
def test_a_file_that_cannot_be_read(tmp_path: Path, kernel: bytes | None, text: str) -> None:
    d, = fault(program(tmp_path, kernel))
    assert at(d) == "twice.plir:2:3"
    assert text in d.message


def test_settings_that_are_no_sizes(tmp_path: Path) -> None:
    d, = fault(program(tmp_path, settings='block = [1, 2, 3, 4]'))
    assert (at(d), d.message) == ("twice.plir:2:28", "'block' is a list of one to three sizes")


# ---------------------------------------------------------------------------------------------------------------------- messages

LOG = """my dir/a "b.cu(3): error: identifier "foo" is undefined
    x[0] = foo + 1;
           ^

my dir/a "b.cu(4): warning #177-D: variable "unused" was declared but never referenced
    int unused = 3;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

a.cu(9): error: no instance of overloaded function "f" matches the argument list
            argument types are: (int)
  f(1);
  ^

x.cu(1): catastrophic error: could not open source file "cuda_fp16.h" (no directories in search list)
  #include <cuda_fp16.h>
                        ^

3 errors detected in the compilation of "unit.cu".
"""


def test_messages_are_read() -> None:
    found = [(m.path, m.line, m.column, m.kind, m.text) for m in messages(LOG)]
    assert found == [
        ('my dir/a "b.cu', 3, 10, "error", 'identifier "foo" is undefined'),
        ('my dir/a "b.cu', 4, 7, "warning", 'variable "unused" was declared but never referenced'),
        ("a.cu", 9, 1, "error", 'no instance of overloaded function "f" matches the argument list argument types are: (int)'),
        ("x.cu", 1, 23, "catastrophic error", 'could not open source file "cuda_fp16.h" (no directories in search list)')]


@pytest.mark.usefixtures("nvrtc")
class TestCompiled:
    def test_the_case(self) -> None:
        code, = pipelines(ROOT / "tests/cases/extern_sobel.plir")
        assert list(code.user_binary("sobel_user").usage) == ["sobel_kernel"]
        assert code.artifacts["cubin"]()[:4] == b"\x7fELF"  # type: ignore[index]
        assert "extern_sobel.cu" in str(code.artifacts["cu"]())

    @pytest.mark.parametrize("folder", ["a b", "é", "名前", 'quo"te', "back\\slash", "-dash", "x" * 200])
    def test_places(self, tmp_path: Path, folder: str) -> None:
        text = KERNEL.replace("2 * in[i]", "two * in[i]").replace("static_cast<float*>", "cast<float*>")
        found = fault(program(tmp_path / folder, text))
        assert [(at(d), d.message) for d in found if "identifier" in d.message] == [
            (place(text, 3, "cast"), 'identifier "cast" is undefined'), (place(text, 4, "two"), 'identifier "two" is undefined')]
        excerpt = found[0].text().splitlines()
        assert excerpt[1].endswith("auto* out = cast<float*>(y->data());")
        assert excerpt[2].index("^") == excerpt[1].index("cast<")
        assert "'@twice' names the file here" in found[0].text()
        assert "twice.plir:2:28" in found[0].text()

    def test_columns_count_characters(self, tmp_path: Path) -> None:
        text = KERNEL.replace("2 * in[i]", "/* é名 */ two * in[i]")
        d, *_ = fault(program(tmp_path, text))
        assert at(d) == place(text, 4, "two")

    def test_crlf(self, tmp_path: Path) -> None:
        text = KERNEL.replace("2 * in[i]", "two * in[i]")
        d, *_ = fault(program(tmp_path, text.replace("\n", "\r\n")))
        assert at(d) == place(text, 4, "two")

    def test_a_header_that_is_not_there(self, tmp_path: Path) -> None:
        d, = fault(program(tmp_path, '#include "nothing.h"\n' + KERNEL))
        assert at(d).startswith("twice.cu:1:")
        assert "nothing.h" in d.message
        assert "beside the file" in (d.help or "") or "nvidia-cuda-runtime" in (d.help or "")

    def test_an_error_in_a_header(self, tmp_path: Path) -> None:
        path = program(tmp_path, '#include "own.h"\n' + KERNEL)
        (tmp_path / "own.h").write_text("int x = ;\n")
        d, = fault(path)
        assert at(d) == "twice.plir:2:28"
        assert "own.h', line 1, included by" in d.message

    def test_headers_beside_the_file(self, tmp_path: Path) -> None:
        path = program(tmp_path, '#include "own.h"\n' + KERNEL.replace("2 *", "TWO *"))
        (tmp_path / "own.h").write_text("#define TWO 2\n")
        assert compile_user(user_kernel(prepared(path).operators[0]), SM90).usage["twice"].registers > 0

    def test_no_such_kernel(self, tmp_path: Path) -> None:
        d, = fault(program(tmp_path, settings='entry = "thrice"'))
        assert (at(d), d.help) == ("twice.plir:2:28", 'entry = "twice"')
        assert "has no kernel called 'thrice'; it has twice" in d.message

    def test_a_kernel_of_c_plus_plus(self, tmp_path: Path) -> None:
        d, = fault(program(tmp_path, KERNEL.replace('extern "C" ', "")))
        assert d.help == 'declare it `extern "C" __global__ void twice(…)`'

    def test_no_kernel_at_all(self, tmp_path: Path) -> None:
        d, = fault(program(tmp_path, "struct Nothing {};\n"))
        assert "it has no kernel at all" in d.message

    def test_what_ptxas_refuses(self, tmp_path: Path) -> None:
        d, = fault(program(tmp_path, KERNEL.replace("  auto*", '  asm("wgmma.fence.sync.aligned;");\n  auto*')))
        assert at(d) == "twice.plir:2:28"
        assert "not supported on .target 'sm_90'" in d.message

    def test_the_prelude_leaves_names_to_users(self, tmp_path: Path) -> None:
        own = "struct f16 { int x; }; struct i64 {}; namespace pl { struct max {}; } static __device__ int min(int a) { return a; }\n"
        path = program(tmp_path, own + KERNEL)
        assert "twice" in compile_user(user_kernel(prepared(path).operators[0]), SM90).usage

    def test_a_view_lies_in_memory_as_it_is_packed(self) -> None:
        """The offsets of the compiler, through static_assert."""
        checks = f"""#include "pipelink.cuh"
static_assert(sizeof(pipelink::TensorView) == {prelude.VIEW_BYTES}, "size");
static_assert(sizeof(pipelink::Status) == {8 * prelude.STATUS_WORDS}, "status");
static_assert(pipelink::TensorView::MAX_RANK == {prelude.MAX_RANK}, "rank");
static_assert(pipelink::OUT_OF_MEMORY == {prelude.OUT_OF_MEMORY}, "memory");
""" + "".join(f"static_assert(int(pipelink::DType::{'boolean' if n == 'bool' else n}) == {k}, \"{n}\");\n" for k, n in enumerate(DTYPES))
        assert nvrtc.compile_source(nvrtc.Source(checks), SM90).usage == {}


def test_packing() -> None:
    data = prelude.pack_view(0x1234, (2, 3), (3, 1), F32)
    assert len(data) == prelude.VIEW_BYTES
    assert struct.unpack_from("<Qqii", data) == (0x1234, 6, 2, 11)
    assert struct.unpack_from("<2q", data, 24) == (2, 3)
    assert struct.unpack_from("<2q", data, 24 + 8 * prelude.MAX_RANK) == (3, 1)
    assert struct.unpack_from("<i", prelude.pack_view(0, (), (), BF16), 20)[0] == 10
    with pytest.raises(InternalError, match="at most 12"):
        prelude.pack_view(0, (1,) * 13, (1,) * 13, F32)
