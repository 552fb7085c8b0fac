"""The header that every kernel includes, as text for a compiler, and the layout of the structures that it shares with the host."""
from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources

from pipelink_ir.backends.cuda.target_facts import TargetFacts
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DTYPES, DType

NAME = "pipelink.cuh"
"""What kernels include: the files below, one behind the other."""

BASE = ("numbers.cuh", "functions.cuh", "threads.cuh", "bytes.cuh")
"""What all kernels stand on, those that users write too."""

MAX_RANK = 12
"""`TensorView::MAX_RANK`."""

VIEW_BYTES = 8 + 8 + 4 + 4 + 16 * MAX_RANK
"""The size of a `TensorView`, whose address is a multiple of 8."""

STATUS_WORDS = 6
"""i64 words of a `Status`: taken (0 or 1), the number of the site, four values."""

OUT_OF_MEMORY = -1
"""The number of the site that stands for memory that could not be had."""

_NUMBERS = {name: n for n, name in enumerate(DTYPES)}


FRAGMENTS = "fragments.cuh"
"""What stands behind it for kernels with matrix fragments: empty where `PIPELINK_FRAGMENTS` is not defined."""

OWN = "own.cuh"
"""The same for sums that threads hold each for itself, with `PIPELINK_OWN`."""

REGISTERS = "registers.cuh"
"""Lists of registers, which the two behind it have in common."""

WINDOW = "window.cuh"
"""The same for windows of pictures, with `PIPELINK_WINDOW`."""

STREAM = "stream.cuh"
"""The same for products that stream (sm_90a), with `PIPELINK_STREAM`."""

ATTEND = "attend.cuh"
"""The same for attention that does, with `PIPELINK_ATTEND`; it needs those before it."""


@cache
def _file(name: str) -> str:
    return resources("pipelink_ir.backends.cuda.prelude").joinpath(name).read_text(encoding="utf-8")


def header(facts: TargetFacts) -> str:
    """The header for a target: its macros, then the prelude."""
    return shown(facts, True, True, True, True, True)


def shown(facts: TargetFacts, fragments: bool, stream: bool, own: bool = False, attend: bool = False, window: bool = False) -> str:
    """The header as it is shown to people, without what the kernels do not use."""
    files = ((FRAGMENTS, fragments), (OWN, own), (REGISTERS, window or stream), (WINDOW, window), (STREAM, stream), (ATTEND, attend))
    more = [_file(name) for name, wanted in files if wanted]
    return "\n".join([facts.define(), *map(_file, BASE), *more])


def pack_view(address: int, shape: Sequence[int], strides: Sequence[int], dtype: DType) -> bytes:
    """A `TensorView` as it lies in memory; strides count elements."""
    if len(shape) > MAX_RANK:
        internal_error(f"a kernel of the user's gets a tensor of rank {len(shape)}; at most {MAX_RANK} are possible")
    count = 1
    for n in shape:
        count *= n
    pad = [0] * (MAX_RANK - len(shape))
    return struct.pack(f"<QqiI{2 * MAX_RANK}q", address, count, len(shape), _NUMBERS[dtype.name], *shape, *pad, *strides, *pad)
