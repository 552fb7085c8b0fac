"""What keeps an operator alone, and what operators must have in common to become one."""
from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Node, Operator, Read, Reduce, Value
from pipelink_ir.ir.walk import walk

KEYS = ("accuracy", "fast_math", "arch", "features", "toolchain", "block")
"""Settings of `compile` that hold for a whole operator, so that fused ones must agree. `edges = free` is no such: it is a leave that nobody has to take."""

BLOCK = KEYS.index("block")
OPEN = ("block", "empty")
"""What goes with anything where it is not said."""

PART = "exact, each definition for itself"
"""What an operator without reductions says of its accuracy: it may stand beside others, since what it asks for can be written for its definitions alone."""
Common = tuple[Value | str | None, ...]
"""The values of `KEYS`, and what a reduction over nothing gives; None where the operator has none that asks."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides by itself whether two groups may become one: why the one call of a group stays alone, whether it is computed when parameters are
    bound, where it runs, and what all members have in common."""

    own: str | None
    early: bool
    place: tuple[str, int, str | None] | None
    common: Common


def alone(n: Node) -> str | None:
    """Why a node is never fused, whatever its operator; None if it may be."""
    if n.plan is not None:
        return "has a plan already"
    if re.fullmatch(r"std\.copy(\.\d+)*", n.op) and n.reason is not None:
        return "moves its values elsewhere"
    return None


def own_terms(op: Operator) -> str | None:
    """Why an operator is never fused."""
    if op.downgrades:
        return "has a downgrade policy of its own"
    if op.kernel is not None:
        return "has a kernel of its own"
    if any(contracts.sections(op, "schedule")):
        return "has a schedule of its own"
    if contracts.setting(op, "compile", "library") is not None:
        return "may be a library's"
    if op.compute is None:
        return "has no compute"
    return None


def taken_over(op: Operator) -> list[int]:
    """The operands, by number, whose memory results may take over."""
    found = (contracts.setting(op, "memory", "inplace", r.name) for r in op.results)
    names = {f.setting.value.tensor for f in found if f is not None and f.scoped and isinstance(f.setting.value, Read)}
    return [k for k, o in enumerate(op.operands) if o.name in names]


def terms_of(op: Operator) -> Common:
    """What all operators of a group must agree in. `accuracy = f8` is said of single sums then."""
    found = (contracts.setting(op, "compile", key) for key in KEYS)
    accuracy, *values = (f.setting.value if f is not None else None for f in found)
    own: Value | str | None = PART if contracts.exact(op) and not reduces(op) else None if contracts.short_sums(op) else accuracy
    return (own, *values, contracts.empty(op) or "error" if governed(op) else None)


def agree(a: Common, b: Common) -> str | None:
    """In which term two groups differ; None if they do not. Operators without a reduction that `empty` governs go with either, and so do those that
    say nothing of blocks."""
    if a == b:
        return None
    for key, x, y in zip((*KEYS, "empty"), a, b, strict=True):
        if x != y and not (key in OPEN and (x is None or y is None)) and not (key == "accuracy" and PART in (x, y)):
            return f"they differ in '{key}'"
    return None


def both(a: Terms, b: Terms) -> Terms:
    """The terms of two groups that agree."""
    accuracy = a.common[0] if b.common[0] == PART else b.common[0]
    rest = (x if key in OPEN and x is not None else y for key, x, y in zip((*KEYS[1:], "empty"), a.common[1:], b.common[1:], strict=True))
    return replace(b, common=(accuracy, *rest))


def reduces(op: Operator) -> bool:
    """Whether any definition has a reduction."""
    return op.compute is not None and any(isinstance(n, Reduce) for d in op.compute.body for n in walk(d.value))


def governed(op: Operator) -> bool:
    """Whether an operator has a reduction that `empty` may decide."""
    return op.compute is not None and any(isinstance(n, Reduce) and REDUCTIONS[n.kind].governed for d in op.compute.body for n in walk(d.value))
