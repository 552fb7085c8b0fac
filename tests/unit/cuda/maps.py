"""Expressions of the loop form run as emitted CUDA: each becomes y[i] = f(a[i], b[i]), all of a test in one text.

`on_host` has the host's C++ compiler play one thread, so the plain C++ of the prelude is what runs; `on_gpu` runs the same text on a GPU, with PTX and
CUDA's own functions.
"""
from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipelink_ir.backends.cuda.emit import UnitCode, emit_unit
from pipelink_ir.backends.loops.form import Buffer, Const, Expr, For, Kernel, Let, Load, Program, Ref, Store
from pipelink_ir.ir.dtypes import I64, DType

Array = np.ndarray[Any, Any]

ONE_THREAD = """
struct Place { unsigned x, y, z; };
static const Place threadIdx = {0, 0, 0}, blockIdx = {0, 0, 0}, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};
#define PIPELINK_EMULATED
#define __global__
#define __shared__ static
#define __launch_bounds__(n)
#define __syncthreads()
#define PL_LANES 1
#define PL_SHUFFLE(value, lane) (value)
#define PL_SHUFFLE_DOWN(value, lanes) (value)
#define PL_DYN_SHARED(T, name) static T name[1]
template <typename T> static T atomicCAS(T* at, T expected, T wanted) { const T old = *at; if (old == expected) *at = wanted; return old; }
template <typename T, typename U> static T atomicAdd(T* at, U more) { const T old = *at; *at += T(more); return old; }
static void __threadfence() {}
"""


@dataclass(frozen=True)
class Map:
    """y[i] = value(a[i], b[i], …): dtypes in memory of the arguments and of the result; `value` takes their compute-typed names."""

    arguments: tuple[DType, ...]
    result: DType
    value: Callable[..., Expr]
    exact: bool = False
    fast: bool = False

    def kernel(self, name: str) -> Kernel:
        i, n = Ref("i", I64), Ref("N", I64)
        names = "abcd"[:len(self.arguments)]
        lets = tuple(Let(c, Load("x" + c, i, d, d.compute)) for c, d in zip(names, self.arguments, strict=True))
        value = self.value(*(Ref(c, d.compute) for c, d in zip(names, self.arguments, strict=True)))
        loop = For("i", Const(0, I64), n, Const(1, I64), (*lets, Store("y", i, value, self.result)), "grid")
        buffers = tuple(Buffer("x" + c, "operand", d, (n,)) for c, d in zip(names, self.arguments, strict=True)) + (Buffer("y", "result", self.result, (n,)),)
        return Kernel(name, buffers, ("N",), (), (loop,), self.exact, self.fast, "gpu")


Run = Callable[..., Array]


def emitted(maps: Mapping[str, Map]) -> UnitCode:
    kernels = tuple(m.kernel(name) for name, m in maps.items())
    return emit_unit([(Program("maps", kernels, (), (), (), ("N",), (), ()), None)])


@cache
def compiler() -> str | None:
    """The host's C++ compiler."""
    return next((found for name in ("g++", "c++", "clang++") if (found := shutil.which(name))), None)


def on_host(maps: Mapping[str, Map]) -> Run:
    """Compiled for this machine, one thread."""
    unit, command = emitted(maps), compiler()
    assert command is not None
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "maps.cpp", folder / "maps.so"
    source.write_text(ONE_THREAD + unit.whole)
    # No contraction: the host may have fused multiply-adds, too.
    subprocess.run([command, "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror", "-Wno-unused-function", str(source), "-o", str(library), "-lm"],
                   check=True)
    loaded = ctypes.CDLL(str(library))
    symbols = dict(zip(maps, (k.symbol for k in unit.kernels), strict=True))

    def run(name: str, *arrays: Any) -> Array:
        m = maps[name]
        given = [np.ascontiguousarray(a, d.numpy()) for a, d in zip(arrays, m.arguments, strict=True)]
        out = np.empty(given[0].size, m.result.numpy())
        getattr(loaded, symbols[name])(*(ctypes.c_void_p(a.ctypes.data) for a in (*given, out)), ctypes.c_int(out.size))
        return out
    return run


def on_gpu(maps: Mapping[str, Map]) -> Run:
    """Compiled for the present GPU."""
    import importlib

    from pipelink_ir.backends.cuda.compile import compile_units
    from pipelink_ir.ir.targets import Arch
    cupy = importlib.import_module("cupy")
    unit = emitted(maps)
    binary, = compile_units([unit], Arch("cuda", int(cupy.cuda.Device().compute_capability)))
    module = cupy.cuda.function.Module()
    module.load(binary.image)
    functions = {name: module.get_function(k.symbol) for name, k in zip(maps, unit.kernels, strict=True)}

    def run(name: str, *arrays: Any) -> Array:
        m = maps[name]
        given = [cupy.asarray(np.ascontiguousarray(a, d.numpy()).view(np.uint8)) for a, d in zip(arrays, m.arguments, strict=True)]
        size = len(arrays[0])
        out = cupy.empty(size * m.result.bytes, np.uint8)
        functions[name](((size + 255) // 256,), (256,), (*given, out, np.int32(size)))
        return np.asarray(cupy.asnumpy(out).view(m.result.numpy()))
    return run
