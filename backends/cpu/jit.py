"""From LLVM IR to functions in memory: the target machine, the optimiser, the object cache, and the linker.

llvmlite has no type stubs and one lock around every call; everything that touches it is here.
"""
from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from pipelink_ir.backends.cpu.irtext import Features
from pipelink_ir.backends.disk_cache import DiskCache, digest
from pipelink_ir.ir.diagnostics import internal_error

FORMAT = "2"
"""Part of every key: another way to use LLVM than the text tells takes another number."""

_CACHE = DiskCache("cpu")
_lock = threading.RLock()


def _after_fork() -> None:
    """Another thread may have been compiling when the process was copied."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True, slots=True)
class Target:
    """The processor that code is made for: LLVM's name and feature string."""

    cpu: str
    features: str

    @property
    def emitter(self) -> Features:
        """What the emitter may use. The features are spelled `+f16c` or `-f16c`."""
        have = set(self.features.split(","))
        return Features(f16c="+f16c" in have, fma="+fma" in have, round="+sse4.1" in have) if _is_x86() else Features()


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def _is_x86() -> bool:
    return str(llvm.get_process_triple()).startswith(("x86_64", "i386", "i686"))


@cache
def host() -> Target:
    """This machine's processor."""
    with _lock:
        _initialise()
        return Target(str(llvm.get_host_cpu_name()), str(llvm.get_host_cpu_features().flatten()))


@cache
def machine(target: Target) -> Any:
    """LLVM's target machine."""
    with _lock:
        _initialise()
        return llvm.Target.from_default_triple().create_target_machine(cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default",
                                                                       jit=True)


def layout(target: Target) -> tuple[str, str]:
    """(triple, data layout) that begin every module."""
    with _lock:
        return str(machine(target).triple), str(machine(target).target_data)


def parse(text: str) -> Any:
    """A verified module; text that LLVM refuses is a fault of ours."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        internal_error(f"LLVM refuses the code made for it: {error}")
    return module


def optimise(module: Any, target: Target) -> None:
    """LLVM's own pipeline at level 3, in place. Loops are unrolled only where the emitter asks for it: elsewhere it is code without speed."""
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine(target), options)
    builder.getModulePassManager().run(module, builder)


def key_of(text: str, target: Target) -> str:
    """What the object code depends on."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return digest(FORMAT, llvmlite.__version__, version, target.cpu, target.features, text)


def compile_object(text: str, target: Target) -> bytes:
    """Object code of a module, from the cache if it is there."""
    key = key_of(text, target)
    code = _CACHE.get(key)
    if code is None:
        with _lock:
            module = parse(text)
            optimise(module, target)
            code = bytes(machine(target).emit_object(module))
        _CACHE.put(key, code)
    return code


def optimised(text: str, target: Target) -> str:
    """A module as LLVM leaves it, for reading."""
    with _lock:
        module = parse(text)
        optimise(module, target)
        return str(module)


def assembly(text: str, target: Target) -> str:
    """The assembly of a module, for reading."""
    with _lock:
        module = parse(text)
        optimise(module, target)
        return str(machine(target).emit_assembly(module))


# ------------------------------------------------------------------------------------------------------------------------- linking


@cache
def _linker() -> Any:
    return llvm.create_lljit_compiler(machine(host()))


@cache
def _process_symbols() -> ctypes.CDLL:
    """The symbols of this process; the mathematical library is made one of them where Python was linked without it."""
    process = ctypes.CDLL(None)
    if not hasattr(process, "expf"):
        for name in ("libm.so.6", "libm.so", "libm.dylib"):
            try:
                ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
                break
            except OSError:
                continue
    return process


class Library:
    """Object code linked into the process. Functions live as long as the library does."""

    _count = 0

    def __init__(self, objects: Iterable[bytes], symbols: Iterable[str], externals: Iterable[str] = ()) -> None:
        for name in externals:
            if not hasattr(_process_symbols(), name):
                internal_error(f"the C library of this process has no '{name}'")
        builder = llvm.JITLibraryBuilder()
        names = list(symbols)
        for code in objects:
            builder.add_object_img(code)
        for name in names:
            builder.export_symbol(name)
        builder.add_current_process()
        with _lock:
            Library._count += 1
            self._linker = _linker()
            self._library = builder.link(self._linker, f"plir.{Library._count}")
            self._addresses = {name: int(self._library[name]) for name in names}

    def address(self, name: str) -> int:
        """Where a function begins."""
        return self._addresses[name]
