"""Schedules worth trying for an operator: each changes a setting or two of the one that the heuristics choose, and nothing that the program says itself.

What is legal is not known here: a candidate is completed by the pass `schedule`, and dropped where that objects or comes to the schedule that is there already.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelink_ir.ir.nodes import Apply, IntLit, Name, Operator, Scoped, Setting
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.scheduling.asked import asked
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.identity import Identity
from pipelink_ir.passes.scheduling.kernels import KINDS, KernelPlan, Site, kernels_of
from pipelink_ir.passes.scheduling.tiles import Tiled
from pipelink_ir.passes.scheduling.tuned import written

THREADS = (64, 128, 512)
VECTORS = (1, 2, 4)
FLIGHTS = (1, 2, 4)
MOST = 40
"""Candidates of one operator in the first round."""
PLACES = {"cpu": ("inline", "row", "buffer"), "cuda": ("inline", "buffer")}

Schedule = dict[str, dict[str, str]]
"""Settings by the label of the definition, as an entry of a file has them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule to try. `what` says it to people, with the operator's own names."""

    what: str
    schedule: Schedule


def candidates(op: Operator, typed: TypedOperator, who: Identity, device: str, arch: Arch | None) -> list[Candidate]:
    """The first round: one change each."""
    have = asked(op, device)
    out: dict[str, Candidate] = {}
    for tensor, settings in (*_kernels(typed, device, arch), *_places(typed, device), *_apart(typed, device)):
        own = {k: v for k, v in settings.items() if have.of(tensor, k) is None}
        if len(own) == len(settings):
            values = tuple(Setting(k, v) for k, v in own.items())
            text = written(typed, who, [Scoped(tensor, values)])
            said = f"%{tensor}: {', '.join(f'{k} = {v}' for k, v in text[who.labels[tensor]].items())}"
            out.setdefault(said, Candidate(said, text))
    return list(out.values())[:MOST]


def joined(a: Candidate, b: Candidate) -> Candidate | None:
    """Both changes in one; None where they say different things of one setting."""
    out: Schedule = {label: dict(settings) for label, settings in a.schedule.items()}
    for label, settings in b.schedule.items():
        mine = out.setdefault(label, {})
        if any(mine.get(k, v) != v for k, v in settings.items()):
            return None
        mine.update(settings)
    return None if out == a.schedule else Candidate(f"{a.what}; {b.what}", out)


Change = tuple[str, Mapping[str, IntLit | Name | Apply]]


def _kernels(typed: TypedOperator, device: str, arch: Arch | None) -> Iterator[Change]:
    """Other kinds of kernels, and other numbers of those that are there."""
    if device != "cuda":
        return
    stored = frozenset(asked(typed.op, device).derived or ())
    plan = gpu_plan(typed, stored)
    kernels = kernels_of(typed, plan, arch)
    seen: set[str] = set()
    for k in kernels:
        if not k.jobs or k.jobs[0][0].name in seen or k.kind == "scan":
            continue
        t, piece = k.jobs[0]
        seen.add(t.name)
        yield from _numbers(t.name, k)
        if len(t.pieces) == 1:
            site = Site(typed, plan.local, t, piece, k.chosen, arch, plan.tiles.get(t.name))
            for kind in KINDS:
                if kind.word not in (k.kind, "tile") and kind.find(site) is not None:
                    yield t.name, {"map": Name(kind.word)}


def _numbers(tensor: str, k: KernelPlan) -> Iterator[Change]:
    if k.kind in ("grid", "window"):
        yield from ((tensor, {"threads": IntLit(n)}) for n in THREADS)
    if k.kind == "grid":
        yield from ((tensor, {"vector": IntLit(n)}) for n in VECTORS)
        yield from ((tensor, {"flight": IntLit(n)}) for n in FLIGHTS)
    if isinstance(k.way, Tiled):
        rows, columns = k.way.tile
        for r, c in ((rows * 2, columns), (rows // 2, columns), (rows, columns * 2), (rows, columns // 2)):
            if r and c:
                yield tensor, {"map": Apply("tile", (IntLit(r), IntLit(c)))}


def _places(typed: TypedOperator, device: str) -> Iterator[Change]:
    """Each local elsewhere."""
    for t in typed.tensors.values():
        if t.kind == "local" and t.shape:
            yield from ((t.name, {"place": Name(word)}) for word in PLACES[device])


def _apart(typed: TypedOperator, device: str) -> Iterator[Change]:
    """Each result in a kernel of its own."""
    yield from ((t.name, {"beside": Name("none")}) for t in typed.results[1:])
