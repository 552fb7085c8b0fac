"""Kernels for a GPU have several parts, rounds and tiles of small arrays too, and few threads for them."""
from __future__ import annotations

import pytest

from pipelink_ir.backends.loops.gpu import product, row, rows, team, turn
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.scheduling import attention, parts, products, tensor_cores
from pipelink_ir.passes.scheduling.cuts import Cut
from tests.unit.loops import gpu_machine


def small_attention(terms: int | None, columns: int | None, arch: Arch | None) -> attention.Cut:
    """Two warps, and few keys at a time."""
    return attention.Cut(2, 1, 16, -(-(terms or 32) // 16) * 16, -(-(columns or 32) // 16) * 16, 1)


def small_cut(rows: int | None, columns: int | None, batch: int | None, terms: int | None) -> Cut:
    """Two groups, or four for few rows."""
    return Cut(1, 8, (1, 4), 8, 4) if rows is not None and rows < 4 else Cut(8, 8, (4, 4), 8, 2, 3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes wherever arrays are cut."""
    for module, name, value in ((parts, "PARTS", 6), (parts, "LEAST", 2), (parts, "COLUMN_LEAST", 2), (parts, "COLUMNS", 12),
                                (team, "ROUND", 8), (products, "cut_of", small_cut), (product, "TERMS", 8),
                                (turn, "SIDE", 4), (row, "LANES", 2), (rows, "LANES", 2), (rows, "MOST", 4), (rows, "VECTORS", 2), (rows, "FULL", 4), (rows, "TOGETHER", 4),
                                (gpu_machine, "THREADS", 3), (tensor_cores, "LARGE", tensor_cores.Cut((1, 1), (2, 2))),
                                (tensor_cores, "SMALL", tensor_cores.Cut((2, 1), (1, 2))), (tensor_cores, "FEW", 2),
                                (attention, "cut_of", small_attention)):
        monkeypatch.setattr(module, name, value)
