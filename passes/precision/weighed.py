"""What the prices say of each node of a pipeline, as its plan and the ledger have it: sums stand once for each region, and once for the whole.

    %h = … reason = "lowered: '@linear' runs in i8 on sm_90, as its policy asks: region 1; priced: all of '@net' on sm_90: 869 us instead of 981 us, …;
                     2 of 3 with a policy are lowered; priced: region 1, lowered ('%h', '%y'): 394 us instead of 475 us, …"
    %y = … reason = "lowered: '@linear' runs in i8 on sm_90, as its policy asks: region 1"

A region of one node has no number: its sums stand with the node.
"""
from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from pipelink_ir.ir.nodes import Node, Pipeline
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.fusion.cost import microseconds
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.precision.plans import UNCALIBRATED, Plan
from pipelink_ir.passes.precision.price import guessed, size_text
from pipelink_ir.passes.precision.profit import MARGIN, Decision, Region

ASKED = f"what changes has to take {round(100 * (1 - MARGIN))} % less time"
SHOWN = 6
"""Names of edges that a summary lists."""


def weighed(p: Pipeline, plans: Mapping[str, Plan], found: Decision, must: Set[str], arch: Arch) -> dict[str, Plan]:
    """The plans of the nodes that were weighed, with what is kept, what is declined, and the sums. `must`: nodes that are lowered whatever it costs."""
    order = [n.results[0].name for n in p.nodes if isinstance(n, Node)]
    ops = {n.results[0].name: n.op for n in p.nodes if isinstance(n, Node)}
    at = {name: k for k, name in enumerate(order)}
    regions = sorted(found.regions, key=lambda r: at[r.names[0]])
    numbers: dict[int, int] = {}
    out: dict[str, Plan] = {}
    for r in regions:
        if len(r.names) > 1:
            numbers[id(r)] = len(numbers) + 1
        for name in r.names:
            sums = f"region {numbers[id(r)]}" if len(r.names) > 1 else r.sums
            plan = plans[name]
            if name in found.kept:
                why = " (force = true)" if plan.policy.force else f" (it has to be: '@{written(ops[name])}' needs it on {arch})" if name in must else ""
                out[name] = replace(plan, sums=f"{sums}{why}")
            else:
                asked = f" ({_asked([plan])})" if len(r.names) == 1 else ""
                out[name] = replace(plan, refused=f"declined: {plan.policy.dtype or plan.policy.weights} does not pay: {sums}{asked}")
    if out and found.whole is not None:
        whole = _whole(found, len(out))
        # Where it is one region, its sums are said there.
        for r in regions:
            whole = whole.replace(r.sums, f"region {numbers[id(r)]}") if id(r) in numbers else whole
        _add(out, min(out, key=lambda name: at[name]), f"all of '@{p.name}' on {arch}{_sizes(p)}{whole}")
    for r in regions:
        if id(r) in numbers:
            _add(out, r.names[0], f"region {numbers[id(r)]}, {_of(r, plans)}: {r.sums}")
    return out


def _add(plans: dict[str, Plan], name: str, text: str) -> None:
    plan = plans[name]
    if plan.refused is not None:
        plans[name] = replace(plan, refused=f"{plan.refused}; priced: {text}")
    else:
        plans[name] = replace(plan, sums=f"{plan.sums}; priced: {text}")


def _of(r: Region, plans: Mapping[str, Plan]) -> str:
    """What became of a region, and of which edges it is."""
    names = [f"'%{name}'" for name in r.names[:SHOWN]] + ([f"{len(r.names) - SHOWN} more"] if len(r.names) > SHOWN else [])
    became = "lowered" if r.kept else f"declined, since {_asked([plans[name] for name in r.names])}"
    return f"{became} ({', '.join(names)})"


def _asked(plans: list[Plan]) -> str:
    unmeasured = any(UNCALIBRATED in plan.ranges.values() for plan in plans)
    return ASKED + (", and its ranges are found at each call since there is no calibration: pipelinkc calibrate makes one" if unmeasured else "")


def _sizes(p: Pipeline) -> str:
    guess = guessed(p)
    return "" if guess is None else f" (sizes that the call decides taken for {guess})"


def _whole(found: Decision, count: int) -> str:
    """The sums of the whole pipeline."""
    assert found.whole is not None
    base, after = found.whole
    if not found.kept:
        return f", as it is: {microseconds(base.seconds)}, {size_text(base.bytes)}; nothing is lowered of {count} with a policy"
    return f": {after.instead_of(base)}; {len(found.kept)} of {count} with a policy are lowered"
