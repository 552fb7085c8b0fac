"""The folder of compiled code of these tests, and what all of them need."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated import NEEDS_COMPILER


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled code of the tests stays away from the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIPELINK_CACHE_DIR", str(folder))
        yield folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "toolchain" not in item.path.stem:
            item.add_marker(NEEDS_COMPILER)
