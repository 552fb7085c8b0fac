"""The collector of Python waits while passes run: what they make is immutable and holds no cycles, so there is nothing to find, and every search looks at the
whole program again, which costs a third of the time and grows faster than the program."""
from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = 0
_was_on = False


@contextmanager
def collector_waits() -> Iterator[None]:
    """Inside, there are no collections; several threads may be inside."""
    global _waiting, _was_on
    with _lock:
        if _waiting == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _waiting += 1
    try:
        yield
    finally:
        with _lock:
            _waiting -= 1
            if _waiting == 0 and _was_on:
                gc.enable()
