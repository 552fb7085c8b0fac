"""The decisions on one operator, written into its `schedule { target = …, … }`: the place of every local, what is computed beside what, and for a GPU the kind
of every kernel. What is written already stays."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelink_ir.ir.nodes import Expr, IntLit, Items, Name, Operator, Read, Reduce, Scoped, Setting
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.infer.generic import name_dynamic
from pipelink_ir.passes.infer.operator import keep_typed, typed_operator
from pipelink_ir.passes.scheduling.asked import asked, with_entries
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import KINDS, KernelPlan, kernels_of, launches_of
from pipelink_ir.passes.scheduling.long_rows import LongRows
from pipelink_ir.passes.scheduling.maps import map_value, scan_value
from pipelink_ir.passes.scheduling.place import plan as cpu_plan
from pipelink_ir.passes.scheduling.rows import LEAST, ShortRows
from pipelink_ir.passes.scheduling.settle import settled
from pipelink_ir.passes.scheduling.shape import SERIAL, Shape, long_reductions
from pipelink_ir.passes.scheduling.wishes import Objection, Wishes, wishes_of

Kernels = tuple[KernelPlan, ...]
_SOME = (Arch("cuda", 75), Arch("cuda", 80), Arch("cuda", 90, "a"))
"""Architectures with the instructions that kinds of kernels depend on."""
_WORDS = frozenset(k.word for k in KINDS)


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
    launches = launches_of(typed, plan, arch, wishes) if target == "cuda" else ()
    kernels = tuple(k for launch in launches for k in launch)
    others = [kernels_of(typed, plan, a) for a in _SOME] if target == "cuda" and arch is None and typed.reduces else []
    _check_loops(typed, kernels, wishes)
    entries: list[Setting | Scoped] = [Setting("derived", Items(()))] if derived is None else []
    for name in (n for g in typed.order for n in g.tensors):
        own = [s for s in (*_settings(typed.tensors[name], typed, plan, kernels, others), *_launch(name, launches)) if wishes.asked.of(name, s.key) is None]
        if own:
            entries.append(Scoped(name, tuple(own)))
    entries = [e for e in entries if not isinstance(e, Scoped) or _written(op, e.tensor)]
    new = with_entries(op, target, entries) if entries else op
    if new is not op:
        # A schedule changes no type.
        keep_typed(new, replace(typed_operator(op), op=new))
    return Scheduled(new, tuple(wishes.objections))


def _check_loops(op: TypedOperator, kernels: Kernels, wishes: Wishes) -> None:
    """Loops that are named exist, and rows that are to be kept are."""
    indices = {a.index for t in op.tensors.values() for p in t.pieces for a in p.axes}
    for name in op.tensors:
        at, keep = wishes.asked.of(name, "at"), wishes.asked.of(name, "keep")
        if at is not None and isinstance(at.value, Name) and at.value.name not in indices:
            wishes.refuse(name, "at", f"no definition has a loop over '{at.value.name}'", f"the loops are {', '.join(sorted(indices))}")
        if keep is not None and keep.value != IntLit(1) and not any(k.kind == "window" for k in kernels):
            wishes.refuse(name, "keep", f"no kernel on the target '{wishes.target}' keeps several rows of a definition here", "leave 'keep' out", declined=True)


def _written(op: Operator, tensor: str) -> bool:
    """Whether a definition can be spoken of: a `let` cannot."""
    assert op.compute is not None
    return any(getattr(d, "tensor", None) == tensor for d in op.compute.body)


def _settings(t: Tensor, op: TypedOperator, plan: Plan, kernels: Kernels, others: Sequence[Kernels]) -> list[Setting]:
    """What was decided of one tensor. Where the architecture decides and is not known, `others` differ, and the kind of its kernels stays open."""
    out: list[Setting] = []
    if t.kind == "local":
        place = plan.place[t.name]
        out.append(Setting("place", Name("shared" if place == "inline" and _shared(t, op, plan, kernels) else place)))
        tile = next((r for r, way in plan.tiles.items() if any(s.tensor == t.name for s in way.stages)), None)
        if tile is not None:
            out[-1:] = [Setting("place", Name("shared")), Setting("at", Read(tile))]
        if place == "row":
            reader = op.tensors[plan.roots[t.name]]
            out.append(Setting("at", Name(reader.pieces[0].axes[len(reader.shape) - 2].index)))
    beside = next((s.tensors[0] for s in plan.steps if not s.recurrence and t.name in s.tensors[1:]), None)
    if beside is not None:
        out.append(Setting("beside", Read(beside)))
    maps = _maps(t, op, kernels)
    if maps is not None and all(_maps(t, op, k) == maps for k in others):
        out.append(Setting("map", maps))
    return out


def _launch(name: str, launches: Sequence[Kernels]) -> list[Setting]:
    """The definition whose launch the kernel of another shares."""
    for launch in launches:
        first = launch[0].jobs[0][0].name if launch[0].jobs else ""
        if any(k.jobs and k.jobs[0][0].name == name for k in launch[1:]) and first != name:
            return [Setting("launch", Read(first))]
    return []


def _maps(t: Tensor, op: TypedOperator, kernels: Kernels) -> Expr | Items | None:
    """The kinds of the kernels of a tensor: one word if all are alike."""
    found: list[Expr] = []
    for k in kernels:
        if k.kind == "scan" and k.name == t.name:
            group = next(g for g in op.order if t.name in g.tensors)
            return scan_value(group, t.pieces[-1])
        word, way = ("block", Shape("block", k.way.outer)) if isinstance(k.way, ShortRows | LongRows) else (k.kind, k.way)
        if word in _WORDS and not (k.kind == "mma" and k.span is not None):
            # What computes more rows than are few goes without saying.
            found += [map_value(word, way, piece) for tensor, piece in k.jobs if tensor.name == t.name]
    if not found:
        return None
    return found[0] if all(v == found[0] for v in found) else Items(tuple(found))


def _shared(t: Tensor, op: TypedOperator, plan: Plan, kernels: Kernels) -> bool:
    """Whether the threads of a block compute a local together, once for all of them: its long reductions look at the axes alone that have blocks."""
    own = {id(x) for p in t.pieces for x in walk(p.value) if isinstance(x, Reduce)}
    if not own:
        return False
    found = False
    for k in kernels:
        for _, piece in k.jobs:
            axes = k.way.outer if isinstance(k.way, ShortRows | LongRows) else k.way.axes if isinstance(k.way, Shape) and k.way.kind == "block" else None
            for r in long_reductions(op, plan.local, piece, k.chosen, LEAST - 1 if isinstance(k.way, ShortRows) else SERIAL):
                if id(r.reduce) in own:
                    if axes is None or not r.deps <= set(axes):
                        return False
                    found = True
    return found


