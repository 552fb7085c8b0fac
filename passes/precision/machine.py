"""What a device does in a second, as kernels reach it, by the kinds of kernels that the scheduler chooses (`scheduling/kernels.py`).

Rates are those of `ir/gpus.py` times the share that was measured on an H200. What is here was fitted to `tests/unit/passes/measured.py`, which has the programs
and their times; a test holds the order of the two against each other.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelink_ir.ir.gpus import facts_of
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.fusion.cost import CPU, GPU

REACHED = 0.88
"""Of the rate of its memory a GPU reaches so much (4,276 of 4,800 GB/s)."""
COMPUTED = 0.45
"""Of its rate for f32, where an addition counts one (`fusion/cost.py`)."""
MULTIPLIED = 0.7
"""Of the rate of its tensor cores, by kernels that are made of the instruction of the architecture."""
MULTIPLIED_CODES = {"mma": 0.6, "convolution": 0.7, "": 0.45}
"""The same for bytes, by kernels with tiles, for convolutions, and by others (strips), which are over sooner and wait for memory."""
STREAMED = {"i8": 0.88, "u8": 0.88, "f8e4m3": 0.78, "f8e5m2": 0.78}
STREAMED_WIDE = 0.77
"""The same where factors stream (wgmma), of bytes and of halves: of all tiles, those at the rims whole."""
OLDER = 0.3
"""The same on sm_90 by the instruction of older devices (`mma.sync`)."""
ATTENTION = {True: 0.75, False: 0.45}
"""The same in attention, whether the copy engine feeds it or not."""
BEGINNING = 1.0
"""Rounds of tiles of bytes (codes, f8) that beginning and ending them costs, where they stream."""
SMALL_TILES = 3e-6
"""Seconds that beginning and ending costs where factors stream in small tiles."""
BROUGHT = 36.0
"""The rate of memory is so many times that at which one processor brings such tiles."""
COMPUTED_FACTOR = 1.4
"""How many times as long as its bytes say it takes to make halves of codes before a product."""
SAME_LINE = 3
"""So many times what is read must fit into the cache to be there when the next kernel reads it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, as the model sees it."""

    bandwidth: float
    arithmetic: float
    launch: float
    cache: float
    near: float
    tensor: Mapping[str, float]
    """Multiplications with additions in a second, by dtype: the peak."""
    processors: int = 1
    sm: int = 0

    def cores(self, dtype: str, kind: str, flows: bool = False) -> float:
        """The same as a kind of kernel reaches it."""
        code, peak = dtype in ("i8", "u8"), self.tensor[dtype]
        if kind == "wgmma":
            share = STREAMED.get(dtype, STREAMED_WIDE)
        elif kind == "attention" and self.sm == 90:
            share = ATTENTION[flows]
        elif kind == "mma" and self.sm == 90:
            # That instruction has no f8 there: factors become f16 on the way.
            share, peak = OLDER, self.tensor["f16"] if dtype.startswith("f8") else peak
        else:
            share = MULTIPLIED_CODES.get(kind, MULTIPLIED_CODES[""]) if code else MULTIPLIED
        return share * peak


def machine_of(arch: Arch) -> Machine:
    """The device of an architecture."""
    facts = facts_of(arch)
    if facts is None:
        return Machine(CPU.bandwidth, CPU.arithmetic, CPU.launch, CPU.cache, CPU.near, {})
    tensor = {d: rate / 2 for d, rate in facts.tensor.items()}
    bandwidth = REACHED * facts.bandwidth
    return Machine(bandwidth, COMPUTED * facts.f32, GPU.launch, facts.l2 / SAME_LINE, bandwidth * GPU.near / GPU.bandwidth, tensor, facts.processors, facts.sm)


def kernels_for(arch: Arch) -> Arch:
    """The architecture whose kernels run on a device: those for its own instructions, where there are some."""
    return Arch("cuda", 90, "a") if arch.kind == "cuda" and arch.sm == 90 else arch
