"""Windows around an index: borders of every mode, per axis, on operands and locals; images smaller than the window; reads that guards or shapes keep inside."""
from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.data import Program
from tests.fuzz.expressions import Writer, kind_of
from tests.fuzz.operators import INDEX, Op, Tensor, attributes, names, samples, single
from tests.fuzz.tape import Tape

MODES = ("replicate", "reflect", "reflect101", "wrap", "constant")
PIXELS = ("f32", "u8", "f16", "i16", "f64", "i32", "bf16", "bool", "f8e4m3", "i64", "u16")


def program(tape: Tape) -> Program:
    """One of the forms below."""
    form = tape.choose((_window, _window, _window, _valid, _guarded, _strided, _transposed))
    return form(tape)


def border(tape: Tape, kind: str, attrs: list[str]) -> str:
    """One border; constants may be attributes."""
    mode = tape.choose(MODES)
    if mode != "constant":
        return mode
    if kind == "bool":
        return f"constant({tape.choose(('false', 'true'))})"
    constants = ["0", "7", "-3"] if kind[0] == "i" else ["0", "0.5", "-2.0", "inf", "nan", "1e3"]
    return f"constant({tape.choose([*constants, *attrs])})"


def borders(tape: Tape, rank: int, kind: str, attrs: list[str]) -> str:
    """One border for all axes, or one an axis."""
    if rank == 1 or tape.chance(2):
        return border(tape, kind, attrs)
    return f"[{', '.join(border(tape, kind, attrs) for _ in range(rank))}]"


def offset(tape: Tape, index: str, reach: int = 2) -> str:
    """An index near another one."""
    n = tape.choose((0, *range(-reach, reach + 1)))
    return index if n == 0 else f"{index} {'+' if n > 0 else '-'} {abs(n)}"


def _images(tape: Tape, axes: tuple[str, ...], op: Op) -> None:
    for i in range(tape.between(1, 2)):
        op.operands.append(Tensor(f"x{i}", tape.choose(PIXELS), axes))


def _window(tape: Tape) -> Program:
    """Reads anywhere around the index, alone and in reductions over a window, of operands and of locals, some of which have a border of their own."""
    axes = tape.choose((("W",), ("H", "W"), ("H", "W"), ("C", "H", "W")))
    op = Op("f", [])
    op.attrs += [a for a in attributes(tape) if a[1] in ("f32", "i32")]
    _images(tape, axes, op)
    _declare(tape, op)
    numbers = names()
    locals_: list[Tensor] = []
    for i in range(tape.below(3)):
        local = Tensor(f"g{i}", tape.choose(("f32", "i32", "bool", "f64")), axes)
        writer = _reader(tape, op, numbers, axes, [*op.operands, *locals_])
        left = [INDEX[d] for d in axes]
        if tape.chance(2):
            op.memory.append(f"%{local.name} {{ border = {borders(tape, len(axes), local.dtype, [])} }}")
            if tape.chance(2):
                left = [f"{i} < {d}" for i, d in zip(left, axes, strict=True)]
        if tape.chance(3):
            # Where it lives changes no result.
            op.schedule.append(f"%{local.name} {{ place = {tape.choose(('buffer', 'inline'))} }}")
        op.lines.append(f"{local.at(*left)} = {writer.text(local.dtype, 2, firm=True)}")
        locals_.append(local)
    for i in range(tape.between(1, 2)):
        r = Tensor(f"y{i}", tape.choose(PIXELS), axes)
        op.results.append(r)
        writer = _reader(tape, op, numbers, axes, [*op.operands, *locals_])
        op.lines.append(f"{r.at(*(INDEX[d] for d in axes))} = {writer.stored(r.dtype, 2)}")
    return single(op, samples(tape, axes, large=True))


def _declare(tape: Tape, op: Op) -> None:
    """A border for every operand, general or scoped."""
    if tape.chance(3):
        op.memory.append(f"border = {borders(tape, len(op.operands[0].dims), 'i32', [])}" if all(o.dtype != "bool" for o in op.operands) else "border = wrap")
        return
    for o in op.operands:
        scalars = [n for n, t, _, _ in op.attrs if kind_of(t) == kind_of(o.dtype)]
        op.memory.append(f"%{o.name} {{ border = {borders(tape, len(o.dims), kind_of(o.dtype), scalars)} }}")


def _reader(tape: Tape, op: Op, numbers: Iterator[int], axes: tuple[str, ...], tensors: list[Tensor]) -> Writer:
    """Reads of the tensors at a few offsets each, and reductions over windows of them."""
    more: dict[str, list[str]] = {}
    for t in tensors:
        kind = kind_of(t.dtype)
        for _ in range(tape.between(1, 3)):
            more.setdefault(kind, []).append(t.at(*(offset(tape, INDEX[d]) for d in axes)))
        if tape.chance(3):
            more[kind] += [_over_window(tape, t, axes, numbers, kind)] * 2
    # No sizes: a guard such as `W == 2` would make `w + 2` an index that is never inside, which is an error under any border.
    return op.writer(tape, numbers, {d: INDEX[d] for d in axes}, more, dims=False)


def _over_window(tape: Tape, t: Tensor, axes: tuple[str, ...], numbers: Iterator[int], kind: str) -> str:
    """A reduction over a window as wide as 3 or 5, possibly wider than the image."""
    over: list[str] = []
    indices: list[str] = []
    for d in axes:
        if over and tape.chance(2):
            indices.append(INDEX[d])
            continue
        k, width = f"d{next(numbers)}", tape.choose((3, 2, 5))
        over.append(f"{k} < {width}" if tape.chance(2) else f"{k} in 0..{width}")
        indices.append(f"{INDEX[d]} + {k} - {width // 2}")
    read = t.at(*indices)
    if kind == "bool":
        return f"{tape.choose(('any', 'all'))}[{', '.join(over)}]({read})"
    fn = tape.choose(("sum", "max", "min", "mean", "nth") if kind[0] == "f" else ("sum", "max", "min", "nth", "prod"))
    return f"{fn}[{', '.join(over)}]({read}{', ' + tape.choose(('1', '0', '-1')) if fn == 'nth' else ''})"


def _valid(tape: Tape) -> Program:
    """A smaller result, read from the index on: no border is needed."""
    a, b = tape.between(0, 2), tape.between(1, 3)
    op = Op("f", [Tensor("x0", tape.choose(PIXELS), ("H", "W"))])
    dims = (f"(H - {a})" if a else "H", f"(W - {b})")
    more = {kind_of(op.operands[0].dtype): [f"%x0[h + {tape.between(0, a)}, w + {tape.between(0, b)}]" for _ in range(3)]}
    if tape.chance(2):
        op.where.append(f"H >= {a}, W >= {b}")
    r = Tensor("y", tape.choose(PIXELS), dims)
    op.results.append(r)
    writer = Writer(tape, {**more, "i64": ["h", "w", "H", "W", *more.get("i64", [])]}, names())
    op.lines.append(f"%y[h, w] = {writer.stored(r.dtype, 3)}")
    return single(op, samples(tape, ("H", "W")))


def _guarded(tape: Tape) -> Program:
    """No border: `select`, `and`, `or` keep reads inside, also through a local."""
    op = Op("f", [Tensor("x0", tape.choose(PIXELS), ("W",)), Tensor("x1", "bool", ("W",))])
    kind = kind_of(op.operands[0].dtype)
    other = {"bool": "false", "i32": "-1", "i64": "5"}.get(kind, "0.5")
    n, m = tape.between(1, 3), tape.between(1, 3)
    guarded = [f"select(w >= {n}, %x0[w - {n}], {other})", f"select(w + {m} < W, %x0[w + {m}], {other})", f"select(w < {n}, {other}, %x0[w - {n}])",
               f"select(%in[w], %x0[w - {n}], {other})", f"select(not (w + {m} >= W or %x1[w]), %x0[w + {m}], {other})"]
    bools = [f"w >= {n} and %x1[w - {n}]", f"w + {m} >= W or %x1[w + {m}]", "%x1[w]"]
    if kind != "bool":
        bools.append(f"w >= {n} and %x0[w - {n}] > 0")
    op.lines.append(f"%in[w] = w >= {n}" + (" and %x1[w]" if tape.chance(2) else ""))
    r = Tensor("y", tape.choose(PIXELS), ("W",))
    op.results.append(r)
    leaves: dict[str, list[str]] = {"bool": [f"({b})" for b in bools], "i64": ["w", "W"]}
    leaves.setdefault(kind, []).extend(guarded)
    op.lines.append(f"%y[w] = {Writer(tape, leaves, names()).stored(r.dtype, 3)}")
    return single(op, samples(tape, ("W",)))


def _strided(tape: Tape) -> Program:
    """Every second pixel, or each one twice, and the middle of what a floor division leaves."""
    q = tape.between(2, 3)
    op = Op("f", [Tensor("x0", tape.choose(PIXELS), ("H", "W"))])
    kind = kind_of(op.operands[0].dtype)
    down, up = f"(W floordiv {q})", f"(H * {q})"
    r = Tensor("y", tape.choose(PIXELS), (up, down))
    s = Tensor("z", tape.choose(PIXELS), (f"(H * {q})", "W"))
    leaves = {"i64": ["i", "j"]}
    leaves.setdefault(kind, []).extend([f"%x0[i floordiv {q}, {q} * j + {k}]" for k in range(q)])
    op.results += [r, s]
    op.lines.append(f"%y[i, j] = {Writer(tape, leaves, names()).stored(r.dtype, 2)}")
    leaves = {"i64": ["i", "j", "W"]}
    leaves.setdefault(kind, []).extend([f"%x0[i floordiv {q}, j]", f"%x0[i floordiv {q}, W - 1 - j]",
                                        f"select(i mod {q} == 0, %x0[i floordiv {q}, j], %x0[i floordiv {q}, W - 1 - j])"])
    op.lines.append(f"%z[i, j] = {Writer(tape, leaves, names()).stored(s.dtype, 2)}")
    return single(op, samples(tape, ("H", "W")))


def _transposed(tape: Tape) -> Program:
    """Pieces, constant positions, a flattened and a turned image."""
    op = Op("f", [Tensor("x0", tape.choose(PIXELS), ("H", "W")), Tensor("x1", tape.choose(PIXELS), ("C", "W"))])
    numbers = names()
    kinds = [kind_of(o.dtype) for o in op.operands]
    turned = Tensor("y0", tape.choose(PIXELS), ("W", "H"))
    writer = Writer(tape, {"i64": ["h", "w"], kinds[0]: ["%x0[h, w]", "%x0[H - 1 - h, w]"]}, numbers)
    op.results.append(turned)
    op.lines.append(f"%y0[w, h] = {writer.stored(turned.dtype, 2)}")
    flat = Tensor("y1", tape.choose(PIXELS), ("(H * W)",))
    writer = Writer(tape, {"i64": ["p"], kinds[0]: ["%x0[p floordiv W, p mod W]"]}, numbers)
    op.results.append(flat)
    op.lines.append(f"%y1[p] = {writer.stored(flat.dtype, 2)}")
    joined = Tensor("y2", tape.choose(PIXELS), ("(H + C)", "W"))
    op.results.append(joined)
    parts = [f"%y2[i in 0..H, w] = {Writer(tape, {'i64': ['i', 'w'], kinds[0]: ['%x0[i, w]']}, numbers).stored(joined.dtype, 2)}",
             f"%y2[i in H..H + C, w] = {Writer(tape, {'i64': ['i', 'w'], kinds[1]: ['%x1[i - H, w]']}, numbers).stored(joined.dtype, 2)}"]
    if tape.chance(2):
        parts.append(f"%y2[i < H + C, 0] = {Writer(tape, {'i64': ['i', 'H']}, numbers).stored(joined.dtype, 1)}")
        op.where.append("W >= 1")
    op.lines += tape.shuffled(parts)
    return single(op, samples(tape, ("H", "W", "C"), least=1 if op.where else 0))
