"""Which operators go to cuBLASLt, which do not and why: decided without a device, written into the schedule, told by the ledger."""
from __future__ import annotations

from pathlib import Path

import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import print_module
from pipelink_ir.ir.diagnostics import ProgramError

GELU = "0.5 * {0} * (1 + tanh(0.7978845608028654 * ({0} + 0.044715 * {0} ** 3)))"
PLAIN = "sum[k < K](%x[i, k] * %w[k, j])"


def program(body: str, *, more: str = "", listed: str = "cublaslt, generated", x: str = "MxKxf16", w: str = "KxNxf16", b: str = "Nxf16", y: str = "MxNxf16",
            section: str = "", attribute: str = "", given: str = "") -> str:
    return f"""op @mm(%x: tensor<{x}>, %w: tensor<{w}>, %b: tensor<{b}>{attribute}) -> (%y: tensor<{y}>) {{
  compile {{ library = [{listed}]{more} }}
  {section}
  compute {{ {body} }}
}}
pipeline @p(%x: tensor<{x}>, %w: tensor<{w}>, %b: tensor<{b}>) -> (%y: tensor<{y}>) {{
  %y = @mm(%x, %w, %b) {given}
}}
"""


def decided(text: str, target: str = "sm_90") -> tuple[str, str]:
    """The section of the schedule, and what the ledger says of the library."""
    p = pl.compile(text, target=target)
    line = print_module(p.module).partition("target = cuda")[2].partition("compute {")[0]
    entries = [str(e) for e in p.ledger if "cuBLASLt" in str(e)]
    return line, entries[0] if entries else ""


def given(**words: str) -> dict[str, str]:
    return words


MATCHES = {
    "product": (given(body=f"%y[i, j] = {PLAIN}"), ()),
    "bias": (given(body=f"%y[i, j] = {PLAIN} + %b[j]"), ("a bias",)),
    "bias first": (given(body=f"%y[i, j] = %b[j] + {PLAIN}"), ("a bias",)),
    "scale": (given(body=f"%y[i, j] = 0.5 * {PLAIN} + %b[j]"), ("a scale", "a bias")),
    "scale behind": (given(body=f"%y[i, j] = {PLAIN} * 0.5"), ("a scale",)),
    "scale that is given": (given(body=f"%y[i, j] = a * {PLAIN}", attribute=", a: f32 = 1.0", given="{a = 3.0}"), ("a scale",)),
    "in steps": (given(body="%s[r, c] = sum[t < K](%w[t, c] * %x[r, t]) %t[i, j] = %s[i, j] + %b[j] %y[i, j] = %t[i, j]"), ("a bias",)),
    "gelu": (given(body=f"%s[i, j] = {PLAIN} + %b[j] %y[i, j] = {GELU.format('%s[i, j]')}", more=", fast_math = true"), ("a bias", "gelu")),
    "gelu, otherwise": (given(body=f"let c = sqrt(2 / pi) %s[i, j] = {PLAIN} %y[i, j] = %s[i, j] * (0.5 + 0.5 * tanh(c * %s[i, j] * (1 + 0.044715 * %s[i, j] * %s[i, j])))",
                             more=", fast_math = true"), ("gelu",)),
    "f32 of f16": (given(body=f"%y[i, j] = {PLAIN} + %b[j]", b="Nxf32", y="MxNxf32"), ("a bias",)),
    "f32": (given(body=f"%y[i, j] = {PLAIN} + %b[j]", x="MxKxf32", w="KxNxf32", b="Nxf32", y="MxNxf32"), ("a bias",)),
    "f64": (given(body=f"%y[i, j] = {PLAIN} + %b[j]", x="MxKxf64", w="KxNxf64", b="Nxf64", y="MxNxf64"), ("a bias",)),
    "bf16": (given(body=f"%y[i, j] = {PLAIN} + %b[j]", x="MxKxbf16", w="KxNxbf16", b="Nxbf16", y="MxNxbf16"), ("a bias",)),
    "turned": (given(body="%y[i, j] = sum[k < K](%x[k, i] * %w[j, k])", x="KxMxf16", w="NxKxf16"), ()),
    "a batch": (given(body="%y[a, c, i, j] = sum[k < K](%x[a, c, i, k] * %w[a, c, k, j])", x="AxCxMxKxf16", w="AxCxKxNxf16", y="AxCxMxNxf16"), ()),
    "rows in parts": (given(body="%y[a, i, j] = sum[k < K](%x[a, i, k] * %w[k, j])", x="AxMxKxf16", y="AxMxNxf16"), ()),
    "known sizes": (given(body="%y[i, j] = sum[k < 64](%x[i, k] * %w[k, j])", x="32x64xf16", w="64x48xf16", b="48xf16", y="32x48xf16"), ()),
}


@pytest.mark.parametrize("name", MATCHES)
def test_what_the_library_computes(name: str) -> None:
    words, epilogue = MATCHES[name]
    line, entry = decided(program(**words))
    assert "kernel = cublaslt" in line
    assert ("epilogue = %y" in line) == bool(epilogue)
    assert entry.startswith("other: '%y' = '@mm")
    assert (f", with {' and '.join(epilogue)} in its epilogue" if epilogue else "'%y':") in entry


DECLINES = {
    "gelu by erf": (given(body=f"%s[i, j] = {PLAIN} + %b[j] %y[i, j] = 0.5 * %s[i, j] * (1 + erf(%s[i, j] / sqrt(2)))", more=", fast_math = true"), "this one is by erf"),
    "gelu as exact as the language": (given(body=f"%s[i, j] = {PLAIN} + %b[j] %y[i, j] = {GELU.format('%s[i, j]')}"), "'fast_math = true' allows it"),
    "another tanh": (given(body=f"%s[i, j] = {PLAIN} %y[i, j] = 0.5 * %s[i, j] * (1 + tanh(0.79 * (%s[i, j] + 0.044715 * %s[i, j] ** 3)))", more=", fast_math = true"),
                     "none of its epilogues"),
    "relu": (given(body=f"%y[i, j] = max({PLAIN} + %b[j], 0)"), "its relu makes 0 of what is no number"),
    "sigmoid": (given(body=f"%y[i, j] = 1 / (1 + exp(-{PLAIN}))"), "none of its epilogues"),
    "f8": (given(body=f"%y[i, j] = {PLAIN}", x="MxKxf8e4m3", w="KxNxf8e4m3"), "fewer bits than f32"),
    "bytes": (given(body=f"%y[i, j] = {PLAIN}", x="MxKxi8", w="KxNxi8", b="Nxi32", y="MxNxi32"), "it is not called for i8"),
    "two dtypes": (given(body=f"%y[i, j] = {PLAIN}", w="KxNxbf16"), "one factor is f16, the other bf16"),
    "a result that it does not make": (given(body=f"%y[i, j] = {PLAIN}", x="MxKxf32", w="KxNxf32"), "it makes no f16 of f32"),
    "a bias of another dtype": (given(body=f"%y[i, j] = {PLAIN} + %b[j]", b="Nxf32"), "its bias has the dtype of the result, f16, and '%b' is f32"),
    "a bias along rows": (given(body=f"%y[i, j] = {PLAIN} + %b[i]", b="Mxf16"), "along other axes than the last"),
    "a residual": (given(body=f"%y[i, j] = {PLAIN} + %b[i, j]", b="MxNxf16"), "along other axes than the last"),
    "a factor that is computed": (given(body="%y[i, j] = sum[k < K](2 * %x[i, k] * %w[k, j])"), "a factor is computed"),
    "a filter": (given(body="%y[i, j] = sum[k < K where k <= i](%x[i, k] * %w[k, j])"), "without a filter"),
    "every second column": (given(body="%y[i, j] = sum[k < K](%x[i, k] * %w[k, 2 * j])", w="Kx(2 * N)xf16"), "'%w' is not read as it lies in memory"),
    "a part of the columns": (given(body="%y[i, j] = sum[k < K](%x[i, k] * %w[k, j])", w="Kx(N + 8)xf16"), "only a part of '%w' is read"),
    "axes that lie between": (given(body="%y[a, i, j] = sum[k < K](%x[i, a, k] * %w[a, k, j])", x="MxAxKxf16", w="AxKxNxf16", y="AxMxNxf16"),
                              "'%x' does not lie in memory as a matrix"),
    "a result turned about": (given(body="%y[j, i] = sum[k < K](%x[i, k] * %w[k, j]) + %b[j]", y="NxMxf16"), "along other axes than the last"),
    "rounded between": (given(body=f"%s[i, j] = {PLAIN} %y[i, j] = f16(%s[i, j]) + %b[j]"), "none of its epilogues"),
    "no product": (given(body="%y[i, j] = sum[k < K](%x[i, k]) * %b[j]"), "no sum of products of two factors"),
    "two products": (given(body=f"%y[i, j] = {PLAIN} * sum[k < K](%x[i, k] * %w[k, j] * 2)"), "more than one reduction"),
    "no sum": (given(body="%y[i, j] = %b[j]"), "it is no product of two matrices"),
    "exactly": (given(body=f"%y[i, j] = {PLAIN}", more=", accuracy = exact"), "'accuracy = exact'"),
    "two scales": (given(body=f"%y[i, j] = %b[j] * {PLAIN}"), "its scale is one number for all sums"),
}


@pytest.mark.parametrize("name", DECLINES)
def test_what_it_does_not_and_why(name: str) -> None:
    words, why = DECLINES[name]
    line, entry = decided(program(**words))
    assert "kernel = generated" in line
    assert entry.startswith("declined: '%y' = '@mm': cuBLASLt does not compute it: ")
    assert why in entry
    with pytest.raises(ProgramError) as caught:
        pl.compile(program(**words, listed="cublaslt"), target="sm_90")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.span.line) == ("PL4101", 2)
    assert "runs on cublaslt alone, and cuBLASLt does not compute it" in diagnostic.message
    assert why in diagnostic.message
    assert "add 'generated' to the list" in (diagnostic.help or "")


def test_the_order_of_the_list_decides() -> None:
    line, entry = decided(program(f"%y[i, j] = {PLAIN}", listed="generated, cublaslt"))
    assert "kernel = generated" in line
    assert "the compiler's own code computes it, which stands before cuBLASLt" in entry


@pytest.mark.parametrize(("kernel", "listed", "words"), [("cublaslt", "generated, cublaslt", "its schedule asks for it"),
                                                         ("generated", "cublaslt, generated", "as its schedule says")])
def test_a_schedule_overrides_the_list(kernel: str, listed: str, words: str) -> None:
    p = pl.compile(program(f"%y[i, j] = {PLAIN}", listed=listed, section=f"schedule {{ kernel = {kernel} }}"), target="sm_90")
    assert f"kernel = {kernel}" in print_module(p.module).partition("target = cuda")[2].partition("\n")[0]
    assert any(words in str(e) for e in p.ledger)


def test_a_schedule_that_the_contract_does_not_allow() -> None:
    text = program(f"%y[i, j] = {PLAIN}", listed="generated", section="schedule { kernel = cublaslt }")
    with pytest.raises(ProgramError) as caught:
        pl.compile(text, target="sm_90")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.span.line) == ("PL5501", 3)
    assert "does not list it" in diagnostic.message


def test_a_dump_says_the_same(tmp_path: Path) -> None:
    for name in ("bias", "a residual"):
        words = (MATCHES.get(name) or DECLINES[name])[0]
        first = pl.compile(program(**words), target="sm_90")
        text = print_module(first.module)
        again = pl.compile(text, target="sm_90")
        assert print_module(again.module) == text
        assert [str(e) for e in again.ledger if "cuBLASLt" in str(e)] == [str(e) for e in first.ledger if "cuBLASLt" in str(e)]


def test_where_there_is_no_device() -> None:
    p = pl.compile(program(f"%y[i, j] = {PLAIN}"), target="cuda-emulated")
    told = [str(e) for e in p.ledger]
    assert "on the processor the compiler's own kernels play it" in told[0]
    assert "is a product on tensor cores" in told[1]
    for target in ("cpu", "reference"):
        assert pl.compile(program(f"%y[i, j] = {PLAIN}", listed="cublaslt"), target=target).ledger == ()
