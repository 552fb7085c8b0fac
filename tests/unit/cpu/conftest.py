"""Running single expressions of the loop form: each becomes a loop over arrays, all of a test file in one module."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cpu import jit
from pipelink_ir.backends.cpu.emit import ProgramCode, emit_program
from pipelink_ir.backends.loops.form import Buffer, Const, Expr, For, Kernel, Let, Load, Program, Ref, Store
from pipelink_ir.ir.dtypes import I64, DType
from tests.cache import cache_folder as cache_folder

PLAIN = jit.Target("x86-64", "")
"""A processor without f16 conversions, fused multiply-add and rounding instructions."""

RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class Map:
    """y[i] = value(a[i], b[i], …): dtypes in memory of the arguments and of the result; `value` takes their compute-typed names."""

    arguments: tuple[DType, ...]
    result: DType
    value: Callable[..., Expr]


def kernel(name: str, m: Map) -> Kernel:
    i, n = Ref("i", I64), Ref("N", I64)
    names = "abcd"[:len(m.arguments)]
    lets = tuple(Let(c, Load("x" + c, i, d, d.compute)) for c, d in zip(names, m.arguments, strict=True))
    value = m.value(*(Ref(c, d.compute) for c, d in zip(names, m.arguments, strict=True)))
    loop = For("i", Const(0, I64), n, Const(1, I64), (*lets, Store("y", i, value, m.result)), vector=True)
    buffers = tuple(Buffer("x" + c, "operand", d, (n,)) for c, d in zip(names, m.arguments, strict=True)) + (Buffer("y", "result", m.result, (n,)),)
    return Kernel(name, buffers, ("N",), (), (loop,))


class Maps:
    """Compiled maps by name."""

    def __init__(self, maps: Mapping[str, Map], target: jit.Target) -> None:
        self.maps = dict(maps)
        program = Program("maps", tuple(kernel(n, m) for n, m in maps.items()), (), (), (), ("N",), (), ())
        self.code: ProgramCode = emit_program(program, target.emitter, *jit.layout(target))
        self.library = jit.Library([jit.compile_object(self.code.text, target)], self.code.symbols, self.code.externals)
        self.functions = {n: RUN(self.library.address(k.symbol)) for n, k in zip(maps, self.code.kernels, strict=True)}

    def __call__(self, name: str, *arrays: Any) -> np.ndarray[Any, Any]:
        m = self.maps[name]
        given = [np.ascontiguousarray(a, d.numpy()) for a, d in zip(arrays, m.arguments, strict=True)]
        out = np.empty(given[0].size, m.result.numpy())
        status = np.zeros(6, np.int64)
        words = [*(a.ctypes.data for a in given), out.ctypes.data, out.size, status.ctypes.data]
        frame = (ctypes.c_int64 * len(words))(*words)
        self.functions[name](ctypes.addressof(frame), 0, 1)
        return out


@pytest.fixture(scope="session")
def compile_maps() -> Callable[..., Maps]:
    """`compile_maps({name: Map})` for this machine, or for a plain one with `plain=True`."""
    def compile(maps: Mapping[str, Any], plain: bool = False) -> Maps:
        return Maps({n: m if isinstance(m, Map) else Map(*m) for n, m in maps.items()}, PLAIN if plain else jit.host())
    return compile


@pytest.fixture(scope="session")
def ulps() -> Callable[[Any, Any], float]:
    return _ulps


def _ulps(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
    """The largest distance of `got` from the exact `want` (of a wider type) in units of the last place of `got`'s type; NaN and infinities must agree."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        finite = np.isfinite(rounded) & np.isfinite(got)
        # Within half a step of the largest number, either side is one step away.
        np.testing.assert_array_equal(got[~finite & ~np.isnan(got)], rounded[~finite & ~np.isnan(got)])
        zero = (got == 0) & (rounded == 0)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))
        distance = np.abs(got[finite].astype(want.dtype) - want[finite]) / np.spacing(np.abs(rounded[finite]))
    return float(distance.max()) if distance.size else 0.0


def expect_equal(got: Any, want: Sequence[Any] | np.ndarray[Any, Any]) -> None:
    """Equal with NaN equal to NaN and the signs of zeros told apart."""
    wanted = np.asarray(want)
    np.testing.assert_array_equal(got, wanted)
    if np.asarray(got).dtype.kind == "f":
        number = ~np.isnan(got)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(wanted[number]))


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], None]:
    return expect_equal
