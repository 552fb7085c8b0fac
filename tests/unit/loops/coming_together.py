"""Threads of a warp that come together in the middle of a loop: each is played by a thread of Python, and only one of all runs at a time."""
from __future__ import annotations

import threading
from collections.abc import Callable


class Player:
    """Something that runs until it pauses, and goes on when it is told to."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run, self._go, self._back = run, threading.Semaphore(0), threading.Semaphore(0)
        self._fault: BaseException | None = None
        self.ended = False
        threading.Thread(target=self._play, daemon=True).start()

    def _play(self) -> None:
        self._go.acquire()
        try:
            self._run()
        except BaseException as fault:
            self._fault = fault
        self.ended = True
        self._back.release()

    def go_on(self) -> None:
        """Until it pauses or ends; what it raises is raised here."""
        self._go.release()
        self._back.acquire()
        if self._fault is not None:
            raise self._fault

    def pause(self) -> None:
        """Called from inside."""
        self._back.release()
        self._go.acquire()
