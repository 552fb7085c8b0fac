"""What an operator does with its operands' memory, read from its typed form: which operand a result may overwrite, and whether it only joins operands.

An element may be overwritten by a result if the operand is read for it alone: by the definition of that result, through locals that only it reads, at the
very index that is computed, outside of reductions. Then whatever the schedule makes of it (a loop, threads, a local that is kept or recomputed), the element
is read before its place is written, and never again. That asks a little more than is needed: an operand that two results read stays as it is, and so does
one of a result that another definition reads, which may compute it a second time.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipelink_ir.ir import contracts
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Operator, Range, Read, Reduce
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import children, substitute
from pipelink_ir.passes.infer.operator import typed_operator


@dataclass(frozen=True, slots=True)
class Join:
    """An operator that does nothing but put its operands one behind another along an axis, in the order of `parts`, their numbers; `stacked`: each is one place
    of that axis, which it has not itself. In memory they are one behind another where all axes before are 1."""

    axis: int
    stacked: bool
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """`over`: (result, operand) by number, whether the contract names the pair; `join`: None if the operator computes anything."""

    over: dict[tuple[int, int], bool]
    join: Join | None


def access_of(op: Operator) -> Access:
    """How an operator treats its operands."""
    asked = _asked(op)
    if op.kernel is not None or op.compute is None:
        # What a user's kernel may do to its operands only the user knows.
        return Access(dict.fromkeys(asked, True), None)
    typed = typed_operator(op)
    over = {pair: pair in asked for pair in overwritable(typed)}
    return Access(over, _join(typed) if not asked else None)


def _asked(op: Operator) -> set[tuple[int, int]]:
    """The pairs of `%y { inplace = %x }`."""
    number = {o.name: n for n, o in enumerate(op.operands)}
    out = set()
    for r, result in enumerate(op.results):
        found = contracts.setting(op, "memory", "inplace", result.name)
        if found is not None and found.scoped and isinstance(found.setting.value, Read) and found.setting.value.tensor in number:
            out.add((r, number[found.setting.value.tensor]))
    return out


# ------------------------------------------------------------------------------------------------------------------------ in place


def overwritable(typed: TypedOperator) -> Iterator[tuple[int, int]]:
    """The pairs of a result and an operand, by number, whose elements it may lie in the place of."""
    readers: dict[str, set[str]] = {}
    for name, tensor in typed.tensors.items():
        for piece in tensor.pieces:
            for read, _ in _reads(piece.value, False):
                readers.setdefault(read.tensor, set()).add(name)
    in_order = {t for g in typed.order if g.recurrence is not None for t in g.tensors}
    for r, result in enumerate(typed.results):
        if readers.get(result.name) or result.name in in_order:
            continue
        for o, operand in enumerate(typed.operands):
            alike = operand.dtype.bytes == result.dtype.bytes and _same_shape(operand, result)
            if alike and _only_in_step(typed, operand.name, result.name, readers, in_order):
                yield r, o


def _same_shape(a: Tensor, b: Tensor) -> bool:
    return len(a.shape) == len(b.shape) and all(x == y or normal(x) == normal(y) for (_, x), (_, y) in zip(a.shape, b.shape, strict=True))


def _only_in_step(typed: TypedOperator, operand: str, result: str, readers: dict[str, set[str]], in_order: set[str]) -> bool:
    """Whether all that comes from the operand goes to the result alone, index by index."""
    left, seen = [operand], {operand}
    while left:
        source = left.pop()
        for name in readers.get(source, ()):
            if name in in_order or (name != result and typed.tensors[name].kind == "result") or not _in_step(typed.tensors[name], source):
                return False
            if name not in seen and name != result:
                if any(b is not None for b in typed.tensors[name].border):
                    return False
                seen.add(name)
                left.append(name)
    return True


def _in_step(reader: Tensor, source: str) -> bool:
    """Whether every read of `source` is at the index that is being defined, outside of reductions and of other indices."""
    for piece in reader.pieces:
        for read, inside in _reads(piece.value, False):
            if read.tensor == source and (inside or len(read.indices) != len(piece.axes) or not all(map(_own, read.indices, piece.axes))):
                return False
    return True


def _own(index: Expr, axis: Range) -> bool:
    if isinstance(index, Name) and index.name == axis.index:
        return True
    return isinstance(index, IntLit) and isinstance(axis.lo, IntLit) and isinstance(axis.hi, IntLit) and axis.lo.value == index.value == axis.hi.value - 1


def _reads(e: Expr, inside: bool) -> Iterator[tuple[Read, bool]]:
    """Every read, and whether it stands inside a reduction or an index."""
    if isinstance(e, Read):
        yield e, inside
    for child in children(e):
        yield from _reads(child, inside or isinstance(e, Reduce | Read))


# --------------------------------------------------------------------------------------------------------------------------- joins


def _join(typed: TypedOperator) -> Join | None:
    if len(typed.results) != 1 or len(typed.operands) < 2:
        return None
    result = typed.results[0]
    pieces = result.pieces
    through = _copied(pieces, result)
    if through is not None and typed.tensors[through].kind == "local":
        # `%y[…] = %x[…]`, with the pieces in %x, which is how a packed argument arrives.
        tensor = typed.tensors[through]
        if tensor.dtype != result.dtype.compute or any(b is not None for b in tensor.border) or not _same_shape(tensor, result):
            return None
        pieces = tensor.pieces
    number = {o.name: n for n, o in enumerate(typed.operands)}
    for axis in range(len(result.shape)):
        found = {p.start: p for p in (_part(typed, result, piece, axis, number) for piece in pieces) if p is not None}
        if len(found) == len(pieces) == len(number) and {p.operand for p in found.values()} == set(number.values()):
            return _in_order(axis, found)
    return None


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand that is put at `start` along the axis of a join, and what it measures there."""

    operand: int
    start: Expr
    extent: Expr
    stacked: bool


def _in_order(axis: int, found: dict[Expr, _Part]) -> Join | None:
    """The parts as they follow each other."""
    at: Expr = IntLit(0)
    out: list[int] = []
    for _ in found:
        part = found.get(at)
        if part is None:
            return None
        out.append(part.operand)
        at = normal(Apply("+", (at, part.extent)))
    kinds = {p.stacked for p in found.values()}
    return Join(axis, kinds.pop(), tuple(out)) if len(kinds) == 1 else None


def _copied(pieces: tuple[Piece, ...], result: Tensor) -> str | None:
    """The tensor that is the result element by element."""
    if len(pieces) != 1 or pieces[0].holes:
        return None
    read = _plain(pieces[0].value, result)
    if read is None or len(read.indices) != len(pieces[0].axes):
        return None
    same = all(isinstance(i, Name) and i.name == a.index for i, a in zip(read.indices, pieces[0].axes, strict=True))
    return read.tensor if same else None


def _plain(e: Expr, result: Tensor) -> Read | None:
    """The read that a value is, looking through conversions that change nothing for values that are stored as the result's dtype."""
    while isinstance(e, Cast) and (e.to == result.dtype.name or e.to == result.dtype.compute.name):
        e = e.arg
    return e if isinstance(e, Read) else None


def _part(typed: TypedOperator, result: Tensor, piece: Piece, at: int, number: dict[str, int]) -> _Part | None:
    """The operand that a piece is, put somewhere along axis `at`."""
    read = _plain(piece.value, result)
    if read is None or piece.holes or read.tensor not in number:
        return None
    operand = typed.tensors[read.tensor]
    if operand.dtype != result.dtype or any(b is not None for b in operand.border):
        return None
    joined, lo = piece.axes[at], piece.axes[at].lo or IntLit(0)
    stacked = len(read.indices) == len(piece.axes) - 1
    if not stacked and (len(read.indices) != len(piece.axes) or not _shifted(read.indices[at], joined, lo, operand.shape[at][1])):
        return None
    if stacked and normal(Apply("-", (joined.hi, lo))) != IntLit(1):
        return None
    others = [k for k in range(len(piece.axes)) if k != at]
    inner = [k if k < at or not stacked else k - 1 for k in others]
    for k, own in zip(others, inner, strict=True):
        axis, index = piece.axes[k], read.indices[own]
        full = (axis.lo is None or normal(axis.lo) == IntLit(0)) and normal(axis.hi) == normal(operand.shape[own][1]) == normal(result.shape[k][1])
        if not (full and isinstance(index, Name) and index.name == axis.index):
            return None
    return _Part(number[read.tensor], normal(lo), normal(Apply("-", (joined.hi, lo))), stacked)


def _shifted(index: Expr, axis: Range, lo: Expr, extent: Expr) -> bool:
    """Whether an operand of this extent is put at `lo`, all of it."""
    return normal(substitute(index, {axis.index: Apply("+", (Name("k"), lo))})) == Name("k") and normal(Apply("-", (axis.hi, lo))) == normal(extent)
