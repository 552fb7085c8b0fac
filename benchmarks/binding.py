"""What binding costs: ten inputs, in microseconds. First the bare reading of pointers, shapes and strides, by the cheapest way that Python has; then binding
new arrays of a form that was seen before, and binding the same objects again. For NumPy, torch tensors (if torch is installed) and TensorViews."""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from common import Row, report

import pipelink_ir as pl
from pipelink_ir.runtime.pointers import pointer_reader

INPUTS = 10
SETS = 200
"""Different sets of arrays of one form."""

PROGRAM = "op @sum({operands}) -> (%y: tensor<HxWxf32>) {{ compute {{ %y[h, w] = {sum} }} }}\n" \
    "pipeline @main({operands}) -> (%y: tensor<HxWxf32>) {{ %y = @sum({arguments}) }}\n"


def program() -> str:
    """A pipeline of ten inputs."""
    names = [f"%x{k}" for k in range(INPUTS)]
    return PROGRAM.format(operands=", ".join(f"{n}: tensor<HxWxf32>" for n in names), sum=" + ".join(f"{n}[h, w]" for n in names), arguments=", ".join(names))


def per_call(call: Callable[[Any], object], sets: Sequence[Any], runs: int = 30) -> list[float]:
    """Milliseconds of one call, each the mean over all sets."""
    times = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        for one in sets:
            call(one)
        times.append(1000 * (time.perf_counter() - start) / len(sets))
    return times[2:]


def rows(kind: str, make: Callable[[], Any], read: Callable[[dict[str, Any]], object], compiled: pl.Compiled) -> list[Row]:
    """The three figures for one kind of array."""
    sets = [{f"x{k}": make() for k in range(INPUTS)} for _ in range(SETS)]
    again = [sets[0]] * SETS
    binder = compiled.binder
    bare = Row(f"{kind}: bare reading", per_call(read, sets))
    new = Row(f"{kind}: binding new arrays of a known form", per_call(binder.bind, sets))
    same = Row(f"{kind}: binding the same objects again", per_call(binder.bind, again))
    new.more["best beyond bare, us"] = f"{1000 * (new.best - bare.best):.2f}"
    return [bare, new, same]


def read_numpy(arrays: dict[str, Any]) -> list[Any]:
    pointer = pointer_reader()
    return [(pointer(a), a.shape, a.strides) for a in arrays.values()]


def read_interface(arrays: dict[str, Any]) -> list[Any]:
    return [(a.__array_interface__["data"][0], a.shape, a.strides) for a in arrays.values()]


def read_torch(arrays: dict[str, Any]) -> list[Any]:
    return [(a.data_ptr(), a.shape, a.stride()) for a in arrays.values()]


def read_view(arrays: dict[str, Any]) -> list[Any]:
    return [(a.address, a.shape, a.byte_strides) for a in arrays.values()]


def main() -> int:
    compiled = pl.compile(program())
    out = rows("NumPy", lambda: np.ones((8, 8), np.float32), read_numpy, compiled)
    sets = [{f"x{k}": np.ones((8, 8), np.float32) for k in range(INPUTS)} for _ in range(SETS)]
    slow = Row("NumPy: bare reading by __array_interface__", per_call(read_interface, sets))
    out.insert(1, slow)
    call = Row("NumPy: whole call, 8 x 8 arrays", per_call(lambda arrays: compiled(**arrays), sets))
    out.append(call)
    out += rows("TensorView", lambda: pl.TensorBuilder((8, 8), "f32").allocate(), read_view, compiled)
    try:
        import torch
    except ImportError:
        print("torch is not installed: its rows are left out", file=sys.stderr)
    else:
        out += rows("torch", lambda: torch.ones(8, 8), read_torch, compiled)
        out += rows("from_torch", lambda: pl.from_torch(torch.ones(8, 8)), read_view, compiled)
    for row in out:
        row.more = {"us": f"{1000 * row.median:.2f}", "best us": f"{1000 * row.best:.2f}", **row.more}
    report("binding", out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
