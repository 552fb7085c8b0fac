"""`tests/cases/check_bad.py` in this process: what a faulty program's markers ask of the diagnostics, without the cost of starting Python."""
from __future__ import annotations

import contextlib
import importlib.util
import io
import types
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[1] / "cases" / "check_bad.py"


class InProcess:
    """Stands in for `subprocess`: the command is `pipelinkc` whatever its first words are."""

    TimeoutExpired = TimeoutError

    @staticmethod
    def run(command: list[str], **_: Any) -> Any:
        from pipelink_ir.cli.main import main
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(command)
        out.flush()
        err.flush()
        return types.SimpleNamespace(returncode=code, stdout=out.buffer.getvalue(), stderr=err.buffer.getvalue())


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("check_bad", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.subprocess = InProcess
    return module


CHECKER = _load()


def faults(path: Path, *, good: bool = False) -> list[str]:
    """What does not hold of the diagnostics of a program; an internal error or a traceback is always among it."""
    return list(CHECKER.check(str(path), [], good, 30))


def field_of(path: Path) -> str:
    """The field that the marker of a faulty program names."""
    return next(field for kind, field, *_ in CHECKER.markers(str(path)) if kind in ("error", "warning"))
