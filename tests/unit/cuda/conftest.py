"""Fixtures of the tests of the CUDA backend."""
from __future__ import annotations

import pytest

from tests.cache import cache_folder as cache_folder


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """Skips where CUDA cannot be compiled."""
    from pipelink_ir.backends.cuda.nvrtc import available
    if not available():
        pytest.skip("NVRTC is not installed: pip install 'pipelink-ir[cuda13]'")
