"""A played device in place of CuPy's, and a stand-in for CuPy's arrays."""
from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda import opened
from tests.unit.device.emulated import EmulatingDriver, emulate
from tests.unit.device.fake import FakeDriver


class ndarray:
    """As much of CuPy's array as the run time looks at."""

    def __init__(self, driver: FakeDriver, values: Any, device: int = 0, offset: int = 0, strides: tuple[int, ...] | None = None) -> None:
        self._memory = driver.given(values, driver.callers)
        self.data = types.SimpleNamespace(ptr=self._memory.address + offset, device_id=device)
        self.shape, self.dtype, self._strides = np.shape(values), np.asarray(values).dtype, strides

    @property
    def strides(self) -> tuple[int, ...]:
        if self._strides is not None:
            return self._strides
        return tuple(np.empty(self.shape, self.dtype).strides)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatingDriver]:
    """The driver in use, which runs kernels on the processor."""
    emulate(monkeypatch)
    fake = EmulatingDriver(devices=2)
    before = opened.use(fake)
    yield fake
    opened.use(before)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `cupy`."""
    module = types.ModuleType("cupy")
    module.ndarray = ndarray  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module
