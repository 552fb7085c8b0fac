"""Reductions of every kind: over several ranges, with filters, bounds that depend on data, empty extents, ranks, and what `empty` makes of nothing."""
from __future__ import annotations

from tests.fuzz.data import Program
from tests.fuzz.expressions import Writer, kind_of
from tests.fuzz.operators import DTYPE_NAMES, INDEX, Op, Tensor, names, samples, single
from tests.fuzz.tape import Tape

KINDS = ("sum", "max", "argmax", "nth", "mean", "min", "prod", "argmin", "argnth", "any", "all")


def program(tape: Tape) -> Program:
    """One of the forms below, with a `semantic { empty = … }` by chance."""
    form = tape.choose((_axes, _axes, _axes, _ragged, _histogram, _ranked, _chained))
    return form(tape)


def _empty(tape: Tape, op: Op) -> tuple[str, ...]:
    word = tape.choose(("", "zero", "nan"))
    if word:
        op.semantic.append(f"empty = {word}")
    return (f"empty = {word or 'unwritten'}",)


def result_dtype(tape: Tape, kind: str, value: str) -> str:
    """A dtype that a reduction of values of kind `value` may be stored in without a cast."""
    if kind in ("any", "all"):
        return "bool"
    if kind in ("argmax", "argmin", "argnth"):
        return tape.choose(("i32", "i64", "f32"))
    if value[0] == "i" and kind != "mean":
        return tape.choose((value, "i64", "f32", "f64"))
    return tape.choose(("f32", "f16", "bf16", "f64", "f8e5m2", "f8e4m3"))


def reduction(tape: Tape, kind: str, over: list[str], writer: Writer, value: str, rank: str | None = None) -> str:
    """The text of a reduction of an expression of kind `value`."""
    where = f" where {writer.text('bool', 2)}" if tape.chance(2) else ""
    body = writer.text("bool" if kind in ("any", "all") else value, 2, firm=True)
    if kind in ("nth", "argnth"):
        body += f", {rank or tape.choose(('0', '1', '-1', '2', '-2'))}"
    return f"{kind}[{', '.join(over)}{where}]({body})"


def _axes(tape: Tape) -> Program:
    """Over one axis or several of an operand, whole or in part."""
    axes = tape.choose((("H", "W"), ("W",), ("C", "H", "W")))
    op = Op("f", [Tensor("x0", tape.choose(DTYPE_NAMES), axes)])
    if tape.chance(2):
        op.operands.append(Tensor("x1", tape.choose(DTYPE_NAMES), tuple(tape.shuffled(axes))))
    tags = _empty(tape, op)
    numbers = names()
    for i in range(tape.between(1, 3)):
        gone = [d for d in axes if tape.chance(2)] or [axes[-1]]
        kept = tuple(d for d in axes if d not in gone)
        kind, value = tape.choose(KINDS), tape.choose(("f32", "i32", "f64", "i64"))
        indices = {d: INDEX[d] for d in axes}
        writer = op.writer(tape, numbers, indices, dims=False)
        over = [_range(tape, d) for d in tape.shuffled(gone)]
        r = Tensor(f"y{i}", result_dtype(tape, kind, value), kept)
        op.results.append(r)
        op.lines.append(f"{r.at(*(INDEX[d] for d in kept))} = {reduction(tape, kind, over, writer, value)}")
    return single(op, samples(tape, axes, large=True), tags)


def _range(tape: Tape, d: str) -> str:
    """All of an axis, the rest of it, or what lies before its end."""
    i = INDEX[d]
    return tape.choose((f"{i} < {d}", f"{i} < {d}", f"{i} in 0..{d}", f"{i} in 1..{d}", f"{i} in 0..{d} - 1", f"{i} in {d} floordiv 2..{d}"))


def _ragged(tape: Tape) -> Program:
    """Bounds that depend on data: rows stored one after the other, and prefixes. What is out of bounds is found at run time, or answered by a border."""
    op = Op("f", [Tensor("v", tape.choose(DTYPE_NAMES), ("N", "W")), Tensor("o", tape.choose(("i32", "i64")), ("(B + 1)",), "offsets", "N"),
                  Tensor("m", tape.choose(("i32", "u8", "i64")), ("B",), "index", "N + 1")])
    tags = _empty(tape, op)
    if tape.chance(3):
        op.memory.append(f"%v {{ border = [{tape.choose(('replicate', 'wrap', 'reflect', 'reflect101'))}, none] }}")
    numbers = names()
    value = kind_of(op.operands[0].dtype)
    for i in range(tape.between(1, 3)):
        over = tape.choose((["n in %o[b]..%o[b + 1]"], ["n < %m[b]"], ["n in %m[b]..N"], ["k < W", "n in %o[b]..%o[b + 1]"], ["n < %m[b]", "k < W"]))
        kind = tape.choose(KINDS)
        read = "%v[n, k]" if any(r.startswith("k") for r in over) else "%v[n, w]"
        leaves: dict[str, list[str]] = {"i64": ["n", "b"]}
        leaves.setdefault(value, []).extend([read] * 3)
        r = Tensor(f"y{i}", result_dtype(tape, kind, value if value != "bool" else "i32"), ("B",) if "k" in read else ("B", "W"))
        op.results.append(r)
        text = reduction(tape, kind, over, Writer(tape, leaves, numbers), value if value != "bool" else "i32")
        op.lines.append(f"{r.at(*('b', 'w')[:len(r.dims)])} = {text}")
    return single(op, samples(tape, ("N", "W", "B"), stray=True, wide=False), tags)


def _histogram(tape: Tape) -> Program:
    """Filters that compare data with the index of the result; extents from `dim` attributes."""
    op = Op("f", [Tensor("x", tape.choose(("i32", "u8", "i64", "i16")), ("N",), "index", "5"), Tensor("u", tape.choose(DTYPE_NAMES), ("N",))])
    op.attrs.append(("K", "dim", "5", tape.choose(("", "3", "9"))))
    tags = _empty(tape, op)
    numbers = names()
    for i in range(tape.between(1, 3)):
        kind, value = tape.choose(KINDS), tape.choose(("i32", "f32", "f64", "i64"))
        r = Tensor(f"y{i}", result_dtype(tape, kind, value), ("K",))
        op.results.append(r)
        writer = op.writer(tape, numbers, {"N": "n"}, {"i64": ["k"]}, dims=False)
        body = writer.text("bool" if kind in ("any", "all") else value, 2, firm=True)
        rank = f", {tape.choose(('0', '-1', '1', 'k - 2'))}" if kind in ("nth", "argnth") else ""
        condition = tape.choose(("%x[n] == k", "%x[n] != k and n mod 2 == 0", "%x[n] > k"))
        op.lines.append(f"%y{i}[k] = {kind}[n < N where {condition}]({body}{rank})")
    # The extent in the pipeline is the value of the attribute.
    extent = op.attrs[0][3] or "5"
    return _with_results(single(op, samples(tape, ("N",)), tags), op, extent)


def _with_results(p: Program, op: Op, extent: str) -> Program:
    """The pipeline's signature with the extent for `K`."""
    head, _, rest = p.text.partition("pipeline @p")
    return Program(head + "pipeline @p" + rest.replace("Kx", f"{extent}x"), p.inputs, p.samples, p.tags)


def _ranked(tape: Tape) -> Program:
    """Sorting, medians, several largest; ranks that depend on an index, on a size, on data."""
    dtype = tape.choose(DTYPE_NAMES)
    op = Op("f", [Tensor("x", dtype, ("H", "W")), Tensor("r", "i32", ("H",), "index", "W")])
    tags = _empty(tape, op)
    kind = kind_of(dtype)
    value = "i32({})" if kind == "bool" else "{}"
    numbers = names()
    for i in range(tape.between(1, 3)):
        fn = tape.choose(("nth", "argnth"))
        rank = tape.choose(("w", "-1 - w", "(W - 1) floordiv 2", "0", "-1", "%r[h]", "h", "-2"))
        where = f" where {Writer(tape, {'i64': ['k', 'h'], kind: ['%x[h, k]']}, numbers).text('bool', 2)}" if tape.chance(2) else ""
        dims = ("H", "W") if "w" in rank else ("H",)
        out = result_dtype(tape, fn, "i32" if kind == "bool" else kind)
        op.results.append(Tensor(f"y{i}", out, dims))
        left = "h, w" if "w" in rank else "h"
        op.lines.append(f"%y{i}[{left}] = {fn}[k < W{where}]({value.format('%x[h, k]')}, {rank})")
    return single(op, samples(tape, ("H", "W"), stray=True), tags)


def _chained(tape: Tape) -> Program:
    """Normalisation and softmax: reductions of reductions, and locals between them."""
    dtype = tape.choose(("f32", "f16", "f64", "bf16"))
    op = Op("f", [Tensor("x", dtype, ("H", "W")), Tensor("mask", "bool", ("H", "W"))])
    tags = _empty(tape, op)
    op.results.append(Tensor("y", tape.choose(("f32", "f64", "f16")), ("H", "W")))
    where = " where %mask[h, k]" if tape.chance(2) else ""
    form = tape.choose(("softmax", "norm", "mad"))
    if form == "softmax":
        op.lines += [f"%m[h] = max[k < W{where}](%x[h, k])", f"%z[h] = sum[k < W{where}](exp(%x[h, k] - %m[h]))",
                     "%y[h, w] = select(%mask[h, w] or %z[h] == 0, exp(%x[h, w] - %m[h]) / %z[h], 0)"]
    elif form == "norm":
        op.lines += [f"%mu[h] = mean[k < W{where}](%x[h, k])", f"%var[h] = mean[k < W{where}]((%x[h, k] - %mu[h]) ** 2)",
                     "%y[h, w] = (%x[h, w] - %mu[h]) * rsqrt(%var[h] + 1e-2)"]
    else:
        op.lines += [f"%mid[h] = nth[k < W{where}](%x[h, k], 0)", f"%mad[h] = max[k < W{where}](abs(%x[h, k] - %mid[h]))",
                     "%y[h, w] = select(%mad[h] == 0, 0, (%x[h, w] - %mid[h]) / %mad[h])"]
    op.lines = tape.shuffled(op.lines) if tape.chance(2) else op.lines
    return single(op, samples(tape, ("H", "W")), tags)


