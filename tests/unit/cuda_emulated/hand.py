"""Running kernels that are written by hand, in the style of those that are emitted."""
from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.cuda.emulate.library import EmulationFault, Library, Region, Text, compile_text

HEAD = '#include "pipelink.cuh"\nnamespace pl = pipelink;\nusing namespace pl::types;\n'


@functools.cache
def library(source: str, kernels: tuple[str, ...], wide: bool = False) -> Library:
    """A text compiled once for all tests that use it."""
    return compile_text(Text(HEAD + "#line 1 \"hand.cu\"\n" + source, kernels, "hand.cu", wide))


def run(lib: Library, kernel: str, grid: Any, block: Any, *args: Any, shared: int = 0) -> None:
    """Launches a kernel. Arrays are passed by address, and may be written if NumPy lets them be; NumPy scalars by value."""
    words = (ctypes.c_int64 * max(1, len(args)))()
    begin = ctypes.addressof(words)
    regions = []
    for n, a in enumerate(args):
        if isinstance(a, np.ndarray):
            words[n] = a.ctypes.data
            regions.append(Region(f"arg{n}", a.ctypes.data, a.nbytes, a.itemsize, a.flags.writeable, a.flags.writeable))
        else:
            data = np.asarray(a).tobytes()
            ctypes.memmove(begin + 8 * n, data, len(data))
    three = [(x,) if isinstance(x, int) else x for x in (grid, block)]
    lib.launch(kernel, *three, shared, [begin + 8 * n for n in range(len(args))], regions)


def fault(lib: Library, kernel: str, grid: Any, block: Any, *args: Any, shared: int = 0) -> str:
    """What is found wrong."""
    with pytest.raises(EmulationFault) as caught:
        run(lib, kernel, grid, block, *args, shared=shared)
    return str(caught.value)


def frozen(a: Any) -> Any:
    """An array that a kernel may only read."""
    a = np.ascontiguousarray(a)
    a.flags.writeable = False
    return a
