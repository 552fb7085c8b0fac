"""Threads for parallel loops: one pool a process, made when it is first needed, made anew in a forked child.

Workers are Python threads that sit in machine code (`driver.py`) and never touch a Python object until the process ends.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import threading

from pipelink_ir.backends.cpu import jit
from pipelink_ir.backends.cpu.driver import LINE_WORDS, POOL_LINES, driver_text
from pipelink_ir.ir import environment

_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_VISIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Driver:
    """The machine code of `driver.py`."""

    def __init__(self) -> None:
        target = jit.host()
        triple, layout = jit.layout(target)
        text = f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n' + driver_text()
        self.library = jit.Library([jit.compile_object(text, target)], ["run", "worker", "halt"])
        self.run = _RUN(self.library.address("run"))
        self.worker = _VISIT(self.library.address("worker"))
        self.halt = _VISIT(self.library.address("halt"))


_made: _Driver | None = None
_making = threading.Lock()


def _driver() -> _Driver:
    """The only one: threads sit in the code of the first for good, so a second, made at the same moment, must never take its place."""
    global _made
    if _made is None:
        with _making:
            if _made is None:
                _made = _Driver()
    return _made


class _Pool:
    """The memory that a pool's threads share, and the threads."""

    def __init__(self) -> None:
        words = POOL_LINES * LINE_WORDS
        self._memory = (ctypes.c_int64 * (words + LINE_WORDS))()
        self.address = -(-ctypes.addressof(self._memory) // 128) * 128
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    def grow(self, workers: int) -> None:
        """At least so many threads."""
        with self.lock:
            while len(self.threads) < workers:
                thread = threading.Thread(target=_driver().worker, args=(self.address,), name=f"pipelink-{len(self.threads)}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system gives no more threads, or the process is ending: those that there are suffice
                    return
                self.threads.append(thread)

    def stop(self) -> None:
        """Sends the threads home: machine code must not vanish under them."""
        with self.lock:
            if self.threads:
                _driver().halt(self.address)
                for thread in self.threads:
                    thread.join()
                self.threads.clear()


_pool: _Pool | None = None
_pool_lock = threading.Lock()


def _current() -> _Pool:
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = _Pool()
    return _pool


def _after_fork() -> None:
    """The child has none of the threads; the old memory may say that a job is going on."""
    global _pool, _pool_lock, _making
    _pool, _pool_lock, _making = None, threading.Lock(), threading.Lock()


def start(threads: int) -> int:
    """A pool in which a caller and `threads` - 1 workers run; its address."""
    pool = _current()
    if len(pool.threads) < threads - 1:
        pool.grow(threads - 1)
    return pool.address


def shut_down() -> None:
    """End the workers. No call may be running; the next one makes a new pool."""
    global _pool
    with _pool_lock:
        old, _pool = _pool, None
    if old is not None:
        old.stop()


atexit.register(shut_down)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run_plan(steps: int, count: int, status: int) -> int:
    """Run the `count` steps at the address `steps` (layout in `driver.py`), loops on as many threads as the environment allows. The number of the step
    that wrote to the status block, -1 if none did."""
    threads = environment.num_threads()
    return int(_driver().run(steps, count, start(threads), threads, status))
