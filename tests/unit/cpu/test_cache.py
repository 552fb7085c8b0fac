"""The cache of compiled code: whole entries or none, for the right key, in a folder that may not be there."""
from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from pipelink_ir.backends import disk_cache
from pipelink_ir.backends.cpu import jit
from pipelink_ir.backends.disk_cache import CacheWarning, DiskCache, digest
from pipelink_ir.ir import environment

KEY, OTHER = digest("a"), digest("b")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskCache:
    monkeypatch.setenv("PIPELINK_CACHE_DIR", str(tmp_path / "sub dir é" / "cache"))
    monkeypatch.setattr(disk_cache, "_warned", set())
    return DiskCache("cpu")


def test_what_is_put_is_got(cache: DiskCache) -> None:
    assert cache.get(KEY) is None
    for content in (b"code", b"", bytes(range(256)) * 1000):
        cache.put(KEY, content)
        assert cache.get(KEY) == content
    assert cache.get(OTHER) is None


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 20, 39, 40, 41, -1])
def test_truncated_entries_are_misses(cache: DiskCache, keep: int) -> None:
    cache.put(KEY, b"some code")
    data = cache.path(KEY).read_bytes()
    cache.path(KEY).write_bytes(data[:keep])
    assert cache.get(KEY) is None
    cache.put(KEY, b"anew")
    assert cache.get(KEY) == b"anew"


@pytest.mark.parametrize("at", [0, 7, 8, 39, 40, -1])
def test_damaged_entries_are_misses(cache: DiskCache, at: int) -> None:
    cache.put(KEY, b"some code")
    data = bytearray(cache.path(KEY).read_bytes())
    data[at] ^= 1
    cache.path(KEY).write_bytes(bytes(data))
    assert cache.get(KEY) is None


def test_an_entry_of_another_key_is_a_miss(cache: DiskCache) -> None:
    cache.put(KEY, b"some code")
    cache.path(OTHER).parent.mkdir(parents=True, exist_ok=True)
    os.replace(cache.path(KEY), cache.path(OTHER))
    assert cache.get(OTHER) is None


def test_a_folder_in_the_place_of_an_entry(cache: DiskCache) -> None:
    cache.path(KEY).mkdir(parents=True)
    assert cache.get(KEY) is None
    with pytest.warns(CacheWarning):
        cache.put(KEY, b"code")


def test_nothing_is_left_beside_the_entry(cache: DiskCache) -> None:
    cache.put(KEY, b"code")
    assert [p.name for p in cache.path(KEY).parent.iterdir()] == [KEY[2:]]


def put_two(cache: DiskCache) -> None:
    cache.put(KEY, b"code")
    cache.put(OTHER, b"code")


def test_a_folder_that_cannot_be_made_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("PIPELINK_CACHE_DIR", str(file / "cache"))
    monkeypatch.setattr(disk_cache, "_warned", set())
    cache = DiskCache("cpu")
    with pytest.warns(CacheWarning, match="PIPELINK_CACHE_DIR") as caught:
        put_two(cache)
    assert len(caught) == 1
    assert str(file / "cache") in str(caught[0].message)
    assert cache.get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(cache: DiskCache, tmp_path: Path) -> None:
    folder = environment.cache_dir()
    folder.mkdir(parents=True)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.warns(CacheWarning):
        cache.put(KEY, b"code")


TEXT = "define i64 @answer() {\n  ret i64 42\n}\n"


def text() -> str:
    triple, layout = jit.layout(jit.host())
    return f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n{TEXT}'


def test_compiling_without_a_cache_folder_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("PIPELINK_CACHE_DIR", str(file))
    monkeypatch.setattr(disk_cache, "_warned", set())
    with pytest.warns(CacheWarning):
        code = jit.compile_object(text(), jit.host())
    assert code[:4] == b"\x7fELF" or sys.platform != "linux"


def test_the_second_compilation_comes_from_the_cache(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = jit.compile_object(text(), jit.host())

    def unexpected(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(jit, "optimise", unexpected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jit.compile_object(text(), jit.host()) == first


def test_everything_that_code_depends_on_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    host = jit.host()
    keys = {jit.key_of(text(), host), jit.key_of(text() + "\n", host), jit.key_of(text(), replace(host, cpu="x86-64")),
            jit.key_of(text(), replace(host, features=host.features + ",-fma"))}
    monkeypatch.setattr(jit, "FORMAT", "another")
    keys.add(jit.key_of(text(), host))
    monkeypatch.setattr(jit.llvmlite, "__version__", "0.0.0")
    keys.add(jit.key_of(text(), host))
    assert len(keys) == 6
    assert all(len(k) == 64 for k in keys)


def test_lengths_are_part_of_a_digest() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a", b"b") == digest("a", "b")


WRITER = """
import sys
from pipelink_ir.backends.disk_cache import DiskCache, digest
cache = DiskCache("cpu")
for turn in range(200):
    for k in range(4):
        cache.put(digest(str(k)), bytes([k]) * 20000)
        content = cache.get(digest(str(k)))
        assert content == bytes([k]) * 20000, (turn, k, content and len(content))
"""


def test_two_processes_write_the_same_entries(cache: DiskCache) -> None:
    running = [subprocess.Popen([sys.executable, "-c", WRITER], env=dict(os.environ), stderr=subprocess.PIPE) for _ in range(2)]
    outcomes = [(p.wait(timeout=60), p.stderr.read().decode() if p.stderr else "") for p in running]
    for p in running:
        if p.stderr:
            p.stderr.close()
    assert outcomes == [(0, ""), (0, "")]
    assert cache.get(digest("3")) == bytes([3]) * 20000


# ------------------------------------------------------------------------------------------------------------------ environment


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("PIPELINK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert environment.cache_dir() == Path("/home/me/.cache/pipelink")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert environment.cache_dir() == Path("/home/me/.cache/pipelink")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert environment.cache_dir() == Path("/var/cache/pipelink")
    monkeypatch.setenv("PIPELINK_CACHE_DIR", "~/mine")
    assert environment.cache_dir() == Path("/home/me/mine")


@pytest.mark.parametrize(("value", "want"), [("3", 3), (" 2 ", 2), ("1", 1), ("100000", 256)])
def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch, value: str, want: int) -> None:
    monkeypatch.setenv("PIPELINK_NUM_THREADS", value)
    assert environment.num_threads() == want


@pytest.mark.parametrize("value", ["", "0", "-2", "many", "1.5", "٣"])
def test_what_is_no_number_of_threads(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.delenv("PIPELINK_NUM_THREADS", raising=False)
    usual = environment.num_threads()
    monkeypatch.setenv("PIPELINK_NUM_THREADS", value)
    assert environment.num_threads() == usual >= 1
