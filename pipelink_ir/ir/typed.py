"""What inference finds out about one operator: the form in which backends read its meaning.

A `TypedOperator` belongs to an operator without type variables, `...`, word or dtype attributes. In its expressions every node has a `dtype`,
implicit conversions are `Cast(implicit=True)` nodes, literals have the dtype that their neighbours gave them, every `let` has become a local of rank 0, and
every `Read` says by `access` what is known of each index. Index variables and dimensions are `Name`s of dtype i64; the other `Name`s are `scalars`.
Shapes and ranges are i64 expressions over `symbols` alone; ranges of reductions may depend on data.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Expr, Operator, Range, Reduce
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import walk


@dataclass(frozen=True, slots=True)
class Border:
    """What answers a read outside one axis: `replicate`, `reflect`, `reflect101`, `wrap`, or `constant` with its value (typed)."""

    mode: str
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A definition over a box. `axes` has one `Range` for every axis of the tensor (a constant position is a range of extent one with an index that
    nothing reads). `holes` are constant positions that win over this piece, each a conjunction of (axis, value): there it is not evaluated."""

    axes: tuple[Range, ...]
    value: Expr
    holes: tuple[tuple[tuple[int, int], ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand, a result or a local. `shape` has (lo, hi) for every axis, half open; lo is 0 for operands and results. `dtype` is the dtype in
    memory of operands and results, the dtype of the values (bool, i32, i64, f32, f64) of a local. Operands have no pieces."""

    name: str
    kind: str
    dtype: DType
    shape: tuple[tuple[Expr, Expr], ...]
    border: tuple[Border | None, ...]
    pieces: tuple[Piece, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The axis along which a group runs in order: its position in each tensor of the group, and the direction (1 upwards, -1 downwards). Reads
    within the group reach only places that are earlier in that order, or the same place of a tensor that stands before in `Group.tensors`."""

    axis: tuple[int, ...]
    step: int


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors that are computed together: one without a recurrence, or all that take part in one, in the order in which one step computes them."""

    tensors: tuple[str, ...]
    recurrence: Recurrence | None


@dataclass(frozen=True, slots=True)
class TypedOperator:
    """One operator, typed and checked. `order` lists all results and locals so that what a group reads stands before it."""

    op: Operator
    tensors: dict[str, Tensor]
    symbols: tuple[str, ...]
    """Dimensions by name: those that operands bind, and `dim` attributes."""
    scalars: tuple[tuple[str, DType], ...]
    """Attributes that are not known before the call: name and dtype."""
    order: tuple[Group, ...]
    empty: str | None
    """`zero` or `nan` from `semantic { empty = … }`."""
    exact: bool
    """`compile { accuracy = exact }`."""
    fast_math: bool
    exactly: frozenset[str] = frozenset()
    """The definitions that ask for it each for itself, where the operator does not: `compile { %y { accuracy = exact } }`. They have no reductions."""
    reduces: bool = field(init=False)
    """Whether any value has a reduction: most kinds of kernels need not be looked for without one."""

    def __post_init__(self) -> None:
        found = any(isinstance(x, Reduce) for t in self.tensors.values() for p in t.pieces for x in walk(p.value))
        object.__setattr__(self, "reduces", found)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors[o.name] for o in self.op.operands)

    @property
    def results(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors[o.name] for o in self.op.results)
