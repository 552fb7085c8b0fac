"""Fixtures of the tests of the CUDA backend."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled code of the tests stays away from the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIPELINK_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """Skips where CUDA cannot be compiled."""
    from pipelink_ir.backends.cuda.nvrtc import available
    if not available():
        pytest.skip("NVRTC is not installed: pip install 'pipelink-ir[cuda13]'")
