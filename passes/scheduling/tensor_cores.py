"""Which products of matrices tensor cores compute, and in tiles of what size.

Tensor cores multiply what memory holds: two matrices of f16, or two of bf16, or of f8 of any kinds, whose products are exact and are added up in f32; or bytes,
whose products are added up in i32. f8 becomes f16 on the way where there is no instruction for it, which changes nothing. Under `accuracy = tf32` factors of
f32 are rounded to tf32. So the factors of a product must be of such a dtype, or be made of operands of one dtype: then they may be rounded to it (language.md,
"Accuracy"), unless the operator asks for `accuracy = exact`. Everything else stays with the ordinary kernel of a product; `why_not` says why.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES, F16, F32, DType
from pipelink_ir.ir.nodes import Apply, Cast, Expr, FloatLit, IntLit, Name, Read, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.blocks import MOST, fits, tile_of, warps_of
from pipelink_ir.passes.scheduling.counts import count, terms
from pipelink_ir.passes.scheduling.products import NARROW as FEWEST
from pipelink_ir.passes.scheduling.products import Product, product_of

if TYPE_CHECKING:
    from pipelink_ir.passes.scheduling.streams import Streamed

HALVES = ("f16", "bf16")
BYTES = ("i8", "u8")
EIGHTHS = ("f8e4m3", "f8e5m2")
EIGHTHS_FROM = 89
"""The first architecture with an instruction for f8."""


@dataclass(frozen=True, slots=True)
class TensorCores:
    """A product on tensor cores. A block computes `warps` down and across times `tiles` of 16 x 8 elements each, from tiles of the factors that are `depth`
    terms deep; `stages` of them lie in shared memory or are on their way there."""

    product: Product
    left: DType
    right: DType
    warps: tuple[int, int]
    tiles: tuple[int, int]
    depth: int
    stages: int
    unless: Streamed | None = None
    """A better way that is taken where the sizes and the memory of a call are fit for it."""

    @property
    def rows(self) -> int:
        return self.warps[0] * self.tiles[0] * 16

    @property
    def columns(self) -> int:
        return self.warps[1] * self.tiles[1] * 8

    @property
    def instruction(self) -> str:
        """The instruction that does the work."""
        return f"mma.sync m16n8k{32 // self.left.bytes}"

    @property
    def factors(self) -> str:
        """What the factors are held as."""
        names = ["tf32" if d is F32 else d.name for d in (self.left, self.right)]
        return names[0] if names[0] == names[1] else " and ".join(names)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a block is cut: see `TensorCores`; the depth is in bytes of each line."""

    warps: tuple[int, int]
    tiles: tuple[int, int]
    bytes: int = 64


STEP = 32
"""Bytes of a line that one instruction multiplies."""
LARGE = Cut((2, 2), (4, 8))
"""128 x 128: four warps, each with 128 sums a thread."""
NARROW = Cut((2, 2), (4, 4))
"""128 x 64 for f8, which sm_90 makes f16 of in registers: it needs more of them."""
SMALL = Cut((2, 2), (2, 4))
"""64 x 64, where large ones would leave processors without work."""
DEEPER = Cut((2, 2), (2, 4), 128)
"""The same where there are few of these, too, a processor has memory for two blocks and a sum has `LONG` terms: twice as many bytes are on their way."""
LONG = 512
FEW = 256
"""So many tiles keep a GPU busy, large ones too."""


def tensor_cores_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None,
                    arch: Arch | None = None, rows: int = FEWEST) -> TensorCores | None:
    """How tensor cores compute a piece; None where they cannot, or nothing is known to be gained. `rows`: how many there have to be."""
    product = product_of(op, local, piece, chosen, rows=rows)
    if product is None or why_not(op, local, product, arch) is not None:
        return None
    held = _carriers(op, local, product, arch)
    assert not isinstance(held, str)
    left, right = held
    stages = 2 if arch is not None and arch.sm < 80 else 3
    cut = _asked(op, left, stages, arch) or _cut(piece, product, left.name not in EIGHTHS and _twice(DEEPER, stages, arch))
    cut = NARROW if cut is LARGE and left.name in EIGHTHS else cut
    return TensorCores(product, left, right, cut.warps, cut.tiles, cut.bytes // left.bytes, stages)


def _twice(cut: Cut, stages: int, arch: Arch | None) -> bool:
    """Whether a processor of an architecture that is known has the memory for two such blocks."""
    lines = 16 * cut.warps[0] * cut.tiles[0] + 8 * cut.warps[1] * cut.tiles[1]
    return arch is not None and arch.sm > 0 and fits(2 * stages * lines * (cut.bytes + 16), arch)


def _asked(op: TypedOperator, left: DType, stages: int, arch: Arch | None) -> Cut | None:
    """The tile that `compile { block = [rows, columns, terms] }` asks for, if a block has the memory."""
    tile = tile_of(op.op)
    if tile is None:
        return None
    warps, tiles = warps_of(*tile[:2])
    lines, threads = (warps[0] * tiles[0] * 16, warps[1] * tiles[1] * 8), 32 * prod(warps)
    deep = max(1, -(-tile[2] * left.bytes // STEP)) * STEP if tile[2] else LARGE.bytes
    while any(n * deep // 16 % threads for n in lines):
        # All threads copy as much of each factor.
        deep += STEP
    return Cut(warps, tiles, deep) if fits(stages * sum(lines) * (deep + 16), arch) and threads <= MOST else None


def why_not(op: TypedOperator, local: Callable[[str], bool], product: Product, arch: Arch | None = None) -> str | None:
    """Why tensor cores do not compute a product; None if they do."""
    held = _carriers(op, local, product, arch)
    if isinstance(held, str):
        return held
    left, _ = held
    if left.is_float and op.exact:
        return "'accuracy = exact' asks for sums as they are written"
    if arch is not None and arch.kind == "cuda" and (arch.sm < 75 or (arch.sm < 80 and left.name not in ("f16", *BYTES))):
        return f"{arch} has no tensor cores for {'tf32' if left is F32 else left}"
    return None


def carriers(op: TypedOperator, local: Callable[[str], bool], product: Product, arch: Arch | None) -> tuple[DType, DType] | str:
    """What the factors are held as; why tensor cores do not compute a product."""
    return why_not(op, local, product, arch) or _carriers(op, local, product, arch)


def _carriers(op: TypedOperator, local: Callable[[str], bool], product: Product, arch: Arch | None) -> tuple[DType, DType] | str:
    """The dtypes in which both factors are held in shared memory; why there are none."""
    left, right = (_carrier(op, local, f) for f in (product.left, product.right))
    if left is None or right is None:
        asked = contracts.tf32(op.op)
        if asked and all(_single(op, local, f) for f in (product.left, product.right)):
            return F32, F32
        kinds = "of f32, of f16, of bf16" if asked else "of f16, of bf16"
        return f"its factors are not made of operands {kinds}, or plain operands of one byte"
    if left.name in EIGHTHS and right.name in EIGHTHS:
        return (left, right) if arch is None or arch.sm == 0 or arch.sm >= EIGHTHS_FROM else (F16, F16)
    for wide, narrow in ((left, right), (right, left)):
        if wide.name in HALVES and narrow.name in EIGHTHS:
            return wide, wide
    if left is not right and not (left.name in BYTES and right.name in BYTES):
        return (F32, F32) if contracts.tf32(op.op) and left.is_float and right.is_float else f"one factor is made of {left}, the other of {right}"
    return left, right


def _single(op: TypedOperator, local: Callable[[str], bool], factor: Expr) -> bool:
    """Whether a factor is arithmetic on floats of at most 32 bits."""
    found = leaves_of(op, local, factor)
    return found is not None and found <= frozenset(("f32", *HALVES, *EIGHTHS)) and factor.dtype is F32


def _cut(piece: Piece, product: Product, deep: bool) -> Cut:
    """The tiles of a product: small ones if it is known to be small, which may be `deep` ones."""
    sizes = [[count(piece.axes[k]) for k in axes] for axes in (product.rows, product.columns, product.batch)]
    if any(n is None for axes in sizes for n in axes):
        return LARGE
    rows, columns, batch = (prod(n for n in axes if n is not None) for axes in sizes)
    tiles = -(-rows // 128) * -(-columns // 128) * batch
    if tiles >= FEW:
        return LARGE
    deep = deep and (terms(product.reduce) or 0) >= LONG and -(-rows // 64) * -(-columns // 64) * batch <= FEW
    return DEEPER if deep else SMALL


# ------------------------------------------------------------------------------------------------------------------------ factors


def _carrier(op: TypedOperator, local: Callable[[str], bool], factor: Expr) -> DType | None:
    """The dtype in which a factor is held in shared memory."""
    plain = plain_read(factor)
    if plain is not None and not local(plain.tensor) and op.tensors[plain.tensor].dtype.name in (*BYTES, *EIGHTHS):
        return op.tensors[plain.tensor].dtype
    found = _Leaves(op, local).of(factor)
    return DTYPES[next(iter(found))] if found is not None and len(found) == 1 and found <= frozenset(HALVES) else None


def leaves_of(op: TypedOperator, local: Callable[[str], bool], factor: Expr) -> frozenset[str] | None:
    """The dtypes of the operands that a factor is made of; None where something else than arithmetic on floats stands in it."""
    return _Leaves(op, local).of(factor)


def plain_read(factor: Expr) -> Read | None:
    """The read that a factor is, behind conversions that inference put there."""
    while isinstance(factor, Cast) and factor.implicit:
        factor = factor.arg
    return factor if isinstance(factor, Read) else None


@dataclass(slots=True)
class _Leaves:
    """The dtypes of what a value is made of; None where something else than arithmetic on tensors of floats stands in it."""

    op: TypedOperator
    local: Callable[[str], bool]

    def of(self, x: Expr) -> frozenset[str] | None:
        if isinstance(x, Cast) and not x.implicit and x.to in HALVES:
            return frozenset((x.to,))
        if isinstance(x, Reduce | Name):
            return None
        if isinstance(x, Read):
            return self._read(x)
        if isinstance(x, Apply) and x.dtype is not None and not x.dtype.is_float:
            return None
        parts = [self.of(c) for c in children(x) if not isinstance(c, FloatLit | IntLit)]
        out: frozenset[str] = frozenset()
        for part in parts:
            if part is None:
                return None
            out |= part
        return out

    def _read(self, x: Read) -> frozenset[str] | None:
        t = self.op.tensors[x.tensor]
        if not self.local(x.tensor):
            return frozenset((t.dtype.name,))
        out: frozenset[str] = frozenset()
        for piece in t.pieces:
            part = self.of(piece.value)
            if part is None:
                return None
            out |= part
        return out
