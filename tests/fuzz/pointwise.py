"""Programs whose results depend on the element at the same place: all functions, dtypes, casts, literals, attributes, locals and lets."""
from __future__ import annotations

from tests.fuzz.data import Program
from tests.fuzz.expressions import kind_of
from tests.fuzz.operators import DIMS, DTYPE_NAMES, INDEX, Op, Tensor, attributes, names, samples, single
from tests.fuzz.tape import Tape


def program(tape: Tape) -> Program:
    """One operator over 1 to 4 operands of any dtypes, of all axes or of some."""
    axes = tape.choose((("W",), ("H", "W"), (), ("H",), ("H", "W"), ("C", "H", "W")))
    op = Op("f", [_operand(tape, f"x{i}", axes) for i in range(tape.between(1, 4))])
    if tape.chance(2):
        op.attrs += attributes(tape)
    if tape.chance(6):
        op.compile.append("accuracy = exact")
    write(tape, op, axes)
    return single(op, samples(tape, sorted({d for o in op.operands for d in o.dims}), large=True))


def _operand(tape: Tape, name: str, axes: tuple[str, ...]) -> Tensor:
    """Of all axes in some order, or of some of them. The first has all, so that every dimension is bound."""
    dims = tuple(tape.shuffled(axes)) if len(axes) > 1 and tape.chance(3) else axes
    if name != "x0" and axes and tape.chance(3):
        dims = tuple(d for d in dims if tape.chance(2))
    return Tensor(name, tape.choose(DTYPE_NAMES), dims)


def write(tape: Tape, op: Op, axes: tuple[str, ...]) -> None:
    """Lets, locals and 1 to 3 results at every place of `axes`."""
    numbers = names()
    indices = {d: INDEX[d] for d in axes}
    lists: dict[str, list[str]] = {}
    if tape.chance(3):
        kind = tape.choose(("f32", "i64", "f64"))
        scalars = op.writer(tape, numbers, {})
        scalars.leaves["i64"] += [d for d in DIMS if d in axes]
        op.lines.append(f"let base = {scalars.text(kind, 1, firm=True)}")
        lists.setdefault(kind, []).append("base")
    for i in range(tape.below(3)):
        local = Tensor(f"t{i}", tape.choose(("f32", "bool", "i32", "i64", "f64")), axes)
        op.lines.append(f"{local.at(*indices.values())} = {op.writer(tape, numbers, indices, lists).text(local.dtype, 2, firm=True)}")
        lists.setdefault(kind_of(local.dtype), []).append(local.at(*indices.values()))
    for i in range(tape.between(1, 3)):
        r = Tensor(f"y{i}", tape.choose(DTYPE_NAMES), axes)
        op.results.append(r)
        op.lines.append(f"{r.at(*indices.values())} = {op.writer(tape, numbers, indices, lists).stored(r.dtype, tape.between(1, 4))}")
    if tape.chance(2):
        op.lines = tape.shuffled(op.lines)
