"""The command run in this process, and a program for it."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.command import SCALE, Done, in_process


@pytest.fixture
def pipelinkc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Done]:
    monkeypatch.chdir(tmp_path)
    return in_process(capsys)


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    path = tmp_path / "scale.plir"
    path.write_text(SCALE)
    return path
