"""Faults of the kind that such compilers have had, each a few characters in the CPU backend, in the loop-level form or in what plans the calls.

`old` stands exactly once in `file`; `new` takes its place. `seeded.py` seeds them one at a time and asks the tests.
"""
from __future__ import annotations

from dataclasses import dataclass

CONVERT, MATH, FUNCTION, DRIVER, JIT = (f"backends/cpu/{n}.py" for n in ("convert", "mathlib", "function", "driver", "jit"))
BORDERS, SPLIT, READS, REDUCE, RECUR, RANK, ROWS, NESTS, EMIT, POWERS = (
    f"backends/loops/{n}.py" for n in ("borders", "split", "reads", "reduce", "recur", "rank", "rows", "nests", "emit", "powers"))
COSTS, STEPS = "passes/scheduling/costs.py", "passes/scheduling/steps.py"
PLANNING, SCALARS = "backends/planning.py", "backends/scalars.py"


@dataclass(frozen=True)
class Fault:
    """One fault. `own_cache`: it would leave wrong code behind for the others; `suite`: the tests that have to find it, see `seeded.py`."""

    name: str
    file: str
    old: str
    new: str
    own_cache: bool = False
    suite: str = "cpu"


FAULTS = [
    # ------------------------------------------------------------------------------------------------------------------ conversions
    Fault("bf16, f16 and f8 round ties away from zero", CONVERT, "b.const(kind, (1 << (drop - 1)) - 1)), odd), drop)", "b.const(kind, 1 << (drop - 1))), b.const(kind, 0)), drop)"),
    Fault("f64 becomes f16 by way of f32", CONVERT, 'b.convert("bitcast", b.call("narrow.f16.f64", v), "half")', 'b.convert("fptrunc", b.convert("fptrunc", v, "float"), "half")'),
    Fault("i64 becomes bf16 by way of f64", CONVERT, 'narrow_float(b, b.call("odd.f64.i64", v), to)', 'narrow_float(b, _to_float(b, v, "double"), to)'),
    Fault("a NaN of a narrow float becomes infinity", CONVERT, "b.const(kind, form.nan), pattern)", "b.const(kind, form.overflow), pattern)"),
    Fault("infinity of f8e5m2 is read as a number", CONVERT, 'value = b.select(b.compare("ugt", magnitude, b.const("i32", form.highest)), special, value)', 'value = b.select(b.compare("ugt", magnitude, b.const("i32", form.nan)), special, value)'),
    Fault("floats saturate one above the lowest integer", CONVERT, "low, high = float(to.lowest), float(to.highest)", "low, high = float(to.lowest + 1), float(to.highest)"),
    Fault("a NaN becomes the lowest integer", CONVERT, 'x = b.select(b.compare("ord", x, x), x, b.like(x, 0.0))', 'x = b.select(b.compare("ord", x, x), x, b.like(x, -1e9))'),
    Fault("sat_u8 of an integer wraps", CONVERT, "if saturate and (to.bits", "if not saturate and (to.bits"),
    Fault("bytes are read as signed", CONVERT, 'b.convert("sext" if dtype.signed else "zext", raw, compute_type(dtype))', 'b.convert("sext", raw, compute_type(dtype))'),
    # -------------------------------------------------------------------------------------------------------------------- functions
    Fault("integer quotients of negatives are cut, not floored", MATH, "return (b.select(adjust, b.sub(quotient, b.like(y, 1)), quotient), ", "return (quotient, "),
    Fault("x floordiv -1 is x", MATH, "_by_special(b, y, quotient, b.neg(x))", "_by_special(b, y, quotient, x)"),
    Fault("float mod has the sign of the dividend", MATH, 'r = b.select(b.band(moved, b.compare("one", r, zero)), b.add(r, y), r)', "r = b.select(b.band(moved, moved), r, r)"),
    Fault("max loses a NaN", MATH, '"max": "maximum"', '"max": "maxnum"'),
    Fault("fmin gives the NaN", MATH, '"fmin": "minnum"', '"fmin": "minimum"'),
    Fault("round takes ties away from zero", MATH, 'if fn == "round":\n        return b.rint(a)', 'if fn == "round":\n        return b.intrinsic("round", a)'),
    Fault("exp overflows from 88 on", MATH, "_clamp(b, x, -104.5, 89.0)", "_clamp(b, x, -104.5, 88.0)"),
    Fault("a large exponent loses its odd factor", POWERS, 'return e.op("*", square, base) if n % 2 else square', "return square"),
    Fault("0.0 and -0.0 are one constant", EMIT, "atom.value.hex() if isinstance(atom.value, float) else int(atom.value)", "atom.value if isinstance(atom.value, float) else int(atom.value)"),
    # ------------------------------------------------------------------------------------------------------------ reads and borders
    Fault("reflect is off by one", BORDERS, 'inner, e.op("-", e.op("-", twice, i64(1)), inner))', 'inner, e.op("-", e.op("-", twice, i64(2)), inner))'),
    Fault("wrap takes a negative index as unsigned", BORDERS, 'return e.op("mod", index, extent)', 'return e.op("rest", index, extent)'),
    Fault("the constant border of the second axis is forgotten", READS, 'if border.mode == "constant" and border.value is not None:', 'if border.mode == "constant" and border.value is not None and k == 0:'),
    Fault("where two constants meet, the last axis wins", READS, "for out, constant in reversed(outs):", "for out, constant in outs:"),
    Fault("the interior ends one too late", SPLIT, 'e.op("neg", e.op("floordiv", e.op("-", rest, extent), f))', 'e.op("+", e.op("neg", e.op("floordiv", e.op("-", rest, extent), f)), i64(1))'),
    Fault("the right edge is not computed", SPLIT, 'e.loop(f"{hint}_edge", i64(0), i64(2), nonempty=True)', 'e.loop(f"{hint}_edge", i64(0), i64(1), nonempty=True)'),
    Fault("the stride of a third axis from the end is wrong", READS, '        if k:\n            stride = e.op("*", stride, extent(lo, t, k), hint="stride")', '        if k > 1 or len(at) < 3:\n            stride = e.op("*", stride, extent(lo, t, k), hint="stride")'),
    Fault("a stored local is addressed from 0, not from its first place", READS, 'total = e.op("+", total, times(lo, e.op("-", at[k], low(lo, t, k)), stride))\n        if k:', 'total = e.op("+", total, times(lo, at[k], stride))\n        if k:'),
    Fault("a general definition overwrites a constant position", READS, 'return [e.op("not", e.all_of([e.op("==", at[axis], i64(value)) for axis, value in hole])) for hole in piece.holes]', "return []"),
    Fault("a piece begins one late behind its base case", NESTS, "IntLit(value + 1, dtype=I64)", "IntLit(value + 2, dtype=I64)"),
    Fault("axes run as one although the value looks at an index", NESTS, "if u.loose & set(names):\n            return False", "if u.loose & set(names) and alone:\n            return False"),
    Fault("a read behind a guard is made without asking", COSTS, 'if word in ("guarded", "check"):', 'if word in ("check",):'),
    Fault("a check behind a guard is made without asking", COSTS, 'if word in ("guarded", "check"):', 'if word in ("guarded",):'),
    Fault("a load leaves a loop that may be empty", EMIT, '(self.frames[at].nonempty or not loads)', '(self.frames[at].nonempty or loads or not loads)'),
    Fault("results share a loop although one reads the other elsewhere", STEPS, "return all(lin.only(a) for f in found", "return all(lin.terms or lin.only(a) for f in found"),
    # -------------------------------------------------------------------------------------------------------------------- reductions
    Fault("a cheap filter is dropped", REDUCE, "return lo.e.choose(passes, value(), kind.neutral)", "return value()"),
    Fault("max begins at 0", REDUCE, 'float("-inf" if low else "inf")', 'float("0" if low else "inf")'),
    Fault("the mean of integers is summed in i32", REDUCE, "dtype = (I64 if not body.is_float else body)", "dtype = body"),
    Fault("argmax takes the last of equals", REDUCE, "wins = op(better, value, best)", 'wins = op(better + "=", value, best)'),
    Fault("argmax does not stop at the first NaN", REDUCE, 'op("and", op("!=", value, value), op("==", best, best))', 'op("!=", value, value)'),
    Fault("the flat position forgets where the ranges begin", REDUCE, 'out = e.op("+", e.op("*", out, extent), e.op("-", i, first))', 'out = e.op("+", e.op("*", out, extent), i)'),
    Fault("empty = zero is forgotten behind a filter", REDUCE, 'self.asked = x.kind == "mean" or governed', 'self.asked = x.kind == "mean" or (governed and x.where is None)'),
    Fault("argmax over nothing is no error", REDUCE, 'if row.empty == "error":', 'if row.empty == "errors":'),
    Fault("a NaN stands first in nth", RANK, 'return e.op("or", less, e.op("and", e.op("==", a, a), e.op("!=", b, b))) if a.dtype.is_float else less', 'return e.op("or", less, e.op("and", e.op("!=", a, a), e.op("==", b, b))) if a.dtype.is_float else less'),
    Fault("merging takes the later of equals first", RANK, 'e.assign(left, e.op("not", before(e, b, a)))', "e.assign(left, before(e, a, b))"),
    Fault("a negative rank is off by one", RANK, "place = rank if rank >= 0 else len(terms) + rank", "place = rank if rank >= 0 else len(terms) + rank - 1"),
    Fault("the last terms of an accumulated row are lost", ROWS, "with e.loop(r.index, middle, end) as i:", "with e.loop(r.index, end, end) as i:"),
    Fault("accuracy = exact contracts a product", ROWS, "and not lo.op.exact and isinstance(x.body, Apply)", "and isinstance(x.body, Apply)"),
    # ------------------------------------------------------------------------------------------------------------------- recurrences
    Fault("a recurrence runs the wrong way", RECUR, "self.down = group.recurrence.step < 0", "self.down = group.recurrence.step > 0"),
    Fault("lanes are run apart although one reads the next", RECUR, "return names[axis[x.tensor]] == here", "return True"),
    # ----------------------------------------------------------------------------------------------------- memory, threads, the cache
    Fault("accesses of one buffer are said to be apart", FUNCTION, 'node("!{" + ", ".join(x for x in everything if x != s) + "}")', 'node("!{" + ", ".join(everything) + "}")'),
    Fault("the last part of a shared loop is lost", DRIVER, "  %left = icmp slt i64 %begin, %total\n", "  %full = sub i64 %total, %share\n  %left = icmp sle i64 %begin, %full\n"),
    Fault("a shared loop does not wait for the other threads", DRIVER, "%done = icmp eq i64 %inside, 0", "%done = icmp uge i64 %inside, 0"),
    Fault("a failed check goes unseen", DRIVER, "%fine = icmp eq i64 %taken, 0", "%fine = icmp sge i64 %taken, 0"),
    Fault("a buffer is free after its first reader", "passes/aliasing/order.py", "max(self.launch[n] for n in touched)", "min(self.launch[n] for n in touched)"),
    Fault("a run-time attribute of f64 goes through f32", SCALARS, 'struct.pack("<f" if kind.bits == 32 else "<d", float(value))', 'struct.pack("<f" if kind.bits == 32 else "<d", struct.unpack("<f", struct.pack("<f", float(value)))[0])'),
    Fault("the key of compiled code misses the processor's features", JIT, "version, target.cpu, target.features, text)", "version, target.cpu, text)", own_cache=True),
    Fault("the key of compiled code misses the code", JIT, "version, target.cpu, target.features, text)", "version, target.cpu, target.features, str(len(text)))", own_cache=True),
]
