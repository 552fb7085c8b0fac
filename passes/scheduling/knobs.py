"""Numbers of a kernel that a schedule may set: `%y { map = grid, threads = 128, vector = 4, flight = 2 }`. What is not written is left to the backend.

    threads   threads of a block, a multiple of 32                                   kernels of the kinds `grid` and `window`
    vector    neighbouring places that one access moves: at most as many as fit      kernels of the kind `grid`
    flight    accesses that a thread has under way to each tensor                    kernels of the kind `grid`
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelink_ir.ir.nodes import IntLit
from pipelink_ir.passes.scheduling.wishes import Wishes

KEYS = {"threads": ("grid", "window"), "vector": ("grid",), "flight": ("grid",)}
"""The kinds of kernels that each speaks of."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What is written; 0 is nothing."""

    threads: int = 0
    vector: int = 0
    flight: int = 0


NONE = Knobs()


def knobs_of(kind: str, tensors: Iterable[str], wishes: Wishes) -> Knobs:
    """The numbers of one kernel, whichever of its definitions they are written at."""
    found: dict[str, int] = {}
    for tensor in tensors:
        for key, kinds in KEYS.items():
            setting = wishes.asked.of(tensor, key)
            if setting is None or not isinstance(setting.value, IntLit):
                continue
            if kind in kinds:
                found.setdefault(key, setting.value.value)
            else:
                wishes.refuse(tensor, key, f"the kernel of '%{tensor}' is of the kind '{kind}', which has no '{key}' to set",
                              f"leave '{key}' out; kernels of the kind {' and '.join(kinds)} have it")
    return Knobs(**found) if found else NONE
