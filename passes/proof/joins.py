"""Whether an operator puts an operand at a given place of its result, for the proof of a plan: by arithmetic, element by element.

A definition that is nothing but a read of the operand, at sums of indices and sizes, is an affine map from places of the result to places of the operand. Two
affine maps are equal on a box if they are equal at its corners; sizes that are not known are tried with several values.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Apply, Axis, Cast, Define, Edge, Expr, IntLit, Name, Node, Operator, Position, Read, TensorType
from pipelink_ir.ir.shapes import ShapeMismatch, bind_shapes
from pipelink_ir.ir.walk import names_in, walk

SIZES = ((720720, 1441440, 2162160, 2882880, 3603600, 4324320), (5045040, 720720, 6486480, 1441440, 7207200, 2162160), (12, 24, 36, 48, 60, 72))
"""What symbols are tried with: numbers that most things divide."""

MOST_AXES = 12


def joined_at(op: Operator, node: Node, operand: int, offset: Expr, types: Mapping[str, TensorType]) -> str | None:
    """Why the operand of that number does not lie `offset` bytes behind the beginning of the result of a node; None if it does."""
    args = [a.name for a in node.args if isinstance(a, Edge)]
    if op.compute is None or len(op.results) != 1 or op.kernel is not None or len(args) != len(op.operands):
        return f"'@{op.name}' does more than to join its operands"
    shown = [types[a] for a in args] + list(node.types)
    symbols = sorted({n for t in shown for d in t.dims for n in names_in(d)} | names_in(offset))
    tried = 0
    for sizes in SIZES:
        env = {s: sizes[k % len(sizes)] * (1 + k // len(sizes)) for k, s in enumerate(symbols)}
        try:
            why = _for_sizes(op, node, operand, evaluate_int(offset, env), [_shape(types[a], env) for a in args], env)
        except (CannotEvaluate, ShapeMismatch):
            continue
        tried += 1
        if why is not None:
            return why
        if not symbols:
            break
    return None if tried else "its sizes cannot be worked out"


def _shape(t: TensorType, env: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate_int(d, env) for d in t.dims)


def _for_sizes(op: Operator, node: Node, operand: int, offset: int, shapes: list[tuple[int, ...]], outer: Mapping[str, int]) -> str | None:
    env: dict[str, int] = {}
    given = {s.key: s.value for s in node.attrs}
    for a in op.attributes:
        value = given.get(a.name, a.default)
        if a.type == "dim" and isinstance(value, Expr):
            env[a.name] = evaluate_int(value, outer if a.name in given else env)
    bind_shapes([(o.type, s) for o, s in zip(op.operands, shapes, strict=True)], env)
    whole = _shape(op.results[0].type, env)
    size = DTYPES[op.results[0].type.dtype].bytes
    name, shape = op.operands[operand].name, shapes[operand]
    elements = 0
    for axes, read in _pieces(op, op.results[0].name):
        if not isinstance(read, Read) or any(o.name == read.tensor and o.type.dtype != op.results[0].type.dtype for o in op.operands):
            return f"'@{op.name}' does more than to join its operands"
        if read.tensor != name:
            continue
        boxes = [(_range(x, n, env)) for x, n in zip(axes, whole, strict=True)]
        for corner in _corners(boxes):
            here = env | {x.index: c for x, c in zip(axes, corner, strict=True) if isinstance(x, Axis)}
            place = [_index(i, here) for i in read.indices]
            if size * _flat(corner, whole) != offset + size * _flat(tuple(place), shape):
                return f"'@{op.name}' puts it elsewhere in its result"
        count = 1
        for lo, hi in boxes:
            count *= max(0, hi - lo)
        elements += count
    total = 1
    for n in shape:
        total *= n
    return None if elements == total else f"'@{op.name}' does not take all of it once"


def _pieces(op: Operator, result: str) -> Iterator[tuple[tuple[Axis | Position, ...], Expr]]:
    """The definitions of the result, or of the local that it is a copy of."""
    assert op.compute is not None
    body = [d for d in op.compute.body if isinstance(d, Define)]
    own = [d for d in body if d.tensor == result]
    if len(own) == 1:
        read = _bare(own[0].value)
        inner = [d for d in body if isinstance(read, Read) and d.tensor == read.tensor]
        if inner and isinstance(read, Read) and len(own[0].axes) == len(read.indices) and len({d.tensor for d in body}) == 2:
            same = [a.index for a in own[0].axes if isinstance(a, Axis)] == [i.name for i in read.indices if isinstance(i, Name)]
            own = inner if same else own
    for d in own:
        yield tuple(a for a in d.axes if isinstance(a, Axis | Position)), _bare(d.value)


def _bare(e: Expr) -> Expr:
    return _bare(e.arg) if isinstance(e, Cast) and e.implicit else e


def _range(axis: Axis | Position, extent: int, env: Mapping[str, int]) -> tuple[int, int]:
    if isinstance(axis, Position):
        return axis.value, axis.value + 1
    return (0 if axis.lo is None else evaluate_int(axis.lo, env), extent if axis.hi is None else evaluate_int(axis.hi, env))


def _corners(boxes: list[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    if any(hi <= lo for lo, hi in boxes) or len(boxes) > MOST_AXES:
        if len(boxes) > MOST_AXES:
            raise CannotEvaluate("too many axes")
        return
    yield from product(*(sorted({lo, hi - 1}) for lo, hi in boxes))


def _index(e: Expr, env: Mapping[str, int]) -> int:
    """An index that is a sum: of anything else, corners would prove nothing."""
    for x in walk(e):
        if not isinstance(x, Name | IntLit) and not (isinstance(x, Apply) and x.fn in ("+", "-")):
            raise CannotEvaluate("no sum")
    return evaluate_int(e, env)


def _flat(place: tuple[int, ...], shape: tuple[int, ...]) -> int:
    out = 0
    for i, n in zip(place, shape, strict=True):
        out = out * n + i
    return out
