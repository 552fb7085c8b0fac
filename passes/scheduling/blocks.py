"""`compile { block = … }`, as kernels of a GPU take it: how large a block is.

    block = 256                   threads of a block                                              kernels of the kinds `grid` and `window`
    block = [64, 128]             rows and columns of the result that a block makes               products: `mma` and `product`; threads, one for each place,
                                                                                                  of kernels of the kinds above, 1024 at most
    block = [64, 128, 32]         and how many terms of the sum it takes at a time                products

Sizes are rounded up to what a kernel can have: threads to whole warps; of a tile on tensor cores rows and columns to 16, terms to 32 bytes; without tensor
cores the nearest of the tiles that there are (`cuts.py`). A tile that needs more shared memory than a block has is not followed, and neither is a block by
kinds of kernels that it does not speak of; the ledger says so. Where a tile is asked for, no kernel with a tile of its own (`wgmma`, `strips`) is taken.
"""
from __future__ import annotations

from math import log2, prod

from pipelink_ir.ir import contracts
from pipelink_ir.ir.gpus import facts_of
from pipelink_ir.ir.nodes import IntLit, Items, Operator, Setting
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.scheduling.cuts import EVERY
from pipelink_ir.passes.scheduling.cuts import Cut as PlainCut

WARP, MOST = 32, 1024
THREADS = ("grid", "window")
"""Kinds of kernels whose threads are free."""
TILES = ("mma", "product")
"""Kinds of kernels whose tile is free."""
SIDES = 4
"""A warp has at most so many tiles of 16 rows and of 16 columns."""
ANY = 48 << 10
"""Bytes of shared memory that a block of any architecture has."""


def setting_of(op: Operator) -> Setting | None:
    """The setting, if it says numbers."""
    found = contracts.setting(op, "compile", "block")
    return found.setting if found is not None and sizes_of(found.setting) else None


def sizes_of(setting: Setting) -> tuple[int, ...]:
    """Its numbers; none if one is not known."""
    items = setting.value.items if isinstance(setting.value, Items) else (setting.value,)
    sizes = tuple(i.value for i in items if isinstance(i, IntLit))
    return sizes if len(sizes) == len(items) else ()


def threads_of(op: Operator) -> int:
    """The threads of a block that are asked for, in whole warps; 0 if none are."""
    setting = setting_of(op)
    if setting is None:
        return 0
    return min(MOST, -(-prod(sizes_of(setting)[:2]) // WARP) * WARP)


def tile_of(op: Operator) -> tuple[int, int, int] | None:
    """Rows, columns and terms of the tile that is asked for; terms are 0 where that is left open."""
    setting = setting_of(op)
    sizes = () if setting is None else sizes_of(setting)
    return (sizes[0], sizes[1], sizes[2] if len(sizes) > 2 else 0) if len(sizes) > 1 else None


def warps_of(rows: int, columns: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Warps down and across a tile on tensor cores, and tiles of 16 x 8 of each: several warps where there is work for them."""
    return (_split(rows)[0], _split(columns)[0]), (_split(rows)[1], 2 * _split(columns)[1])


def _split(size: int) -> tuple[int, int]:
    """Warps along a side, and how many 16 of it each has."""
    units = -(-size // 16)
    warps = 1 if units == 1 else 2
    while -(-units // warps) > SIDES:
        warps *= 2
    return warps, -(-units // warps)


def fits(bytes_: int, arch: Arch | None) -> bool:
    """Whether a block has so much shared memory."""
    facts = facts_of(arch) if arch is not None and arch.sm else None
    return bytes_ <= (ANY if facts is None else facts.shared_block)


def nearest(rows: int, columns: int) -> PlainCut:
    """The tile without tensor cores that is nearest to what is asked for."""
    return min(EVERY, key=lambda c: abs(log2(c.rows / rows)) + abs(log2(c.columns / columns)))
