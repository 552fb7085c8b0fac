"""What nobody would do on purpose, and somebody will: each is answered by an error of the user's, at its place, and never by a wrong result."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.cli.main import main

PRODUCT = """\
op @first(%x: tensor<Nxf32>) -> (%y: tensor<(SIZE)xf32>) {
  compute { %y[i] = f32(i) }
}

op @total(%x: tensor<Nxf32>) -> (%s: tensor<f32>) {
  compute { %s = sum[i < N](%x[i]) }
}

pipeline @main(%x: tensor<Nxf32>) -> (%s: tensor<f32>) {
  %y = @first(%x)
  %s = @total(%y)
}
"""

SCALED = """\
op @scaled(%x: tensor<Nxf32>, by: f32) -> (%y: tensor<Nxf32>) {
  compute { %y[n] = by * %x[n] }
}

pipeline @main(%x: tensor<Nxf32>, by: f32 = 2.0) -> (%y: tensor<Nxf32>) {
  %y = @scaled(%x) {by = by}
}
"""


@pytest.fixture(scope="module")
def scaled() -> pl.Compiled:
    return pl.compile(SCALED)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("size", "n"), [("N * N * N * N", 65536), ("N * 4611686018427387904", 4), ("N * 9223372036854775807", 3),
                                         ("N * 4611686018427387904 floordiv 4", 4), ("N ** 4", 65536)])
def test_sizes_beyond_addresses_do_not_wrap_around(target: str, size: str, n: int) -> None:
    compiled = pl.compile(PRODUCT.replace("SIZE", size), target)
    with pytest.raises(pl.ContractViolationError, match=r"'%y' would be larger than memory can be") as caught:
        compiled(x=np.zeros(n, np.float32))
    assert caught.value.field == "shape"
    span = caught.value.diagnostics[0].span
    assert span.source.text is not None
    assert span.source.text[span.start:span.end] == "%y"


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_sizes_that_fit_are_taken(target: str) -> None:
    compiled = pl.compile(PRODUCT.replace("SIZE", "N * N * N * N"), target)
    assert compiled(x=np.zeros(4, np.float32)).s == 255 * 256 / 2
    assert compiled(x=np.zeros(0, np.float32)).s == 0


def test_an_attribute_in_a_call(scaled: pl.Compiled) -> None:
    with pytest.raises(pl.ExecutionError, match="'by' is an attribute of '@main', not an input") as caught:
        scaled(x=np.zeros(3, np.float32), by=3.0)
    assert caught.value.diagnostics[0].help == "give it when the program is compiled: compile(…, by=…)"


@pytest.mark.parametrize(("value", "says"), [(10 ** 400, "an integer beyond 64 bits"), ("1" * 400, "an integer beyond 64 bits"),
                                             (np.zeros(2), "is f32, not array"), (np.zeros(0), "is f32, not array"), (1j, "is f32, not 1j")])
def test_values_of_attributes_that_are_none(value: Any, says: str) -> None:
    with pytest.raises(pl.UsageError, match=says):
        pl.compile(SCALED, by=value)


def test_calls_that_are_spelled_wrong(scaled: pl.Compiled) -> None:
    x = np.zeros(3, np.float32)
    with pytest.raises(pl.UsageError, match="arrays are given by name: x=…"):
        scaled(x)
    with pytest.raises(pl.UsageError, match="copies is 'allow' or 'refuse', not 'maybe'"):
        scaled(x=x, copies="maybe")
    with pytest.raises(pl.UsageError, match="no result '%3'"):
        scaled(x=x, out={3: x})


@pytest.mark.parametrize(("array", "helps"), [("text", "give an array of 'numpy.float32'"), (None, "give an array of 'numpy.float32'"),
                                              (np.zeros(3, np.complex64), "convert it with '.astype(numpy.float32)'")])
def test_help_names_no_dtype_that_a_signature_cannot_say(scaled: pl.Compiled, array: Any, helps: str) -> None:
    with pytest.raises(pl.ContractViolationError) as caught:
        scaled(x=array)
    assert caught.value.diagnostics[0].help == helps


def test_a_program_in_one_line_is_taken_for_a_path() -> None:
    with pytest.raises(pl.ProgramError, match="is it the text of a program"):
        pl.compile(" ".join(SCALED.split()))


def test_the_command_shows_no_line_of_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.plir").write_text(SCALED)
    assert main(["run", str(tmp_path / "p.plir")]) == 1
    said = capsys.readouterr().err
    assert "the input '%x' is missing" in said
    assert "--in x=FILE" in said
    assert ".py" not in said


def test_an_import_whose_name_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "p.plir"
    path.write_text('import "' + "a" * 5000 + '.plir"\n' + SCALED)
    with pytest.raises(pl.ProgramError, match="there is no file") as caught:
        pl.compile(path)
    assert caught.value.diagnostics[0].span.start == 0


def test_help_for_an_architecture_shows_the_clause() -> None:
    program = "target @old { arch = sm_75 }\n\n" + SCALED.replace("{\n  compute", "{\n  downgrade sm_75 unsupported\n  compute", 1)
    with pytest.raises(pl.ProgramError, match="unsupported on sm_75") as caught:
        pl.compile(program)
    assert "'downgrade sm_75 { … }'" in (caught.value.diagnostics[0].help or "")


# ------------------------------------------------------------------------------------------------------------------ no texts from Python


@pytest.mark.parametrize(("call", "said"), [
    (lambda: pl.compile(SCALED, target=75), "'target' is a text, not 75 (int)"),  # type: ignore[arg-type]
    (lambda: pl.compile(SCALED, target=["cpu"]), "'target' is a text, not ['cpu'] (list)"),  # type: ignore[arg-type]
    (lambda: pl.compile(SCALED, pipeline=3), "'pipeline' is a text, not 3 (int)"),  # type: ignore[arg-type]
    (lambda: pl.compile(SCALED, passes=5), "'passes' is a text, not 5 (int)"),  # type: ignore[arg-type]
    (lambda: pl.compile(None), "a program is the path of a file or a text, not None (NoneType)"),  # type: ignore[arg-type]
    (lambda: pl.calibrate(SCALED, [], method=1), "'method' is a text, not 1 (int)"),  # type: ignore[arg-type]
    (lambda: pl.calibrate(SCALED, [], targets=["sm_75", 80]), "'targets[1]' is a text, not 80 (int)"),  # type: ignore[list-item]
    (lambda: pl.calibrate(3, []), "a program is the path of a file or a text, not 3 (int)"),  # type: ignore[arg-type]
    (lambda: pl.compare(SCALED, "cpu", 90, []), "'b' is a text, not 90 (int)"),  # type: ignore[arg-type]
])
def test_what_is_no_text_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(pl.UsageError) as caught:
        call()
    assert str(caught.value) == said


def test_architectures_that_nothing_is_lowered_for_are_not_offered() -> None:
    with pytest.raises(pl.UsageError) as caught:
        pl.calibrate(SCALED, [{"x": np.ones(3, np.float32)}], targets="sm_99")
    assert "sm_90" in str(caught.value)
    assert "reference" not in str(caught.value)
