"""Nodes that are put in for codes: of activations and weights, their scales, zero points and sums; and operators that read them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelink_ir.grammar.printer import print_type
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_condition
from pipelink_ir.ir.nodes import Edge, Expr, Node, Operator, TensorType
from pipelink_ir.ir.walk import names_in, substitute
from pipelink_ir.passes.aliasing.order import arguments
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.code_sums import summer
from pipelink_ir.passes.precision.codes import Codes, own_symbols, quantiser, scaler
from pipelink_ir.passes.precision.edges import Line, form_name, reasons
from pipelink_ir.passes.precision.floats import lowered, sharing_kept, taken_over, with_clause
from pipelink_ir.passes.precision.plans import CALIBRATED, MEASURED, UNCALIBRATED, Plan
from pipelink_ir.passes.precision.quantised import quantised
from pipelink_ir.passes.shapes import bind_symbols


@dataclass(frozen=True, slots=True)
class CodedEdge:
    """An edge as codes: the edges that hold them, and their scale and zero point where these are no numbers."""

    codes: str
    scale: str | None = None
    zero: str | None = None


def coded(line: Line, edge: str, codes: Codes, near: Node, why: str) -> CodedEdge:
    """The codes of an edge, put in if they are not there yet."""
    edge = line.first(edge)
    scale = zero = None
    if isinstance(codes.scale, str):
        scale, zero = _scale(line, edge, codes, near, why)
    form = ("codes", codes)
    found = line.form(edge, form, near.device)
    if found is None:
        source = line.narrowest(edge, near)
        t = line.types[source]
        op = line.operators.make(("quantiser", print_type(own_symbols(t)), codes), f"quantize_{codes.dtype}.1", lambda name: quantiser(t, codes, name))
        args = [source, *(e for e in (scale, zero) if e is not None)]
        found = line.insert(op, args, [f"{edge}.q"], near, f"quantize: '%{edge}' as {describe(codes)}{why}")[0]
        line.remember(edge, form, near.device, found)
    return CodedEdge(found, scale, zero)


def _scale(line: Line, edge: str, codes: Codes, near: Node, why: str) -> tuple[str, str | None]:
    """The edges with scale and zero point, shared by codes of other forms with the same scale."""
    plain = replace(codes, order=(), packed=None)
    scale, zero = line.form(edge, ("scale", plain), near.device), line.form(edge, ("zero", plain), near.device)
    if scale is not None:
        return scale, zero
    source = line.narrowest(edge, near)
    t = line.types[source]
    op = line.operators.make(("scaler", print_type(own_symbols(t)), plain), f"scale_{codes.dtype}.1", lambda name: scaler(t, plain, name))
    names = [f"{edge}.scale", f"{edge}.zero"][:len(op.results)]
    made = line.insert(op, [source], names, near, f"quantize: the scale of '%{edge}'{why}")
    for kind, name in zip(("scale", "zero"), made, strict=False):
        line.remember(edge, (kind, plain), near.device, name)
    return made[0], made[1] if len(made) > 1 else None


def describe(codes: Codes) -> str:
    """`i8 codes of scale 0.0125`, `i4 codes, a scale for each 32 along axis 0`."""
    if not isinstance(codes.scale, str):
        zero = f", zero point {codes.zero}" if codes.shifted else ""
        return f"{codes.dtype} codes of scale {codes.scale:.6g}{zero}"
    what = {"tensor": "one scale", "channel": f"a scale for each channel (axis {codes.axis})", "block": f"a scale for each {codes.size} on axis {codes.axis}"}
    return f"{codes.dtype} codes, {what[codes.scale]}"


def put_in(line: Line, n: Node, plan: Plan, arch: str) -> tuple[tuple[Expr, ...], str | None]:
    """What a node becomes on codes: conditions on sizes that it needs, and why it cannot be (then nothing was put in)."""
    operators, policy = line.operators, plan.policy
    op = operators.known[n.op]
    ordered = tuple(sorted(plan.codes.items()))

    def build(name: str) -> Operator | str:
        base = lowered(op, plan.dtype, name, plan.names) if plan.dtype is not None else op
        made = quantised(base, plan.codes, name)
        return made if isinstance(made, str) else with_clause(sharing_kept(replace(made, gradient=None)), policy)
    how = policy.dtype or policy.weights or ""
    new = operators.get(("codes", n.op, plan.dtype, plan.names, ordered), form_name(n.op, how), build)
    if isinstance(new, str):
        return (), f"declined: {new}"
    edges = {o.name: e.name for o, e in zip(op.operands, arguments(n), strict=True)}
    whom = f"'@{written(n.op)}' runs in {how} on {arch}, as its policy asks"
    given: dict[str, str] = {}
    for name, codes in ordered:
        made = coded(line, edges[name], codes, n, _why(plan, name, whom))
        given[name] = made.codes
        given |= {f"{name}.{k}": e for k, e in (("scale", made.scale), ("zero", made.zero)) if e is not None}
    for name, edge in edges.items():
        if name not in given:
            given[name] = line.cast(edge, plan.dtype, n, f"cast: {whom}") if plan.dtype is not None and name in plan.names else edge
    for o in new.operands:
        if o.name not in given:
            name = o.name.removesuffix(".sum")
            given[o.name] = _sum(line, op, plan, name, given[name], line.types[line.first(edges[name])], n)
    args = tuple(given[o.name] for o in new.operands)
    results_in(line, n, new, args, plan, f"lowered: {whom}{plan.said}")
    sizes = {s.key: s.value for s in n.attrs if isinstance(s.value, Expr)}
    bound = bind_symbols(new, [line.types[line.first(a)] for a in args]) | sizes
    at = policy.spans.get("dtype", policy.span)
    fresh = (replace(substitute(w, bound), span=at) for w in new.where if w not in op.where)
    return tuple(c for c in fresh if not holds_always(c)), None


def results_in(line: Line, n: Node, new: Operator, args: Sequence[str], plan: Plan, reason: str) -> None:
    """The node that calls the lowered operator; results that have another dtype now are cast back."""
    old = line.operators.known[n.op]
    results: list[Edge] = []
    types: list[TensorType] = []
    for r, e, t in zip(new.results, n.results, n.types, strict=True):
        changed = r.type.dtype != t.dtype
        results.append(Edge(line.fresh(f"{e.name}.{r.type.dtype}"), span=e.span) if changed else e)
        types.append(replace(t, dtype=r.type.dtype))
    apart = [f"'%{r}' cannot take over the memory of '%{o}', which has another size now" for r, o in taken_over(old).items() if r not in taken_over(new)]
    reason = "; declined: ".join([reason, *apart])
    spans = {o.name: e.span for o, e in zip(old.operands, arguments(n), strict=True)}
    edges = tuple(Edge(a, span=spans.get(o.name.partition(".")[0], n.span)) for o, a in zip(new.operands, args, strict=True))
    line.keep(replace(n, op=new.name, args=edges, results=tuple(results), types=tuple(types), plan=None, reason=reasons(n.reason, reason)))
    for e, made, t in zip(n.results, results, n.types, strict=True):
        if made is not e:
            line.cast_back(made.name, e.name, t, n, f"cast: '%{e.name}' is {t.dtype} for those that read it otherwise")


def _why(plan: Plan, operand: str, whom: str) -> str:
    if operand in plan.weights:
        return f": {whom}"
    source = {CALIBRATED: ", calibrated", MEASURED: ", its range found at each call",
              UNCALIBRATED: ", its range found at each call since there is no calibration (pipelinkc calibrate makes one)"}
    return f"{source.get(plan.ranges.get(operand, ''), '')}: {whom}"


def _sum(line: Line, op: Operator, plan: Plan, operand: str, of: str, real: TensorType, near: Node) -> str:
    """The edge with the sums of the codes `of` a weight of the type `real`, whose size does not follow from that of codes that lie two to a byte."""
    codes, form = plan.codes[operand], ("sum", op.name, operand, plan.codes[operand])
    found = line.form(of, form, near.device)
    if found is None:
        made = line.operators.get(form, f"sum_{codes.dtype}.1", lambda name: summer(op, operand, codes, name) or "")
        assert isinstance(made, Operator)
        sizes = {a.name: real.dims[codes.pair or 0] for a in made.attributes}
        found = line.insert(made, [of], [f"{of.removesuffix('.q')}.sum"], near, f"quantize: sums of '%{of}', which the zero point of the other factor is "
                            "multiplied by", sizes)[0]
        line.remember(of, form, near.device, found)
    return found


def holds_always(condition: Expr) -> bool:
    """Whether a condition that names nothing holds."""
    if names_in(condition):
        return False
    try:
        return bool(evaluate_condition(condition, {}))
    except CannotEvaluate:
        return False
