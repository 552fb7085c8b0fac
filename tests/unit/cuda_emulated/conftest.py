"""The folder of compiled code of these tests, and what all of them need."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated import NEEDS_COMPILER


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled code of the tests stays away from the user's, unless they are told where it is to be kept."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("PIPELINK_CACHE_DIR"):
            patch.setenv("PIPELINK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "toolchain" not in item.path.stem:
            item.add_marker(NEEDS_COMPILER)
