"""Environment variables: every one that PipeLink reads, with its type, its default and what it does. Nothing else reads `os.environ`.

Values are read when they are asked for, so that a test or a host program may change them at any time. A project file may give some of them another
default (`defaults`); a variable that is set wins over it.
"""
from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable as the documentation lists it."""

    name: str
    default: str
    doc: str


VARIABLES = (
    Variable("PIPELINK_CACHE_DIR", "$XDG_CACHE_HOME/pipelink or ~/.cache/pipelink", "the folder of compiled code; `off`, or one that cannot be written: none"),
    Variable("CXX", "c++, g++ or clang++", "the C++ compiler with which the target `cuda-emulated` makes kernels for CUDA run on the processor"),
    Variable("PIPELINK_NUM_THREADS", "the processors this process may use", "how many threads one loop of the CPU backend may run on, 1 for none of its own"),
    Variable("PIPELINK_LOG_LEVEL", "warning", "what goes to standard error: debug (each array beside the contract it is held against), info, warning, error"),
    Variable("PIPELINK_GRAPHS", "16", "how many CUDA graphs a pipeline keeps, one for sizes that come again; `off`: each call launches its kernels"),
)
"""Every variable of ours."""


LOG_LEVELS = ("debug", "info", "warning", "error")

_defaults: ContextVar[Mapping[str, str]] = ContextVar("defaults")


@contextmanager
def defaults(values: Mapping[str, str]) -> Iterator[None]:
    """Other defaults for variables, for what is done inside: those of a project file."""
    token = _defaults.set(values)
    try:
        yield
    finally:
        _defaults.reset(token)


def _text(name: str) -> str | None:
    """The value of a variable, else its default of the moment; None if it is unset or empty."""
    return os.environ.get(name, "").strip() or _defaults.get({}).get(name)


def cache_is_off() -> bool:
    """Whether nothing is to be kept on disk: the cache is `off`."""
    return (_text("PIPELINK_CACHE_DIR") or "").lower() == "off"


def cache_dir() -> Path:
    """PIPELINK_CACHE_DIR, else XDG_CACHE_HOME/pipelink (where that is absolute, as its specification asks), else ~/.cache/pipelink."""
    if cache_is_off():
        return Path(os.devnull) / "off"  # no folder: whoever does not ask first finds and stores nothing
    own, xdg = _text("PIPELINK_CACHE_DIR"), _text("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser()
    if xdg and os.path.isabs(xdg):
        return Path(xdg) / "pipelink"
    return Path(os.path.expanduser("~")) / ".cache" / "pipelink"


def num_threads() -> int:
    """PIPELINK_NUM_THREADS, else the number of processors that this process may run on. What is no positive number counts as unset."""
    text = _text("PIPELINK_NUM_THREADS")
    if text and text.isascii() and text.isdigit() and int(text) > 0:
        return min(int(text), 256)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cxx() -> tuple[str, ...] | None:
    """CXX as a command and its arguments; None if it is not set."""
    text = _text("CXX")
    return tuple(shlex.split(text)) if text else None


def log_level() -> str:
    """PIPELINK_LOG_LEVEL in lower case, `warning` if it is unset or no level."""
    level = (_text("PIPELINK_LOG_LEVEL") or "warning").lower()
    return level if level in LOG_LEVELS else "warning"


def cuda_graphs() -> int:
    """PIPELINK_GRAPHS: how many graphs a pipeline keeps, 0 where they are off. What is no number counts as unset."""
    text = (_text("PIPELINK_GRAPHS") or "").lower()
    if text in ("off", "no", "false"):
        return 0
    return min(int(text), 4096) if text.isascii() and text.isdigit() else 16


def visible_devices() -> str | None:
    """CUDA_VISIBLE_DEVICES, by which CUDA hides devices from a process; None if it is not set."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")
