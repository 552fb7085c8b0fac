"""Which products of matrices tensor cores compute, and in tiles of what size.

Tensor cores multiply what memory holds: two matrices of f16, or two of bf16, whose products are exact and are added up in f32; or bytes, whose products are
added up in i32. So the factors of a product must be of such a dtype, or be made of operands of one dtype: then they may be rounded to it (language.md,
"Accuracy"), unless the operator asks for `accuracy = exact`. Everything else stays with the ordinary kernel of a product; `why_not` says why.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Apply, Cast, Expr, FloatLit, IntLit, Name, Read, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.ir.walk import children
from pipelink_ir.passes.scheduling.counts import count
from pipelink_ir.passes.scheduling.products import Product, product_of

if TYPE_CHECKING:
    from pipelink_ir.passes.scheduling.streams import Streamed

HALVES = ("f16", "bf16")
BYTES = ("i8", "u8")


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


@dataclass(frozen=True, slots=True)
class Cut:
    """How a block is cut: see `TensorCores`; the depth is in bytes of each line."""

    warps: tuple[int, int]
    tiles: tuple[int, int]
    bytes: int = 64


LARGE = Cut((2, 2), (4, 8))
"""128 x 128: four warps, each with 128 sums a thread."""
SMALL = Cut((2, 2), (2, 4))
"""64 x 64, where large ones would leave processors without work."""
FEW = 256
"""So many large tiles keep a GPU busy."""


def tensor_cores_of(op: TypedOperator, local: Callable[[str], bool], piece: Piece, chosen: Mapping[str, int] | None = None,
                    arch: Arch | None = None) -> TensorCores | None:
    """How tensor cores compute a piece; None where they cannot, or nothing is known to be gained."""
    product = product_of(op, local, piece, chosen)
    if product is None or why_not(op, local, product, arch) is not None:
        return None
    left, right = _carrier(op, local, product.left), _carrier(op, local, product.right)
    assert left is not None
    assert right is not None
    cut = _cut(piece, product)
    stages = 2 if arch is not None and arch.sm < 80 else 3
    return TensorCores(product, left, right, cut.warps, cut.tiles, cut.bytes // left.bytes, stages)


def why_not(op: TypedOperator, local: Callable[[str], bool], product: Product, arch: Arch | None = None) -> str | None:
    """Why tensor cores do not compute a product; None if they do."""
    left, right = (_carrier(op, local, f) for f in (product.left, product.right))
    if left is None or right is None:
        return "its factors are not made of operands of f16, of bf16, or plain operands of one byte"
    if left is not right and not (left.name in BYTES and right.name in BYTES):
        return f"one factor is made of {left}, the other of {right}"
    if left.name in HALVES and op.exact:
        return "'accuracy = exact' asks for sums as they are written"
    if arch is not None and arch.kind == "cuda" and (arch.sm < 75 or (arch.sm < 80 and left.name != "f16")):
        return f"{arch} has no tensor cores for {left}"
    return None


def _cut(piece: Piece, product: Product) -> Cut:
    """The tiles of a product: small ones if it is known to be small."""
    sizes = [[count(piece.axes[k]) for k in axes] for axes in (product.rows, product.columns, product.batch)]
    if any(n is None for axes in sizes for n in axes):
        return LARGE
    rows, columns, batch = (prod(n for n in axes if n is not None) for axes in sizes)
    tiles = -(-rows // 128) * -(-columns // 128) * batch
    return LARGE if tiles >= FEW else SMALL


# ------------------------------------------------------------------------------------------------------------------------ factors


def _carrier(op: TypedOperator, local: Callable[[str], bool], factor: Expr) -> DType | None:
    """The dtype in which a factor is held in shared memory."""
    plain = plain_read(factor)
    if plain is not None and not local(plain.tensor) and op.tensors[plain.tensor].dtype.name in BYTES:
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
