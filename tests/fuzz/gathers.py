"""Reads at indices that depend on data: answered by a border, or checked at run time, where every backend must find the same stray index; filters and guards
that keep it from being read; reads that go through locals and through a second gather."""
from __future__ import annotations

from tests.fuzz.data import Program
from tests.fuzz.expressions import Writer, kind_of
from tests.fuzz.operators import DTYPE_NAMES, Op, Tensor, names, samples, single
from tests.fuzz.reductions import reduction, result_dtype
from tests.fuzz.stencils import border
from tests.fuzz.tape import Tape

INDEX_DTYPES = ("i32", "i64", "u8", "i16", "i8", "u16")


def program(tape: Tape) -> Program:
    """A table of N (and W) places, indices into it in one or two tensors, and a few results that read it through them."""
    table = ("N",) if tape.chance(2) else ("N", "W")
    op = Op("f", [Tensor("t", tape.choose(DTYPE_NAMES), table), Tensor("i", tape.choose(INDEX_DTYPES), ("H",), "index", "N"),
                  Tensor("j", tape.choose(INDEX_DTYPES), ("H",), "index", "W" if len(table) == 2 else "N"), Tensor("x", tape.choose(("f32", "f16", "f64")), ("H",))])
    kind = kind_of(op.operands[0].dtype)
    if tape.chance(2):
        modes = [border(tape, kind, []) if not tape.chance(4) else "none" for _ in table]
        op.memory.append(f"%t {{ border = {modes[0] if len(modes) == 1 else '[' + ', '.join(modes) + ']'} }}")
    reads = [_read(tape, len(table)) for _ in range(3)]
    if tape.chance(2):
        # A local of what was gathered, and one of places to gather from.
        op.lines.append(f"%g[h] = {reads[0]}")
        op.lines.append("%at[h] = i32(%i[h]) mod 3" if tape.chance(2) else "%at[h] = select(%x[h] > 0, %i[h], %j[h])")
        reads += ["%g[h]", _read(tape, len(table), "%at[h]")]
    for k in range(tape.between(1, 2)):
        _result(tape, op, k, kind, reads)
    return single(op, samples(tape, ("N", "W", "H"), stray=True, wide=False))


def _read(tape: Tape, rank: int, place: str = "") -> str:
    """One read of the table at a place that depends on data."""
    first = place or tape.choose(("%i[h]", "%i[h]", "%j[h] + 1", "%i[%j[h]]", "i32(floor(%x[h]))", "%i[h] - %j[h]", "clamp(%i[h], 0, 2)", "%i[h] * 2"))
    read = f"%t[{first}]" if rank == 1 else f"%t[{', '.join((first, tape.choose(('%j[h]', '%j[h] mod 2', '%i[h]', 'i32(round(%x[h] * 4))'))))}]"
    other = "%i[h] == %j[h]"
    return tape.choose((read, read, f"select(%x[h] > 0, {read}, {read.replace('%i[h]', '%j[h]')})", f"select({other}, {read}, {read})"))


def _result(tape: Tape, op: Op, k: int, kind: str, reads: list[str]) -> None:
    leaves: dict[str, list[str]] = {"i64": ["h"], "f32": ["%x[h]"] if op.operands[3].dtype != "f64" else []}
    leaves.setdefault(kind, []).extend(reads)
    writer = Writer(tape, leaves, names())
    form = tape.choose(("value", "value", "guard", "scatter", "total"))
    if form == "scatter":
        # Each place of the result collects what the places that point to it hand over.
        fn, value = tape.choose(("sum", "max", "any", "mean", "argmin")), tape.choose(("f32", "i32"))
        r = Tensor(f"y{k}", result_dtype(tape, fn, value), ("N",))
        body = Writer(tape, {"i64": ["h"], kind_of(op.operands[3].dtype): ["%x[h]"]}, names()).text("bool" if fn == "any" else value, 1, True)
        op.semantic = ["empty = zero"]
        op.lines.append(f"%y{k}[n] = {fn}[h < H where %i[h] == n]({body})")
    elif form == "total":
        fn, value = tape.choose(("sum", "min", "all", "argmax", "nth")), kind if kind != "bool" else "i32"
        r = Tensor(f"y{k}", result_dtype(tape, fn, value), ())
        op.semantic = ["empty = zero"]
        op.lines.append(f"%y{k} = {reduction(tape, fn, ['h < H'], writer, value)}")
    else:
        r = Tensor(f"y{k}", tape.choose(DTYPE_NAMES), ("H",))
        value = writer.stored(r.dtype, 2)
        if form == "guard":
            guard = tape.choose(("%i[h] >= 0 and %i[h] < N", "%x[h] > 1", "%i[h] < 3"))
            value = writer.stored(r.dtype, 1)
            other = Writer(tape, {"i64": ["h"]}, names()).stored(r.dtype, 1)
            value = f"select({guard}, {value}, {other})"
        op.lines.append(f"%y{k}[h] = {value}")
    op.results.append(r)
