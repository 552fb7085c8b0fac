"""A `downgrade` clause as values: what a leaf operator is to become on one target.

    downgrade sm_75 { dtype = i8, weights = i4, granularity = block(32), budget = 2e-2 }

What a clause may say, and what contradicts what, is checked by `check-contracts`; here it is only read, and what cannot be read counts as not written.
"""
from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Downgrade, Items, Operator, Setting, Value
from pipelink_ir.ir.source import NOWHERE, Span
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.contracts.values import integer, number

KEYS = ("dtype", "weights", "scheme", "granularity", "ranges", "budget", "block", "library", "force")
"""Keys of a clause that speak of the operator itself. `precision` and labels speak of the nodes inside a graph."""

CODES = ("i8", "u8", "f8e4m3", "f8e5m2")
"""What floats are quantised to; i4 is for weights alone."""
CODED = (*CODES, "i4")
"""What is reached by quantising."""
WEIGHTS = ("i8", "i4", "f8e4m3", "f8e5m2", "f16", "bf16", "f32")
SCHEMES = {
    "symmetric": "codes from -127 to 127, 0.0 is code 0", "affine": "all codes, with a zero point, for values on one side of 0",
    "plain": "f8 alone: values are rounded to the float itself, without a scale",
}
GRANULARITIES = {"tensor": "one scale", "channel": "a scale for each channel of the result", "block": "`block(N)`: a scale for each N values that are summed"}
RANGES = {"calibrated": "from `pipelinkc calibrate`", "dynamic": "found on the device at each call"}


@dataclass(frozen=True, slots=True)
class Policy:
    """One clause. None stands for what is not written and has no value by default."""

    dtype: str | None = None
    """The dtype of the operands that are computed with; None if the clause changes none."""
    weights: str | None = None
    """The dtype of operands that come from parameters alone, if it is another one."""
    scheme: str = "symmetric"
    """How activations are coded."""
    granularity: str = "channel"
    """What of a weight shares a scale: `tensor`, `channel` or `block`."""
    block_size: int | None = None
    """N of `block(N)`."""
    ranges: str = "calibrated"
    budget: float | None = None
    block: tuple[int, ...] | None = None
    library: tuple[str, ...] | None = None
    force: bool = False
    """Whether the change is kept although it does not pay."""
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    """The clause."""
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)
    """The settings, by key."""


def clause_of(op: Operator, target: Arch) -> Downgrade | None:
    """The clause of an operator for a target: the one that names it exactly, else the one for the same architecture without its suffix (sm_90 for sm_90a)."""
    plain = Arch(target.kind, target.sm)
    found = {parse_arch(d.target): d for d in reversed(op.downgrades)}
    return found.get(target) or found.get(plain)


def policy_of(op: Operator, target: Arch) -> Policy | None:
    """What a leaf operator's clause asks for on a target; None without a clause, and where the clause says `unsupported`."""
    clause = clause_of(op, target)
    return None if clause is None or clause.settings is None else read(clause)


def read(clause: Downgrade) -> Policy:
    """The settings of a clause as values."""
    of = {s.key: s for s in reversed(clause.settings or ())}

    def word(key: str, among: Container[str]) -> str | None:
        name = contracts.word(of[key].value) if key in of else None
        return name if name in among else None
    granularity, size = granularity_of(of["granularity"].value) if "granularity" in of else (None, None)
    return Policy(
        word("dtype", DTYPES), word("weights", WEIGHTS), word("scheme", SCHEMES) or "symmetric", granularity or "channel", size,
        word("ranges", RANGES) or "calibrated", number(of["budget"].value) if "budget" in of else None, _block(of.get("block")),
        tuple(contracts.words(of["library"].value)) if "library" in of else None, "force" in of and contracts.word(of["force"].value) == "true",
        clause.span, {k: s.span for k, s in of.items()})


def granularity_of(value: Value) -> tuple[str | None, int | None]:
    """`tensor`, `channel` or `block(N)` with its N; (None, None) for anything else."""
    name = contracts.word(value)
    if name in ("tensor", "channel"):
        return name, None
    if isinstance(value, Apply) and value.fn == "block" and len(value.args) == 1:
        return "block", integer(value.args[0])
    return None, None


def _block(s: Setting | None) -> tuple[int, ...] | None:
    if s is None:
        return None
    sizes = [integer(v) for v in (s.value.items if isinstance(s.value, Items) else (s.value,))]
    return tuple(n for n in sizes if n is not None) if sizes and None not in sizes else None
