"""What a policy asks of one node, decided before anything is put in: the float dtype that it computes with, and which operands become codes, and how.

Weights are operands that depend on parameters alone. They have a scale for each channel unless the policy says otherwise, found from their values when they
are bound. All others are activations: one scale for a tensor, from the calibrated range of the edge, or found at each call.
"""
from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Axis, Define, Expr, FloatLit, IntLit, Name, Operand, Operator, Read, Reduce
from pipelink_ir.ir.walk import children, reads_in, walk
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.calibrated import EdgeRange, scale_of
from pipelink_ir.passes.precision.codes import Codes
from pipelink_ir.passes.precision.floats import admitted, is_float, varying
from pipelink_ir.passes.precision.own_kernels import why_not
from pipelink_ir.passes.precision.policy import CODES, Policy
from pipelink_ir.passes.precision.products import block_axis, carried, channel_axis, contracted, factors, joined, memory_order, uses_of
from pipelink_ir.passes.precision.selecting import selects

BLOCK = 32
"""Places of a block of i4 weights, where the policy does not say."""
CALIBRATED, MEASURED, UNCALIBRATED, GIVEN = "calibrated", "measured", "uncalibrated", "given"
"""Where the range of an activation comes from: the file; each call, as the policy says; each call, since there is no file; the program, which has codes."""

QUANTIZE = "std.quantize"

_CURVED = frozenset(("exp", "exp2", "expm1", "log", "log2", "log1p", "logaddexp", "sqrt", "rsqrt", "pow", "**", "/"))
_CHOOSES = "'@{}' only chooses among values; it works on codes where all that read its result do"
_AT_ZERO = frozenset(("log", "log2", "rsqrt"))
"""Functions that are infinite at 0."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a node. `refused` says why nothing does."""

    policy: Policy
    dtype: str | None = None
    """The float dtype of the operands and results `names`."""
    names: tuple[str, ...] = ()
    codes: Mapping[str, Codes] = field(default_factory=dict)
    weights: frozenset[str] = frozenset()
    """Those of `codes` that come from parameters."""
    ranges: Mapping[str, str] = field(default_factory=dict)
    """Where the ranges of the others come from."""
    missing: tuple[str, ...] = ()
    """Operands whose ranges the policy wants calibrated, and are not."""
    shares: bool = False
    """The operator gains nothing by codes of its own: it reads those that others have made."""
    refused: str | None = None
    never: bool = False
    """Whether it is refused for what the operator is, whatever is around it and whatever it costs."""
    sums: str = ""
    """What it costs, beside what it would cost otherwise."""
    off: str = ""
    """The error of its result, as text."""

    @property
    def said(self) -> str:
        """The error and the sums as the end of a reason."""
        return self.off + (f": {self.sums}" if self.sums else "")

    @property
    def lowers(self) -> bool:
        return self.refused is None and (self.dtype is not None or bool(self.codes))


def plan(op: Operator, policy: Policy, weights: Set[str], ranges: Mapping[str, EdgeRange | None], calibrated: bool,
         ready: Mapping[str, Codes]) -> Plan:
    """What a policy makes of an operator. `weights`: operands that come from parameters; `ranges`: what calibration saw of the others; `calibrated`: whether
    there is a file at all; `ready`: codes that the program has of them."""
    dtype = policy.dtype
    plain = dtype is not None and is_float(dtype) and (policy.scheme == "plain" or not dtype.startswith("f8"))
    why = why_not(op, dtype, policy.weights, plain)
    if why is not None:
        return Plan(policy, refused=f"declined: '@{written(op.name)}' is a kernel of its own, which {why}", never=True)
    if op.kernel is not None and dtype in CODES and not plain:
        return Plan(policy, refused=f"declined: {_CHOOSES.format(written(op.name))}")
    if dtype is not None and not plain and written(op.name) == QUANTIZE:
        return Plan(policy, refused=f"declined: '@{QUANTIZE}' makes codes itself, of values as they are", never=True)
    out = _float(op, policy, dtype) if plain and dtype is not None else Plan(policy)
    if dtype is not None and not plain:
        out = _activations(op, policy, dtype, weights, _together(op, ranges), calibrated, ready, out)
    kind = policy.weights if policy.weights is not None else dtype if not plain else None
    if kind is not None:
        out = _weights(op, policy, kind, weights, out)
    out = _same_for_parts(op, out, ranges)
    if out.refused is None and not out.lowers and (dtype is not None or policy.weights is not None):
        # What has the dtype already is as its policy wants it, and there is nothing to tell.
        same = plain and dtype is not None and any(o.type.dtype == dtype for o in op.operands)
        return replace(out, refused="" if same else _nothing(op, policy), never=not same)
    # Weights may be codes where activations cannot.
    return replace(out, refused=None, never=False) if out.codes else out


def _same_for_parts(op: Operator, whole: Plan, seen: Mapping[str, EdgeRange | None]) -> Plan:
    """The plan of an operator with operands that were given as lists: the parts of one have the same codes with a scale that is known, or stay as they are.
    Weights may be codes in any case: they are made values of where they are put together."""
    codes, missing = dict(whole.codes), whole.missing
    for parts in joined(op).values():
        found = {codes.get(p) for p in parts}
        c = next(iter(found))
        if found != {None} and (len(found) > 1 or c is None or isinstance(c.scale, str)):
            codes = {o: c for o, c in codes.items() if o not in parts or o in whole.weights or any(u.with_data for u in uses_of(op, o))}
        missing = tuple(m for m in missing if m not in parts or seen.get(m) is None)
    ranges = {o: r for o, r in whole.ranges.items() if o in codes}
    return whole if codes == whole.codes and missing == whole.missing else replace(whole, codes=codes, ranges=ranges, weights=whole.weights & codes.keys(),
                                                                                   missing=missing)


def _together(op: Operator, ranges: Mapping[str, EdgeRange | None]) -> dict[str, EdgeRange | None]:
    """The ranges of operands, where parts of a list have that of all of them; None if that of one is not known."""
    out = dict(ranges)
    for parts in joined(op).values():
        known = [s for p in parts if (s := ranges.get(p)) is not None]
        whole = None
        if len(known) == len(parts):
            whole = EdgeRange(min(s.min for s in known), max(s.max for s in known), min(s.low for s in known), max(s.high for s in known))
        out |= dict.fromkeys(parts, whole)
    return out


def _nothing(op: Operator, policy: Policy) -> str:
    what = policy.dtype or policy.weights
    if policy.dtype is None:
        return f"declined: '@{written(op.name)}' has no product with an operand that comes from parameters alone, which could be {what}"
    return f"declined: '@{written(op.name)}' has no float operand that {what} codes could stand for"


def _float(op: Operator, policy: Policy, dtype: str) -> Plan:
    if dtype.startswith("f8") and op.kernel is None:
        names = tuple(o.name for o in op.operands if is_float(o.type.dtype) and contracted(op, o.name) and not divides(op, o.name))
    else:
        names = varying(op)
        if not admitted(op, dtype):
            return Plan(policy, refused=f"declined: {dtype} is not among the dtypes of '@{written(op.name)}'", never=True)
    if not names:
        return Plan(policy, refused=f"declined: no operand of '@{written(op.name)}' may have another dtype", never=True)
    if all(o.type.dtype == dtype for o in (*op.operands, *op.results) if o.name in names):
        return Plan(policy)
    return Plan(policy, dtype, names)


# -------------------------------------------------------------------------------------------------------------------------- codes


def _activations(op: Operator, policy: Policy, dtype: str, weights: Set[str], ranges: Mapping[str, EdgeRange | None], calibrated: bool,
                 ready: Mapping[str, Codes], out: Plan) -> Plan:
    floats = [o for o in op.operands if is_float(o.type.dtype) and not divides(op, o.name)]
    products = [o for o in floats if contracted(op, o.name)]
    asked = [o for o in products or floats if o.name not in weights and (not products or _meets(op, o, {x.name for x in products}))]
    shares = False
    if not products:
        if selects(op) and not elementwise(op):
            return replace(out, refused=f"declined: {_CHOOSES.format(written(op.name))}")
        if curved(op):
            return replace(out, refused=f"declined: '@{written(op.name)}' computes powers or quotients of what it sums, which stay in f32", never=True)
        shares = not any(isinstance(e, Reduce) for d in (op.compute.body if op.compute is not None else ()) for e in walk(d.value))
    codes: dict[str, Codes] = {}
    found: dict[str, str] = {}
    missing: list[str] = []
    for o in asked:
        seen = ranges.get(o.name)
        if o.name in ready and ready[o.name].dtype == dtype:
            codes[o.name], found[o.name] = ready[o.name], GIVEN
            continue
        if policy.ranges == "calibrated" and seen is not None:
            scale, zero = scale_of(seen, dtype, policy.scheme)
            codes[o.name], found[o.name] = Codes(dtype, scale, zero), CALIBRATED
            continue
        if policy.ranges == "calibrated" and (calibrated or "ranges" in policy.spans):
            missing.append(o.name)
        codes[o.name] = Codes(dtype, "tensor", _zero(dtype, policy))
        found[o.name] = MEASURED if policy.ranges == "dynamic" else UNCALIBRATED
    return replace(out, codes=codes, ranges=found, missing=tuple(missing), shares=shares)


def _meets(op: Operator, o: Operand, coded: Set[str]) -> bool:
    """Whether an operand is multiplied with another one that may be codes: where the other factor is a real value (as in attention the probabilities are), the
    sum is one of real values too, and codes of what comes anew at each call would only lose digits."""
    tensors = {name for x in coded for name in carried(op, x)}
    uses = (u for name in carried(op, o.name) for u in uses_of(op, name))
    return any(r.tensor in tensors for u in uses for f in factors(u.reduce.body)[0] for r in reads_in(f.value) if r is not u.read)


def _zero(dtype: str, policy: Policy) -> int | str:
    """The zero point where the range is found at the call."""
    if policy.scheme == "affine" and dtype in ("i8", "u8"):
        return "tensor"
    return 128 if dtype == "u8" else 0


def elementwise(op: Operator) -> bool:
    """Whether each place of a result is made of the same place of the operands."""
    own = {o.name for o in op.operands if o.type.dims}
    for d in op.compute.body if op.compute is not None else ():
        if isinstance(d, Define):
            at = tuple(Name(a.index) if isinstance(a, Axis) and a.lo is None else None for a in d.axes)
            if any(r.indices != at for r in reads_in(d.value) if r.tensor in own):
                return False
    return True


def curved(op: Operator) -> bool:
    """Whether an operator sums and also takes powers, roots, logarithms or quotients, as norms and softmax do."""
    body = [e for d in (op.compute.body if op.compute is not None else ()) for e in walk(d.value)]
    return any(isinstance(e, Reduce) for e in body) and any(isinstance(e, Apply) and e.fn in _CURVED for e in body)


def divides(op: Operator, operand: str) -> bool:
    """Whether something is divided by an operand as it is, or its logarithm or reciprocal root is taken. What is small beside the largest has the code 0,
    and the result would be infinite."""
    own = set(carried(op, operand))

    def plain(e: Expr) -> bool:
        """Whether an expression has a read of it, other than in a sum."""
        return (isinstance(e, Read) and e.tensor in own) or (not isinstance(e, Reduce) and any(plain(c) for c in children(e)))

    def at_zero(e: Expr) -> bool:
        if not isinstance(e, Apply):
            return False
        if e.fn == "/":
            return plain(e.args[1])
        power = e.fn in ("**", "pow") and not (isinstance(e.args[1], IntLit | FloatLit) and e.args[1].value >= 0)
        return (power or e.fn in _AT_ZERO) and plain(e.args[0])
    return any(at_zero(e) for d in (op.compute.body if op.compute is not None else ()) for e in walk(d.value))


def _weights(op: Operator, policy: Policy, kind: str, weights: Set[str], out: Plan) -> Plan:
    operands = [o for o in op.operands if o.name in weights and is_float(o.type.dtype) and contracted(op, o.name) and not divides(op, o.name)]
    if kind in DTYPES and is_float(kind) and not kind.startswith("f8"):
        names = tuple(o.name for o in operands if o.type.dtype != kind)
        return replace(out, dtype=kind, names=names) if names and out.dtype is None else out
    codes = {o.name: _weight(op, o, policy, kind) for o in operands}
    return replace(out, codes={**out.codes, **codes}, weights=frozenset(codes))


def _weight(op: Operator, o: Operand, policy: Policy, kind: str) -> Codes:
    """How a weight is coded. u8 is for activations: weights have both signs."""
    dtype = "i8" if kind == "u8" else kind
    blocks = block_axis(op, o.name)
    channel = channel_axis(op, o.name)
    order = memory_order(op, o.name)
    granularity, size = policy.granularity, policy.block_size
    if dtype == "i4" and "granularity" not in policy.spans:
        granularity, size = "block", BLOCK
    packed = blocks if dtype == "i4" else None
    if granularity == "block" and blocks is not None and size is not None:
        return Codes(dtype, "block", axis=blocks, size=size, packed=packed, order=order, param=True)
    if granularity != "tensor" and channel is not None:
        return Codes(dtype, "channel", axis=channel, packed=packed, order=order, param=True)
    return Codes(dtype, "tensor", packed=packed, order=order, param=True)
