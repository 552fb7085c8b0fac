"""The decisions on one operator, written into its `schedule { target = …, … }`: the place of every local, what is computed beside what, and for a GPU the kind
of every kernel. What is written already stays."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipelink_ir.ir.nodes import Expr, Items, Name, Operator, Read, Scoped, Setting
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.infer.generic import name_dynamic
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.asked import asked, with_entries
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import KernelPlan, kernels_of
from pipelink_ir.passes.scheduling.maps import map_value, scan_value
from pipelink_ir.passes.scheduling.place import plan as cpu_plan
from pipelink_ir.passes.scheduling.settle import settled
from pipelink_ir.passes.scheduling.shape import Shape, long_reductions
from pipelink_ir.passes.scheduling.wishes import Objection, wishes_of


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An operator with its schedule, and what of the one that was written is not followed."""

    op: Operator
    objections: tuple[Objection, ...]


def scheduled(op: Operator, target: str, arch: Arch | None = None) -> Scheduled:
    """The operator with every decision written down; itself if all are."""
    params, names = name_dynamic(op.params, set())
    typed = settled(typed_operator(replace(op, params=params) if names else op))
    derived = asked(op, target).derived
    wishes = wishes_of(op, target)
    stored = frozenset(derived or ())
    plan = gpu_plan(typed, stored, wishes) if target == "cuda" else cpu_plan(typed, stored, wishes)
    kernels = kernels_of(typed, plan, arch, wishes) if target == "cuda" else ()
    entries: list[Setting | Scoped] = [Setting("derived", Items(()))] if derived is None else []
    for name in (n for g in typed.order for n in g.tensors):
        own = [s for s in _settings(typed.tensors[name], typed, plan, kernels, arch) if wishes.asked.of(name, s.key) is None]
        if own:
            entries.append(Scoped(name, tuple(own)))
    entries = [e for e in entries if not isinstance(e, Scoped) or _written(op, e.tensor)]
    return Scheduled(with_entries(op, target, entries) if entries else op, tuple(wishes.objections))


def _written(op: Operator, tensor: str) -> bool:
    """Whether a definition can be spoken of: a `let` cannot."""
    assert op.compute is not None
    return any(getattr(d, "tensor", None) == tensor for d in op.compute.body)


def _settings(t: Tensor, op: TypedOperator, plan: Plan, kernels: Iterable[KernelPlan], arch: Arch | None) -> list[Setting]:
    """What was decided of one tensor."""
    out: list[Setting] = []
    if t.kind == "local":
        place = plan.place[t.name]
        out.append(Setting("place", Name("shared" if place == "inline" and _shared(t, op, plan, kernels) else place)))
        if place == "row":
            root = op.tensors[plan.roots[t.name]]
            out.append(Setting("at", Name(root.pieces[0].axes[len(root.shape) - 2].index)))
    beside = next((s.tensors[0] for s in plan.steps if not s.recurrence and t.name in s.tensors[1:]), None)
    if beside is not None:
        out.append(Setting("beside", Read(beside)))
    maps = _maps(t, op, kernels, arch)
    if maps is not None:
        out.append(Setting("map", maps))
    return out


def _maps(t: Tensor, op: TypedOperator, kernels: Iterable[KernelPlan], arch: Arch | None) -> Expr | Items | None:
    """The kinds of the kernels of a tensor: one word if all are alike. Nothing where the architecture, which is not known, decides."""
    found: list[Expr] = []
    for k in kernels:
        if k.kind == "scan" and k.name == t.name:
            group = next(g for g in op.order if t.name in g.tensors)
            return scan_value(group, t.pieces[-1])
        if k.name.endswith(".otherwise") or ".turned." in k.name:
            continue
        for tensor, piece in k.jobs:
            if tensor.name == t.name:
                if arch is None and k.kind == "product":
                    return None
                found.append(map_value(k.kind, k.way, piece))
    if not found:
        return None
    return found[0] if all(v == found[0] for v in found) else Items(tuple(found))


def _shared(t: Tensor, op: TypedOperator, plan: Plan, kernels: Iterable[KernelPlan]) -> bool:
    """Whether the threads of a block compute a local together, once for all of them: its long reductions look at the axes alone that have blocks."""
    own = {id(x) for p in t.pieces for x in walk(p.value)}
    found = False
    for k in kernels:
        for _, piece in k.jobs:
            for r in long_reductions(op, plan.local, piece, k.chosen):
                if id(r.reduce) in own:
                    if not (isinstance(k.way, Shape) and k.way.kind == "block" and r.deps <= set(k.way.axes)):
                        return False
                    found = True
    return found


