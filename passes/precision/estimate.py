"""How far the errors of lowering reach: the relative error of every edge, estimated before anything has run, and budgets that it does not keep.

Each value has a root mean square s and an error of root mean square e, of which the relative noise r = e / s is followed through the bodies of operators to
first order, errors taken as independent of each other and of the values:

    codes of step d     e = d / sqrt(12): the error of rounding to equal steps is uniform (Bennett, Spectra of quantized signals, 1948; Widrow and Kollar,
                        Quantization Noise, 2008)
    floats              r = u / sqrt(3), u half the distance of 1 from the next number: a uniform relative error (Higham, Accuracy and Stability, 2.1)
    x * w, x / w        r^2 = rx^2 + rw^2, and a sum of such products over k has the same r: error and value both grow with the square root of their number
    x + z               e^2 = ex^2 + ez^2, s^2 = sx^2 + sz^2
    f(x)                e = |f'| ex, with f' where it is largest or for a typical x

The largest of many values is taken to be CREST times their root mean square (four sigma: of normal values six in 100,000 lie beyond), of errors as well. So
r is the largest error over the largest value, which is what a budget speaks of. Where calibration has seen an edge, its own root mean square and extremes are
taken instead. What was measured wins over what is estimated here.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf, isfinite, log, log10, sqrt

from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import (
    Alias,
    Apply,
    Cast,
    Const,
    Define,
    Expr,
    FloatLit,
    IntLit,
    Let,
    Name,
    Node,
    Operand,
    Operator,
    Pipeline,
    Range,
    Read,
    Reduce,
)
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.calibrated import EdgeRange
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.floats import halves
from pipelink_ir.passes.precision.plans import Plan
from pipelink_ir.passes.scopes import consumed

CHOSEN = 0.5
"""The middle of two powers of how much smaller values have become: 0 where errors have, too, 1 where they have not."""

FAR = 3.0
"""An estimate that is so many times a budget is an error; between the two it is a warning, for it may be off by as much."""

CREST = 4.0
"""The largest value over the root mean square, where nothing else is known."""

_FLATTENS = {"tanh": 1.0, "erf": 1.0, "sigmoid": 0.5, "sin": 0.7, "cos": 0.7, "atan2": 1.0}
"""Functions that stay within bounds, with the root mean square that they have at most; none is steeper than 1.13."""
_POWERS = {"sqrt": 0.5, "rsqrt": 0.5, "abs": 1.0, "neg": 1.0, "floor": 1.0, "ceil": 1.0, "round": 1.0}
_EXPONENTIALS = ("exp", "exp2", "expm1")
_LOGARITHMS = ("log", "log2", "log1p", "logaddexp")
_CHOOSE = ("min", "max", "fmin", "fmax", "clamp", "select", "mod")
_SHARP = ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "isnan", "isinf", "sign")


@dataclass(frozen=True, slots=True)
class Noise:
    """A value: its root mean square, its relative noise, and what contributed most to that."""

    rms: float = 1.0
    relative: float = 0.0
    worst: tuple[float, str, str] = (0.0, "", "")
    """Share of the squared relative noise, the edge that a node makes, and the operand or "" for its result."""
    proportional: bool = False
    """Whether the largest values have the largest errors, as those of an exponential function have."""
    positive: bool = False
    """Whether it has values on one side of 0 alone, so that a sum of them grows faster than its error."""
    known: float = 0.0
    """Whether `rms` follows from what calibration has seen (1), so that the error itself is known and not only its part of the value. CHOSEN after operations
    that let some values pass: those may be the small ones, with errors of their own size, or have as large errors as all."""

    def plus(self, relative: float, edge: str, operand: str) -> Noise:
        """With noise of its own."""
        if relative == 0:
            return self
        return replace(self, relative=sqrt(self.relative**2 + relative**2), worst=max(self.worst, (relative**2, edge, operand)))


QUIET = Noise()


def errors_of(p: Pipeline, operators: Mapping[str, Operator], plans: Mapping[str, Plan], ranges: Mapping[str, EdgeRange]) -> dict[str, float]:
    """For each edge of a flat pipeline the largest error over the largest value, as its nodes' plans make it. Edges without an error are left out."""
    found = _Flow(p, operators, plans, ranges).run()
    return {edge: error for edge, noise in found.items() if (error := _largest(noise, ranges.get(edge))) > 0}


def said_errors(p: Pipeline, operators: Mapping[str, Operator], plans: Mapping[str, Plan], ranges: Mapping[str, EdgeRange],
                measured: Mapping[str, float]) -> dict[str, str]:
    """What the ledger says of the errors of nodes that are lowered, by their first results."""
    found = errors_of(p, operators, plans, ranges)
    how = {name: "measured" if name in measured else "estimated" for name, plan in plans.items() if plan.lowers and (name in measured or name in found)}
    return {name: f", {word} to be off by {_two(measured[name] if word == 'measured' else found[name])} of its largest value" for name, word in how.items()}


def _largest(noise: Noise, seen: EdgeRange | None) -> float:
    """The largest error over the largest value."""
    top = max(abs(seen.min), abs(seen.max)) if seen is not None else 0.0
    if seen is None or seen.rms <= 0 or top <= 0:
        return noise.relative
    ratio = CREST * seen.rms / top
    return noise.relative * (max(ratio, 1.0) if noise.proportional else ratio)


@dataclass(slots=True)
class _Flow:
    """Noise along the edges of one pipeline."""

    p: Pipeline
    operators: Mapping[str, Operator]
    plans: Mapping[str, Plan]
    ranges: Mapping[str, EdgeRange]
    values: dict[str, Noise] = field(default_factory=dict)
    told: dict[str, Noise] = field(default_factory=dict)
    """Edges that are told of otherwise than those who read them see them."""

    def run(self) -> dict[str, Noise]:
        for o in self.p.inputs:
            self.values[o.name] = self._seen(o.name, QUIET)
        for n in self.p.nodes:
            if isinstance(n, Alias):
                self.values[n.name.name] = self.values.get(n.of.name, QUIET)
            else:
                self._node(n)
        return self.values | self.told

    def _seen(self, edge: str, value: Noise) -> Noise:
        """The value with the root mean square that calibration saw: where an operator makes values smaller, their error stays. Without one it is 1, as networks
        keep it, whatever the weights of an operator would make of it."""
        seen = self.ranges.get(edge)
        if seen is None or seen.rms <= 0:
            return replace(value, rms=1.0, known=0.0)
        factor = value.rms / seen.rms
        if 0 < value.known < 1:
            # Told of this edge, not of what reads it: an operator that sums has a larger value to it, too, in most networks.
            self.told[edge] = replace(_scaled(value, factor**value.known, seen.rms), known=1.0)
            factor = 1.0
        return replace(_scaled(value, factor**value.known, seen.rms), known=1.0)

    def _node(self, n: Node) -> None:
        op, first = self.operators.get(n.op), n.results[0].name
        edges = [e.name for e in consumed(n)]
        inputs = [self.values.get(e, QUIET) for e in edges]
        plan = self.plans.get(first)
        if plan is not None and not plan.lowers:
            plan = None
        if op is None or op.compute is None or len(op.operands) != len(inputs) or (plan is None and all(v.relative == 0 for v in inputs)):
            self._passed_on(n, op, inputs, edges, plan)
            return
        given = {o.name: self._operand(o, v, e, plan, op, first) for o, v, e in zip(op.operands, inputs, edges, strict=True)}
        body = _Body(op, given)
        for e, r in zip(n.results, op.results, strict=True):
            value = body.tensor(r.name) if r.type.dtype in DTYPES and DTYPES[r.type.dtype].is_float else QUIET
            if plan is not None and plan.dtype is not None and r.name in plan.names:
                value = value.plus(rounding(plan.dtype, r.type.dtype), first, "")
            self.values[e.name] = self._seen(e.name, value)

    def _passed_on(self, n: Node, op: Operator | None, inputs: list[Noise], edges: list[str], plan: Plan | None) -> None:
        """What nobody knows the meaning of, a user's kernel: its results are taken to be as noisy as its noisiest operand, and are rounded."""
        first = n.results[0].name
        if plan is not None and op is not None and len(op.operands) == len(inputs):
            inputs = [self._operand(o, v, e, plan, op, first) for o, v, e in zip(op.operands, inputs, edges, strict=True)]
        worst = replace(max(inputs, key=lambda v: v.relative, default=QUIET), rms=1.0)
        for k, e in enumerate(n.results):
            value = worst
            if plan is not None and plan.dtype is not None and op is not None and op.results[k].name in plan.names:
                value = worst.plus(rounding(plan.dtype, op.results[k].type.dtype), first, "")
            self.values[e.name] = self._seen(e.name, value)

    def _operand(self, o: Operand, value: Noise, edge: str, plan: Plan | None, op: Operator, first: str) -> Noise:
        """An operand as a lowered node reads it."""
        if plan is None:
            return value
        codes = plan.codes.get(o.name)
        if codes is not None:
            return value.plus(coding(codes, self.ranges.get(edge), _places(o, codes)), first, o.name)
        if plan.dtype is not None and o.name in plan.names:
            return value.plus(rounding(plan.dtype, o.type.dtype), first, o.name)
        return value


def rounding(dtype: str, own: str) -> float:
    """The relative noise of rounding to a float dtype; none where values have no more digits to begin with."""
    if DTYPES[own].unit >= DTYPES[dtype].unit:
        return 0.0
    return DTYPES[dtype].unit / sqrt(3)


def coding(codes: Codes, seen: EdgeRange | None, places: int | None) -> float:
    """The relative noise of codes. `places`: how many values share a scale, if that is known, whose largest is sqrt(2 ln places) sigma at most on average."""
    if not codes.is_int:
        return codes.info.unit / sqrt(3)
    crest = CREST if places is None else max(1.0, min(CREST, sqrt(2 * log(max(places, 2)))))
    top = 7 if codes.dtype == "i4" else codes.info.highest
    if codes.scale == "tensor" and seen is not None and seen.rms > 0:
        # One scale is for the largest of all, which calibration has seen.
        reach = max(seen.max, -seen.min) if isinstance(codes.zero, int) else (max(seen.max, 0.0) - min(seen.min, 0.0)) / 2
        return reach / seen.rms / (top * sqrt(12))
    if isinstance(codes.scale, str) or seen is None or seen.rms <= 0:
        return crest / (top * sqrt(12))
    step = codes.scale**2 / 12
    beyond = max(seen.max - seen.high, seen.low - seen.min, 0.0)
    return sqrt(step + seen.clipped * beyond**2 / 3) / seen.rms


def _places(o: Operand, codes: Codes) -> int | None:
    """How many values share a scale of codes."""
    if codes.scale == "block":
        return codes.size
    if codes.scale != "channel" or codes.axis is None:
        return None
    sizes = [d.value if isinstance(d, IntLit) else None for k, d in enumerate(o.type.dims) if k != codes.axis % len(o.type.dims)]
    out = 1
    for n in sizes:
        if n is None:
            return None
        out *= n
    return out


# --------------------------------------------------------------------------------------------------------------------- bodies


class _Body:
    """The noise of an operator's definitions, from that of its operands."""

    def __init__(self, op: Operator, given: Mapping[str, Noise]) -> None:
        assert op.compute is not None
        self.known: dict[str, Noise] = dict(given)
        self.defines: dict[str, list[Expr]] = {}
        self.lets: dict[str, Expr] = {}
        self.busy: set[str] = set()
        for item in op.compute.body:
            if isinstance(item, Let):
                self.lets[item.name] = item.value
            elif isinstance(item, Define):
                self.defines.setdefault(item.tensor, []).append(item.value)

    def tensor(self, name: str) -> Noise:
        """A tensor: the loudest of its pieces. What reads itself (a recurrence) counts its earlier places as quiet."""
        if name in self.known:
            return self.known[name]
        if name in self.busy or name not in self.defines:
            return QUIET
        self.busy.add(name)
        out = self.known[name] = max((self.value(e) for e in self.defines[name]), key=lambda v: v.relative)
        self.busy.discard(name)
        return out

    def value(self, e: Expr) -> Noise:
        if isinstance(e, IntLit | FloatLit):
            return Noise(abs(float(e.value)) if isfinite(e.value) else 1.0, positive=e.value > 0, known=1.0)
        if isinstance(e, Const):
            return Noise(3.14 if e.name == "pi" else 1.0)
        if isinstance(e, Name):
            return self.value(self.lets[e.name]) if e.name in self.lets else QUIET
        if isinstance(e, Read):
            return self.tensor(e.tensor)
        if isinstance(e, Cast):
            return self.value(e.arg)
        if isinstance(e, Reduce):
            return self._reduce(e)
        return self._apply(e) if isinstance(e, Apply) else QUIET

    def _reduce(self, e: Reduce) -> Noise:
        if e.kind in ("any", "all", "argmax", "argmin", "argnth"):
            return QUIET
        value, count = self.value(e.body), _count(e.ranges)
        if e.kind in ("sum", "mean"):
            # Of positive values a few at least carry the sum: its error is at most half as large, relatively.
            out = _scaled(value, 0.5, value.rms) if value.positive and count != 1 else value
            grown = (count or 1) if value.positive else sqrt(count or 1)
            return replace(out, rms=out.rms * grown if e.kind == "sum" else out.rms, proportional=False, known=0.0)
        if e.kind == "prod":
            return replace(_scaled(value, sqrt(count or 2), value.rms), known=0.0)
        return value

    def _apply(self, e: Apply) -> Noise:
        if e.fn in _SHARP:
            return QUIET
        args = [self.value(a) for a in (e.args[1:] if e.fn == "select" else e.args)]
        x = args[0] if args else QUIET
        match e.fn:
            case "-" if len(args) == 2 and self._extreme(*e.args):
                # x - max(x), as in a softmax: the error of the maximum is common to all, and goes again where they are divided by each other.
                return _added([x, replace(args[1], relative=0.0, worst=QUIET.worst)])
            case "+" | "-" if len(args) == 2:
                return _added(args)
            case "*":
                return replace(_joined(args, x.rms * args[1].rms), known=_known(args) if any(isinstance(a, IntLit | FloatLit) for a in e.args) else 0.0)
            case "/" | "floordiv" | "ceildiv":
                out = _joined(args, x.rms / args[1].rms if args[1].rms > 0 else x.rms)
                return replace(out, known=x.known if isinstance(e.args[1], IntLit | FloatLit) else 0.0)
            case "**" | "pow":
                power = e.args[1].value if isinstance(e.args[1], IntLit | FloatLit) else 2.0
                return _scaled(x, abs(power), x.rms ** min(abs(power), 8.0))
        if e.fn in _CHOOSE:
            zero = e.fn in ("max", "fmax") and any(isinstance(a, IntLit | FloatLit) and a.value >= 0 for a in e.args)
            loud = max(args, key=lambda v: v.relative)
            return replace(loud, rms=max((v.rms for v in args if v.relative > 0), default=x.rms), positive=zero, known=min(loud.known, CHOSEN))
        if e.fn in _POWERS:
            return _scaled(x, _POWERS[e.fn], x.rms if _POWERS[e.fn] == 1 else sqrt(x.rms))
        if e.fn in _FLATTENS:
            # e = ex at most, and s is no larger than that of x.
            return _scaled(x, max(1.0, min(x.rms, 1.0)), min(x.rms, _FLATTENS[e.fn]))
        if e.fn in _EXPONENTIALS:
            return replace(_scaled(x, min(x.rms, 8.0), 1.0), proportional=True, positive=e.fn != "expm1")
        if e.fn in _LOGARITHMS:
            return _scaled(_joined(args, x.rms), 1.0, 1.0)
        return _joined(args, x.rms)

    def _extreme(self, x: Expr, m: Expr) -> bool:
        """Whether `m` is the largest or smallest of what `x` is one of."""
        found = self.defines.get(m.tensor, []) if isinstance(m, Read) else [m]
        return isinstance(x, Read) and len(found) == 1 and isinstance(r := found[0], Reduce) and r.kind in ("max", "min") \
            and isinstance(r.body, Read) and r.body.tensor == x.tensor


def _known(args: Sequence[Noise]) -> float:
    return min((a.known for a in args), default=0.0)


def _scaled(value: Noise, factor: float, rms: float) -> Noise:
    share, edge, operand = value.worst
    return Noise(rms if isfinite(rms) else 1.0, value.relative * factor, (share * factor**2, edge, operand), value.proportional, value.positive, value.known)


def _joined(args: Sequence[Noise], rms: float) -> Noise:
    """Factors: squares of relative noise add."""
    worst = max((a.worst for a in args), default=(0.0, "", ""))
    loud = [a for a in args if a.relative > 0]
    return Noise(rms if isfinite(rms) else 1.0, sqrt(sum(a.relative**2 for a in args)), worst, any(a.proportional for a in loud), all(a.positive for a in args))


def _added(args: Sequence[Noise]) -> Noise:
    """Terms: squares of errors and of values add."""
    total = sum(a.rms**2 for a in args)
    if total <= 0 or not isfinite(total):
        return _joined(args, 1.0)
    worst = max(((a.worst[0] * a.rms**2 / total, *a.worst[1:]) for a in args), default=(0.0, "", ""))
    return Noise(sqrt(total), sqrt(sum((a.relative * a.rms)**2 for a in args) / total), worst, known=_known(args))


def _count(ranges: Sequence[Expr]) -> int | None:
    """How many terms a reduction has, if that is known."""
    out = 1
    for r in ranges:
        if not isinstance(r, Range) or not isinstance(r.hi, IntLit) or not (r.lo is None or isinstance(r.lo, IntLit)):
            return None
        out *= max(r.hi.value - (r.lo.value if isinstance(r.lo, IntLit) else 0), 1)
    return out


# -------------------------------------------------------------------------------------------------------------------- budgets


def check_budgets(p: Pipeline, operators: Mapping[str, Operator], plans: Mapping[str, Plan], ranges: Mapping[str, EdgeRange], measured: Mapping[str, float],
                  arch: str, report: Report) -> None:
    """Report each budget that a node's results do not keep: what was measured of an edge counts, and what is estimated where nothing was. An estimate that is
    near the budget is a warning."""
    asked = {n.results[0].name: n for n in p.nodes if isinstance(n, Node) and n.results[0].name in plans and plans[n.results[0].name].policy.budget is not None}
    if not asked:
        return
    found = _Flow(p, operators, plans, ranges).run()
    nodes = {n.results[0].name: n for n in p.nodes if isinstance(n, Node)}
    for name, n in asked.items():
        policy = plans[name].policy
        budget = policy.budget
        for e in n.results:
            known = measured.get(e.name)
            error = known if known is not None else _largest(found[e.name], ranges.get(e.name))
            if budget is None or (error <= budget and error == error):
                continue
            what = "is measured to be off by" if known is not None else "is estimated to be off by"
            tell = report.error if known is not None or not error <= FAR * budget else report.warning
            _, edge, operand = found[e.name].worst
            source = nodes.get(edge)
            notes = [Note(f"'%{e.name}' is made here", n.loc or n.op_span)]
            if source is not None and edge != name:
                notes.append(Note(f"most of it comes from '{_called(source)}'" + (f", where '%{operand}' is lowered" if operand else ""),
                                  source.loc or source.op_span))
            tell("PL4302", policy.spans.get("budget", policy.span),
                 f"'%{e.name}' of '{_called(n)}' {what} {_two(error)} of its largest value on {arch}, and its budget is {budget:g}", notes,
                 _mend(error, source, plans.get(edge), operand, operators, ranges, known is not None))
            break


def _called(n: Node) -> str:
    """A node as messages name it: its label, or its operator as it was written."""
    return n.label or f"@{written(n.op)}"


def _two(x: float) -> str:
    return f"{x:.2g}" if isfinite(x) else "nan or infinity"


def _mend(error: float, source: Node | None, plan: Plan | None, operand: str, operators: Mapping[str, Operator], ranges: Mapping[str, EdgeRange],
          measured: bool) -> str:
    """What would make the error smaller where most of it comes from, or how to live with it."""
    ways: list[str] = []
    if source is not None and plan is not None:
        codes = plan.codes.get(operand)
        edges = dict(zip([o.name for o in operators[source.op].operands], [e.name for e in consumed(source)], strict=False))
        seen = ranges.get(edges.get(operand, ""))
        if operand in plan.weights and codes is not None:
            if codes.scale == "tensor" or isinstance(codes.scale, float):
                ways.append("'granularity = channel' for its weights")
            elif codes.dtype == "i4":
                ways.append("'weights = i8'" if codes.size is not None and codes.size <= 32 else "'granularity = block(32)', or 'weights = i8'")
        elif codes is not None and codes.is_int and plan.policy.scheme == "symmetric" and seen is not None and (seen.low >= 0 or seen.high <= 0):
            ways.append("'scheme = affine', since it has values on one side of 0 alone")
        if codes is not None and seen is not None and seen.clipped > 0:
            ways.append("another method of calibration, which clips less")
        finer = "f16" in halves(operators[source.op]) and (codes is not None or plan.dtype != "f16")
        ways.append(f"{'f16' if finer else 'no policy'} for '{_called(source)}'")
    if not measured:
        ways.append("measuring it, 'pipelinkc calibrate FILE --data …', which counts instead of the estimate")
    if isfinite(error):
        ways.append(f"a larger budget, 'budget = {_up(error)}'")
    return "what would mend it: " + "; ".join(ways)


def _up(x: float) -> str:
    """The next number of two digits."""
    unit = 10.0 ** (floor(log10(x)) - 1)
    return f"{ceil(x / unit * (1 - 1e-12)) * unit:.2g}" if 0 < x < inf else "1"
