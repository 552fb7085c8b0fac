"""The ledger: what was inserted and copied, told by `--explain`, refused by `--deny`."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.ledger import KINDS, check_denied, ledger, parse_kinds
from pipelink_ir.passes.manager import parse_passes, run_passes
from tests.unit.cli.command import Done
from tests.unit.runtime.programs import TWICE, matrix, twice

INSERTED = """\
op @twice(%x: tensor<HxWx4xf32>) -> (%y: tensor<HxWx4xf32>) {
  compute { %y[h, w, c] = 2 * %x[h, w, c] }
}
pipeline @main(%x: tensor<HxWx4xf32>) -> (%y: tensor<HxWx4xf32>) on cuda:0 {
  %a = @std.copy(%x) reason = "from cpu to cuda:0"
  %b = @twice(%a) reason = "fallback: no int8 kernel for sm_75"
  %c = @std.cast(%b) {U = f16} reason = "the policy for sm_75"
  %y = @std.cast(%c) {U = f32} reason = "back to what '@main' returns"
}
"""


def test_a_module_is_read_as_a_ledger() -> None:
    module = run_passes(parse(INSERTED, "p.plir"), parse_passes("frontend"), Report())
    entries = ledger(module)
    assert [(e.kind, e.reason) for e in entries] == [
        ("copy", "from cpu to cuda:0"), ("fallback", "no int8 kernel for sm_75"), ("cast", "the policy for sm_75"), ("cast", "back to what '@main' returns")]
    assert [e.bytes for e in entries] == ["16*H*W", "16*H*W", "8*H*W", "16*H*W"]
    assert [e.span.line for e in entries if e.span] == [5, 6, 7, 8]
    assert entries[0].text() == "p.plir:5:8: copy: '%a' = '@std.copy', 16*H*W bytes: from cpu to cuda:0"


def test_a_resumed_stage_has_the_same_ledger() -> None:
    module = run_passes(parse(INSERTED, "p.plir"), parse_passes("frontend"), Report())
    again = run_passes(parse(print_module(module), "dump.plir"), parse_passes("frontend"), Report())
    assert [str(e) for e in ledger(again)] == [str(e) for e in ledger(module)]


def test_devices_that_a_target_has_not() -> None:
    entries = ledger(parse(INSERTED, "p.plir"), "cpu")
    assert [e.kind for e in entries].count("fallback") == 2
    assert "'@main' on cuda:0: asked for cuda:0, runs on the CPU" in str(entries[0])
    assert ledger(parse(TWICE, "p.plir"), "cpu") == ()


def test_denied_entries_are_errors() -> None:
    module = run_passes(parse(INSERTED, "p.plir"), parse_passes("frontend"), Report())
    for kinds, lines in (("copy", [5]), ("cast", [7, 8]), ("copy,fallback", [5, 6]), ("sync", [])):
        report = Report()
        check_denied(ledger(module), parse_kinds([kinds], "--deny"), report, module.pipelines[0].name_span)
        assert [d.span.line for d in report.diagnostics] == lines
        assert all(d.code == "PL5301" and d.severity == "error" for d in report.diagnostics)


def test_kinds_that_do_not_exist() -> None:
    with pytest.raises(pl.UsageError, match="no kind of entry 'copies'; did you mean 'copy'"):
        parse_kinds(["cast,copies"], "--deny")
    with pytest.raises(pl.UsageError, match="deny: there is no kind"):
        pl.compile(TWICE, deny="everything")
    assert parse_kinds([" copy , cast", "copy"], "--deny") == {"copy", "cast"}
    assert all(KINDS.values())


def test_python_compiles_with_denials() -> None:
    on_gpu = TWICE.replace(" {\n  %y = @twice", " on cuda:0 {\n  %y = @twice")
    assert [e.kind for e in pl.compile(on_gpu, "cpu").ledger] == ["fallback"]
    with pytest.raises(pl.ProgramError, match="PL5301"):
        pl.compile(on_gpu, "cpu", deny=["fallback"])
    assert pl.compile(TWICE, deny=["copy", "cast", "fallback"]).ledger == ()


def test_copies_at_a_call_are_entries() -> None:
    compiled = pl.compile(TWICE)
    assert compiled.check({"x": matrix(3, 4)}).entries == ()
    entry, = compiled.check({"x": matrix(4, 3).T}).entries
    assert (entry.kind, entry.bytes) == ("copy", "48")
    assert "the CPU reads dense memory, and the array has the strides [4, 12] (bytes)" in entry.reason
    assert entry.span is not None
    assert entry.span.line == 4


def test_copies_at_a_call_can_be_denied() -> None:
    strict = pl.compile(twice(contiguity="dense"), copies="allow", deny="copy")
    np.testing.assert_array_equal(strict(x=matrix(3, 4)).y, 2 * matrix(3, 4))
    for _ in range(3):
        with pytest.raises(pl.ExecutionError, match=r"PL5301.*'copy' is denied"):
            strict(x=matrix(4, 3).T)


class TestCommand:
    """`--explain` and `--deny`."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> Path:
        (tmp_path / "inserted.plir").write_text(INSERTED)
        (tmp_path / "plain.plir").write_text(TWICE)
        np.save(tmp_path / "x.npy", matrix(3, 4))
        np.save(tmp_path / "x4.npy", matrix(3, 4).reshape(1, 3, 4))
        return tmp_path

    def test_explain(self, pipelinkc: Callable[..., Done], files: Path) -> None:
        done = pipelinkc("inserted.plir", "--target", "reference", "--explain")
        assert done.status == 0
        assert "inserted.plir:5:8: copy: '%a' = '@std.copy', 16*H*W bytes: from cpu to cuda:0" in done.err
        assert "pipeline @main" in done.out
        assert "ledger: nothing was inserted" in pipelinkc("plain.plir", "--explain").err
        assert "ledger: nothing" in pipelinkc("run", "plain.plir", "--in", "x=x.npy", "--explain").err
        assert "from cpu to cuda:0" in pipelinkc("run", "inserted.plir", "--in", "x=x4.npy", "--target", "reference", "--explain").err

    def test_deny(self, pipelinkc: Callable[..., Done], files: Path) -> None:
        for command in (("inserted.plir",), ("run", "inserted.plir", "--in", "x=x4.npy")):
            done = pipelinkc(*command, "--target", "reference", "--deny", "copy,cast")
            assert done.status == 1
            assert "inserted.plir:5:8: error[PL5301]: ledger: '%a' = '@std.copy'" in done.err
            assert done.err.count("error[PL5301]") == 3
            assert done.out == ""
        assert pipelinkc("plain.plir", "--deny", "copy").status == 0
        done = pipelinkc("plain.plir", "--deny", "casts")
        assert (done.status, "did you mean 'cast'?" in done.err) == (2, True)
