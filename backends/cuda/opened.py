"""The driver in use: CuPy's, opened when a device is first needed, or one that a test puts in its place."""
from __future__ import annotations

import os
import sys
import threading

from pipelink_ir.backends.cuda.driver import FORKED, Driver, opened, was_forked
from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import UsageError

_driver: Driver | None = None
_lock = threading.RLock()


def driver() -> Driver:
    """The driver, opened at the first call. `UsageError` says what is missing and what to do."""
    global _driver
    with _lock:
        if was_forked():
            raise UsageError(FORKED)
        if _driver is None:
            from pipelink_ir.backends.cuda.cupy_driver import CupyDriver
            _driver = CupyDriver()
            opened(True)
        return _driver


def use(other: Driver | None) -> Driver | None:
    """Puts another driver in place of CuPy's, or with None forgets the one in use; what was there before."""
    global _driver
    with _lock:
        before, _driver = _driver, other
        opened(other is not None)
        return before


def likely() -> bool:
    """Whether this machine seems to have a GPU, and CuPy to use it with. Asks no driver, so nothing is started by it."""
    from importlib.util import find_spec
    visible = environment.visible_devices()
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return False
    if sys.platform == "win32":
        there = os.path.exists(r"C:\Windows\System32\nvcuda.dll")
    else:
        there = os.path.exists("/dev/dxg") or any(os.path.exists(f"/dev/nvidia{n}") for n in range(16))
    return there and find_spec("cupy") is not None


def _after_fork() -> None:
    """Another thread may have held the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
