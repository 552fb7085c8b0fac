"""The command run in this process, and a program for it."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelink_ir.cli.main import main
from tests.unit.cli.command import SCALE, Done


@pytest.fixture
def pipelinkc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Done]:
    monkeypatch.chdir(tmp_path)

    def run(*args: Any) -> Done:
        capsys.readouterr()
        status = main([str(a) for a in args])
        streams = capsys.readouterr()
        return Done(status, streams.out, streams.err)
    return run


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    path = tmp_path / "scale.plir"
    path.write_text(SCALE)
    return path
