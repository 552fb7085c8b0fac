"""Kernels as a shared library of the host: compiled, kept on disk, loaded, launched.

A launch is told which memory the kernel may touch (`Region`); what `machine.cpp` finds wrong is an `EmulationFault`, with the line of the text.
"""
from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pipelink_ir.backends.cuda import prelude
from pipelink_ir.backends.cuda.emulate import symbols
from pipelink_ir.backends.cuda.emulate.toolchain import KERNELS, LINK, MACHINE, Compiler, compiler
from pipelink_ir.backends.cuda.target_facts import CUDA
from pipelink_ir.backends.disk_cache import DiskCache, digest
from pipelink_ir.ir import environment

FORMAT = "1"
"""Part of every key: another way to make a library than texts and options tell takes another number."""

HEADERS = ("emulated.cuh", "machine.h", "switch.h", "accesses.h")
SOURCE = "machine.cpp"

WRITABLE, SHARED, TRACKED = 1, 2, 4
"""Flags of a region, as in `machine.h`."""

MESSAGE_BYTES = 4096

OF_THE_MACHINE = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim"))
"""Variables that the machine tells apart by itself."""

_CACHE = DiskCache("emulated")


class EmulationFault(AssertionError):
    """A kernel does what no kernel may: a race, an access outside, a barrier that not all threads reach."""


@dataclass(frozen=True, slots=True)
class Text:
    """CUDA C++ to compile. `kernels` are the names of its kernels; `wide`: indices have 64 bits; `include` are folders in which headers are looked for."""

    text: str
    kernels: tuple[str, ...]
    name: str = "kernels.cu"
    wide: bool = False
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that a kernel may touch. `element` is the size of what is looked at at once; `writable`: the kernel may write; `tracked`: who touches what is
    noted, to find races."""

    name: str
    address: int
    bytes: int
    element: int = 1
    writable: bool = True
    tracked: bool = True


class _Region(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("begin", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("element", ctypes.c_uint32), ("flags", ctypes.c_uint32))


class _Launch(ctypes.Structure):
    _fields_ = (("run", ctypes.c_void_p), ("slots", ctypes.c_void_p), ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
                ("shared_bytes", ctypes.c_uint64), ("regions", ctypes.c_void_p), ("count", ctypes.c_uint64), ("kernel", ctypes.c_char_p),
                ("message", ctypes.c_char_p), ("room", ctypes.c_uint64), ("stacks", ctypes.c_void_p))


class Library:
    """A loaded library. One launch runs at a time, since all share the stacks of threads."""

    _lock = threading.Lock()
    _stacks: int | None = None

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._lib = _load(data)
        self._lib.pl_switch_address.restype = ctypes.c_void_p
        self._switch = symbols.value_of(data, "pl_switch")
        self._base = int(self._lib.pl_switch_address()) - self._switch
        self._statics = [s for s in symbols.statics(data) if "pl_emulated" not in s.name and s.name not in OF_THE_MACHINE]
        self._constants = symbols.constants(data)

    def launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], shared: int, slots: Sequence[int], regions: Sequence[Region]) -> None:
        """Runs a kernel. `slots` are the addresses of its arguments, as for cuLaunchKernel."""
        known = [*self._static_regions(kernel), *(_region(r) for r in regions if r.bytes > 0)]
        table = (_Region * max(1, len(known)))(*known)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        run = ctypes.cast(getattr(self._lib, f"pl_run_{kernel}"), ctypes.c_void_p).value
        addresses = (ctypes.c_void_p * max(1, len(slots)))(*slots)
        given = _Launch(run, ctypes.addressof(addresses), (ctypes.c_uint32 * 3)(*_three(grid)), (ctypes.c_uint32 * 3)(*_three(block)), shared,
                        ctypes.addressof(table), len(known), kernel.encode(), ctypes.cast(message, ctypes.c_char_p), MESSAGE_BYTES)
        with Library._lock:
            given.stacks = self._shared_stacks()
            failed = self._lib.pl_launch(ctypes.byref(given))
        if failed:
            raise EmulationFault(self._with_lines(message.value.decode("utf-8", "replace")))

    def _shared_stacks(self) -> int:
        if Library._stacks is None:
            self._lib.pl_stacks.restype = ctypes.c_void_p
            Library._stacks = self._lib.pl_stacks()
        if Library._stacks is None:
            raise MemoryError("stacks for the threads of a block")
        return Library._stacks

    def _static_regions(self, kernel: str) -> Iterator[_Region]:
        """Shared memory that the kernel declares or what it calls, global variables, constants."""
        for offset, size in self._constants:
            yield _Region(b"constants", self._base + offset, size, 1, 0)
        for s in self._statics:
            if not s.shared:
                yield _Region(s.shown.encode(), self._base + s.offset, s.bytes, 1, WRITABLE)
            elif s.kernel in (None, kernel):
                yield _Region(s.shown.encode(), self._base + s.offset, s.bytes, 1, WRITABLE | SHARED | TRACKED)

    def _with_lines(self, message: str) -> str:
        """Numbers in brackets are places in the code, behind `pl_switch`."""
        numbers = re.findall(r"\[(-?\d+)\](?= |$)", message)
        tool = shutil.which("addr2line")
        if not numbers or tool is None:
            return re.sub(r" ?\[-?\d+\](?= |$)", "", message)
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(self._data)
            file.flush()
            done = subprocess.run([tool, "-e", file.name, *(hex(self._switch + int(n)) for n in numbers)], capture_output=True, text=True, check=False)
        lines = dict(zip(numbers, done.stdout.split("\n"), strict=False))
        return re.sub(r"\[(-?\d+)\](?= |$)", lambda m: f"[{os.path.basename(lines.get(m[1], '?').split(' ')[0])}]", message)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def _region(r: Region) -> _Region:
    return _Region(r.name.encode(), r.address, r.bytes, r.element, WRITABLE * r.writable | TRACKED * r.tracked)


def _load(data: bytes) -> Any:
    """The system loads from files alone; the file may go as soon as it is loaded."""
    handle, path = tempfile.mkstemp(suffix=".so")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return ctypes.CDLL(path)
    finally:
        os.unlink(path)


# ---------------------------------------------------------------------------------------------------------------------- compiling

# After an opening parenthesis g++ tries to read `float(int(x[i]))` as a type, and refuses the array in it; in front of an expression `__extension__`
# says that it is none.
_LIKE_A_TYPE = re.compile(r"\((?=(?:float|double|int|bool|i64|index_t|[ui](?:8|16)|b?f16|f8e\dm\d)\()")

_EXTERN_SHARED = re.compile(r"\bextern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w:\s]+?)\s+(?:__align__\(\d+\)\s+)?(\w+)\s*\[\s*\]\s*;")


def compile_text(text: Text) -> Library:
    """A library of the kernels of a text, from the cache if it is there. `CompileFailed` has what the compiler says."""
    tool = compiler()
    source = _source(text)
    # Headers from folders are not among the parts of the key.
    key = digest(FORMAT, tool.version, str((KERNELS, LINK)), _machine_key(), prelude.header(CUDA), _without_comments(source)) if not text.include else None
    if key is None:
        return Library(_compile(source, text, tool))
    with _one_at_a_time(key[:2]):
        data = _CACHE.get(key)
        if data is None:
            data = _compile(source, text, tool)
            _CACHE.put(key, data)
    return Library(data)


def _source(text: Text) -> str:
    """What the host's compiler gets."""
    body = _EXTERN_SHARED.sub(r"PL_DYN_SHARED(\1, \2);", _LIKE_A_TYPE.sub("(__extension__ ", text.text))
    wide = "#define PIPELINK_WIDE\n" if text.wide else ""
    runs = "\n".join(f"PL_EMULATE({k})" for k in text.kernels)
    return f'{wide}#include "emulated.cuh"\n#line 1 "{text.name}"\n{body}\n{runs}\n'


def _compile(source: str, text: Text, tool: Compiler) -> bytes:
    with tempfile.TemporaryDirectory(prefix="pipelink-") as name:
        folder = Path(name)
        _lay_out(folder)
        (folder / "kernels.cpp").write_text(source, encoding="utf-8")
        (folder / prelude.NAME).write_text(prelude.header(CUDA), encoding="utf-8")
        tool.run([*KERNELS, *(f"-I{p}" for p in (".", *text.include)), "-c", "kernels.cpp", "-o", "kernels.o"], folder)
        (folder / "machine.o").write_bytes(_machine(tool))
        tool.run([*LINK, "kernels.o", "machine.o", "-o", "kernels.so", "-lm"], folder)
        return (folder / "kernels.so").read_bytes()


def _machine(tool: Compiler) -> bytes:
    """The object code of the machine."""
    key = digest(FORMAT, tool.version, str(MACHINE), _machine_key())
    with _one_at_a_time("machine"):
        return _machine_object(tool, key)


@cache
def _machine_object(tool: Compiler, key: str) -> bytes:
    data = _CACHE.get(key)
    if data is None:
        with tempfile.TemporaryDirectory(prefix="pipelink-") as name:
            _lay_out(Path(name))
            tool.run([*MACHINE, "-c", SOURCE, "-o", "machine.o"], Path(name))
            data = (Path(name) / "machine.o").read_bytes()
        _CACHE.put(key, data)
    return data


@cache
def _parts() -> dict[str, str]:
    here = files("pipelink_ir.backends.cuda.emulate")
    return {name: here.joinpath(name).read_text(encoding="utf-8") for name in (*HEADERS, SOURCE)}


def _machine_key() -> str:
    return "\0".join(_parts().values())


def _lay_out(folder: Path) -> None:
    for name, text in _parts().items():
        (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Processes and threads that want the same thing: one compiles it, the others find it in the cache."""
    if environment.cache_is_off():
        yield
        return
    path = environment.cache_dir() / "emulated" / f"lock-{name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _without_comments(text: str) -> str:
    """Lines that are comments say where code comes from, and compile to nothing."""
    return "\n".join("" if line.startswith("//") else line for line in text.split("\n"))
