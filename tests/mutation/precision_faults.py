"""Faults in what carries policies out: codes and their scales, sums of codes, what is decided of each node, errors and budgets, calibration, and the kernels that
work on bytes."""
from __future__ import annotations

from tests.mutation.faults import Fault

CODES, CONTRACTION, PRODUCTS, PLANS, SECTIONS, SELECTING, FLOATS, EDGES, INSERT, LABELS, PUSH, ESTIMATE, PROFIT, CALIBRATED = (
    f"passes/precision/{n}.py" for n in ("codes", "contraction", "products", "plans", "sections", "selecting", "floats", "edges", "insert", "labels", "push",
                                         "estimate", "profit", "calibrated"))
OWN_KERNELS, DEMANDS, LIMITS, MOVED = (f"passes/precision/{n}.py" for n in ("own_kernels", "demands", "limits", "moved_codes"))
LOWER = "passes/lower_precision.py"
METHODS, HISTOGRAMS, DIFFERENCES = (f"pipelink_ir/runtime/calibration/{n}.py" for n in ("methods", "histograms", "differences"))
BYTES = "backends/cuda/prelude/bytes.cuh"


def seed(name: str, file: str, old: str, new: str) -> Fault:
    """One of them."""
    return Fault(name, file, old, new, suite="precision")


PRECISION_FAULTS = [
    # -------------------------------------------------------------------------------------------------------------------------- codes
    seed("i4 codes reach down to -8", CODES, "i32(clamp(round({quotient}), -7, 7))", "i32(clamp(round({quotient}), -8, 7))"),
    seed("an i4 loses its sign", CODES, "{byte} floordiv 16) + 8) mod 16 - 8", "{byte} floordiv 16) + 8) mod 16 - 0"),
    seed("an infinity flattens all other values", CODES, " where abs({read('x', _places(t, codes))}) < inf]({inner})", "]({inner})"),
    seed("the zero point is added before rounding", CODES, "(round({quotient}){f' + {_zero(codes)}' if codes.shifted else ''})",
         "(round({quotient}{f' + {_zero(codes)}' if codes.shifted else ''}))"),
    seed("a dead channel has the scale 0", CODES, 'return f"select({narrow} > 0, {narrow}, 1.0)"', 'return f"max({narrow}, 0.0)"'),
    seed("f8 does not saturate", CODES, "{codes.dtype}(clamp({quotient}, {-top}, {top}))", "{codes.dtype}({quotient})"),
    seed("an affine range leaves 0 out", CODES, 'return f"{kind}({clipped}, 0)"', "return clipped"),
    seed("the code of a constant misses the zero point", CODES, "round(quotient) + codes.zero))", "round(quotient)))"),
    seed("an affine scale has 256 steps", CALIBRATED, "scale = _scale(high / 255 - low / 255)", "scale = _scale(high / 256 - low / 256)"),
    seed("a scale is rounded down", CALIBRATED, "    if near < value:", "    if near < 0.0:"),
    # ----------------------------------------------------------------------------------------------------------------- sums of codes
    seed("the product of two zero points is left out", CONTRACTION, 'total = Apply("+", (total, terms))', "total = minus(total, IntLit(0))"),
    seed("the last block of a sum goes on beyond its end", CONTRACTION, "if not isinstance(k, IntLit) or k.value % size:", "if not isinstance(k, IntLit):"),
    seed("sums of codes are said to fit", CONTRACTION, "IntLit(TOP // (most * max(known, 1)))", "IntLit(TOP)"),
    seed("a mean of codes is their sum", CONTRACTION, 'total = Apply("/", (total, Cast("f32", normal(count))), span=e.span)', 'total = Cast("f32", total, span=e.span)'),
    seed("blocks are cut along a part of an axis", PRODUCTS, "is_zero(x.lo)) and x.hi == dim for x", "is_zero(x.lo)) for x"),
    seed("a sum that ends before it begins has fewer terms than none", PRODUCTS, 'else Apply("max", (length, IntLit(0)))', "else length"),
    seed("conditions speak of what a call gives the operator", INSERT, "for a in args]) | sizes", "for a in args])"),
    seed("a factor is multiplied where a filter leaves no term", CONTRACTION, "apart = e.where is None and counted(e, self.dims, self.attributes) is not None", "apart = True"),
    seed("sums of weights along one axis are taken for those along another", CONTRACTION, "if found is None or found != made_once(self.op, name, codes):",
         "if found is None:"),
    seed("zero points of a mean count once", CONTRACTION, "minus(total, times(c.zero, self._count(e, count, spots, inner)))", "minus(total, c.zero)"),
    # ------------------------------------------------------------------------------------------------------------------ what becomes codes
    seed("u8 codes found at the call have no zero point", PLANS, 'return 128 if dtype == "u8" else 0', "return 0"),
    seed("what something is divided by becomes codes", PLANS, "return plain(e.args[1])", "return False"),
    seed("a constant border stays a value among codes", SECTIONS, "return replace(border, args=(code,))", "return border"),
    seed("a border of f8 is cut off at the largest code", SECTIONS, "isinstance(code, IntLit | FloatLit) and not choosing", "isinstance(code, IntLit) and not choosing"),
    seed("what is joined behind a choice keeps its scale, and the choice has another", MOVED, "if any(len(self._floats(n)) != 1 for n in group):",
         "if len(self._floats(group[0])) != 1:"),
    seed("a maximum of nothing wraps as a code", SELECTING, "return Cast(codes.dtype, e, beyond, span=e.span)", "return Cast(codes.dtype, e, False, span=e.span)"),
    seed("codes of other scales are chosen from", SELECTING, "if any(codes[o.name].meaning != first.meaning for o in floats):", "if len(floats) > 99:"),
    seed("memory is taken over by what is larger", FLOATS, "return DTYPES[dtypes[result]].bytes == DTYPES[dtypes[s.value.tensor]].bytes", "return True"),
    seed("a cast to fewer digits and back is taken for nothing", EDGES, "if holds(DTYPES[narrow], DTYPES[t.dtype]):", "if narrow:"),
    seed("a scale is shared by channels along other axes", INSERT, "plain = replace(codes, order=(), packed=None)", "plain = replace(codes, order=(), packed=None, axis=0)"),
    seed("conditions under which sums fit are dropped", LOWER, "where = (*p.where, *(c for c in dict.fromkeys(conditions) if c not in p.where))", "where = p.where"),
    # ------------------------------------------------------------------------------------------- kernels of users, what cannot be had
    seed("a kernel gets codes that it does not read", OWN_KERNELS, "return listed is not None and dtype in contracts.words(listed.value)", "return True"),
    seed("a kernel gets codes without their scale", OWN_KERNELS, "return None if op.compute is not None and _chooses(op) else", "return None if op.name else"),
    seed("a kernel's constants are taken for codes", SELECTING, "return constants(op) == constants(made)", "return True"),
    seed("an operator is built where nothing takes it", DEMANDS, "arch.kind == \"cuda\" and not any(r.admits(arch) for r in needs) else None",
         "arch.kind == \"cuda\" and not needs else None"),
    seed("an edge is taken beyond the dtype's largest number", LIMITS, "largest > dtype.largest, 0 <", "largest > 1e30 * dtype.largest, 0 <"),
    seed("bounds that are not attained make errors", LIMITS, "if not (have.lo_hit if abs(have.lo) == largest else have.hi_hit) or largest in (0, inf):",
         "if largest in (0, inf):"),
    # --------------------------------------------------------------------------------------------------------------- policies, budgets
    seed("the looser of two budgets counts", LABELS, "(number(b.value) or 0) < (number(a.value) or 0)", "(number(b.value) or 0) > (number(a.value) or 0)"),
    seed("a label speaks of those that begin like it", LABELS, 'path == label or path.startswith(label + ".")', "path.startswith(label)"),
    seed("the project's policy comes to what a graph leaves alone", PUSH, "around.dtype is not None or around.closed else", "around.dtype is not None else"),
    seed("errors of steps are three times too small", ESTIMATE, "step = codes.scale**2 / 12", "step = codes.scale**2 / 108"),
    seed("errors of terms are added whatever their size", ESTIMATE, "sum((a.relative * a.rms)**2 for a in args) / total", "sum(a.relative**2 for a in args)"),
    seed("an estimate beyond a budget is an error at once", ESTIMATE, "not error <= FAR * budget", "not error <= budget"),
    seed("what is a little slower is kept", PROFIT, "< MARGIN * sum(gone)", "< 1.05 * sum(gone)"),
    # -------------------------------------------------------------------------------------------------------------------- calibration
    seed("errors measured of another program count", CALIBRATED, "!= policies_digest(module, pipeline, arch) or self.program != program_digest(module, pipeline):",
         "!= policies_digest(module, pipeline, arch):"),
    seed("errors count where something else was declined", CALIBRATED, "return {} if set(self.declined.get(known, ())).intersection(lowered) else self.errors[known]",
         "return self.errors[known]"),
    seed("a digest of policies covers budgets", CALIBRATED, 'for s in clause.settings or () if s.key != "budget")', "for s in clause.settings or ())"),
    seed("a NaN in one run only goes unseen", DIFFERENCES, "self.lost += int((~fine & ~same).sum())", "self.lost += int((fine & ~same).sum()) * 0"),
    seed("a NaN counts as an infinity too", HISTOGRAMS, "self.inf += int(part.size - finite.sum()) - nan", "self.inf += int(part.size - finite.sum())"),
    seed("a percentile is cut off on either side", METHODS, "cut = (100.0 - share) / 200.0", "cut = (100.0 - share) / 100.0"),
    seed("entropy forgets what lies beyond", METHODS, "        p[-1] += beyond\n", "        p[-1] += 0.0\n"),
    # ---------------------------------------------------------------------------------------------------------------- kernels on bytes
    Fault("signed bytes are multiplied without sign", BYTES, "dot_ss(int a, int b, int c) { return dot<i8, i8>(a, b, c); }",
          "dot_ss(int a, int b, int c) { return dot<u8, i8>(a, b, c); }", suite="cuda"),
    Fault("bytes of equal places come from the wrong half", BYTES, "A < 2 ? 0x5140u : 0x7362u", "0x5140u", suite="cuda"),
    Fault("what lies beside a picture of codes has the code 0", BYTES, "all.at[k] = u32(other);", "all.at[k] = 0u;", suite="cuda"),
    Fault("a signed byte becomes a float 128 too large", BYTES, "0x7540 | AT)) - 8388736.0f;", "0x7540 | AT)) - 8388608.0f;", suite="cuda"),
    Fault("bytes are stored in another order", BYTES, "four<0>(from[4 * k], from[4 * k + 1], from[4 * k + 2]", "four<0>(from[4 * k + 1], from[4 * k], from[4 * k + 2]",
          suite="cuda"),
]
