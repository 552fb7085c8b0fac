"""Compiled code on disk, by key: an entry is there as a whole or not at all, whatever other processes do.

A file holds a mark, a digest over key and content, and the content. What is truncated, damaged or written for another key is a miss. A folder that
cannot be written makes a cache that stores nothing; that is said once.
"""
from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import warnings
from pathlib import Path

from pipelink_ir.ir import environment

MAGIC = b"PLCACHE1"
"""Begins every entry; another layout of entries takes another mark."""

_warned: set[str] = set()
_lock = threading.Lock()


class CacheWarning(UserWarning):
    """Compiled code cannot be stored."""


def digest(*parts: str | bytes) -> str:
    """A key over parts of any length: sha256, with the lengths among what is hashed."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


class DiskCache:
    """The entries of one backend, in a subfolder `name` of the cache folder. The folder is looked up at each use."""

    def __init__(self, name: str) -> None:
        self.name = name

    def path(self, key: str) -> Path:
        """Where the entry of `key` is or would be."""
        return environment.cache_dir() / self.name / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The content stored for `key`, None if there is none that is whole."""
        if environment.cache_is_off():
            return None
        try:
            data = self.path(key).read_bytes()
        except (OSError, ValueError):
            return None
        head = len(MAGIC) + 32
        if data[:len(MAGIC)] != MAGIC or data[len(MAGIC):head] != _guard(key, data[head:]):
            return None
        return data[head:]

    def put(self, key: str, content: bytes) -> None:
        """Store `content`: written beside its place under a name of its own, then moved there in one step."""
        if environment.cache_is_off():
            return
        path = self.path(key)
        temporary: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            with os.fdopen(handle, "wb") as out:
                out.write(MAGIC + _guard(key, content) + content)
            os.replace(temporary, path)
        except (OSError, ValueError) as error:
            _remove(temporary)
            _warn(environment.cache_dir(), error)


def _guard(key: str, content: bytes) -> bytes:
    return bytes.fromhex(digest(key, content))


def _remove(path: str | None) -> None:
    if path is not None:
        try:
            os.unlink(path)
        except OSError:
            pass


def _warn(folder: Path, error: Exception) -> None:
    with _lock:
        if str(folder) in _warned:
            return
        _warned.add(str(folder))
    warnings.warn(f"compiled code is not kept: cannot write to '{folder}' ({error}); set PIPELINK_CACHE_DIR to a folder that can be written",
                  CacheWarning, stacklevel=3)
