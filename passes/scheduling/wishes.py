"""What is written in an operator's schedule, as the planner asks for it while it decides; what cannot be done is noted, and the heuristics decide there.

The pass `schedule` makes errors of what is `refused` and notes of what is `declined`; a backend that meets either does as if it were not written.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelink_ir.ir import contracts
from pipelink_ir.ir.nodes import Items, Operator, Read, Setting, Value
from pipelink_ir.ir.typed import Tensor
from pipelink_ir.passes.scheduling.asked import Asked, asked

PLACES: dict[str, dict[str, str | None]] = {
    "cpu": {"inline": "inline", "register": "inline", "row": "row", "buffer": "buffer", "shared": None},
    "cuda": {"inline": "inline", "register": "inline", "shared": "inline", "buffer": "buffer", "row": None},
}
"""Places by their words, and which of the planner's they are for a target; None: there is no such place there."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a setting is not followed. `declined`: the definition could be so, but not on this target."""

    setting: Setting
    tensor: str
    why: str
    help: str
    declined: bool = False


@dataclass(slots=True)
class Wishes:
    """The settings of one operator for one target, and the objections to them."""

    asked: Asked
    target: str
    objections: list[Objection] = field(default_factory=list)

    def refuse(self, tensor: str, key: str, why: str, help: str, declined: bool = False) -> None:
        """Note that a setting cannot be followed, once."""
        setting = self.asked.of(tensor, key)
        if setting is not None and all(o.setting is not setting for o in self.objections):
            self.objections.append(Objection(setting, tensor, why, help, declined))

    def note(self, setting: Setting, tensor: str, why: str, help: str) -> None:
        """Note that a setting which does not stand in a schedule is not followed, once."""
        if all(o.setting is not setting for o in self.objections):
            self.objections.append(Objection(setting, tensor, why, help, declined=True))

    def place(self, tensor: str) -> str | None:
        """The place that is written for a local, if the target has it."""
        word = self.asked.word(tensor, "place")
        if word is None or word not in PLACES[self.target]:
            return None
        if word == "shared" and self.target == "cuda" and self.asked.of(tensor, "at") is not None:
            return "tile"
        found = PLACES[self.target][word]
        if found is None:
            self.refuse(tensor, "place", f"there is no place '{word}' on the target '{self.target}'",
                        f"its places are {', '.join(w for w, p in PLACES[self.target].items() if p)}", declined=True)
        return found

    def stored(self, t: Tensor, ring: bool) -> None:
        """A tensor that lies in memory whatever is written."""
        if self.asked.word(t.name, "place") in (None, "buffer"):
            return
        what = "an operand" if t.kind == "operand" else "a result" if t.kind == "result" else "a recurrence" if ring else "made to be stored"
        self.refuse(t.name, "place", f"'%{t.name}' is {what}, which lies in memory as a whole", "write 'place = buffer', or leave the line out")

    def loop(self, tensor: str, root: Tensor, axis: int) -> None:
        """A row is kept at a loop over an axis of the definition that reads it."""
        found = self.asked.of(tensor, "at")
        index = root.pieces[0].axes[axis].index
        if found is None or contracts.word(found.value) == index or (isinstance(found.value, Read) and found.value.tensor == root.name):
            return
        self.refuse(tensor, "at", f"a row of '%{tensor}' is kept at the loop over '{index}' of '%{root.name}', not elsewhere", f"write 'at = {index}'")

    def step(self, tensor: str, where: Mapping[str, int], fits: Sequence[int], new: int, likely: Sequence[int]) -> int:
        """The step of a tensor: one of those that fit, if nothing is written one of those where it pays, or a new one."""
        found = self.asked.of(tensor, "beside")
        if found is None:
            return likely[0] if likely else new
        if contracts.word(found.value) == "none":
            return new
        other = found.value.tensor if isinstance(found.value, Read) else ""
        if where.get(other) in fits:
            return where[other]
        why = f"'%{tensor}' cannot be computed beside '%{other}'"
        self.refuse(tensor, "beside", why, "they need the same box, one piece each, and may read each other only at the place being computed; "
                    "of two definitions the later one says so")
        return likely[0] if likely else new

    def launch(self, tensor: str, where: Mapping[str, int], likely: Sequence[int]) -> int | None:
        """The launch that one kernel of a definition shares: of those that it may share, by the definition that they begin with, the one that is written; one
        of those where it pays if nothing is written, or this kernel cannot; or none."""
        found = self.asked.of(tensor, "launch")
        if found is not None and contracts.word(found.value) == "none":
            return None
        if found is not None and isinstance(found.value, Read) and found.value.tensor in where:
            return where[found.value.tensor]
        return likely[0] if likely else None

    def launched(self, shared: Mapping[str, set[str]]) -> None:
        """Notes which definitions share no launch with the one that is written; `shared` says what each shares launches with."""
        for tensor in self.asked.tensors:
            found = self.asked.of(tensor, "launch")
            if found is not None and isinstance(found.value, Read) and found.value.tensor not in shared.get(tensor, ()):
                self.refuse(tensor, "launch", f"'%{tensor}' cannot share the launch of '%{found.value.tensor}'",
                            "both need kernels of the kind 'grid' with as many threads, and neither may wait for the other; of two definitions the later one "
                            "says so, and the earlier one begins the launch")

    def maps(self, tensor: str, jobs: int) -> list[Value | None]:
        """How each kernel of a tensor is to be laid out."""
        found = self.asked.of(tensor, "map")
        if found is None:
            return [None] * jobs
        if not isinstance(found.value, Items):
            return [found.value] * jobs
        if len(found.value.items) != jobs:
            self.refuse(tensor, "map", f"'%{tensor}' has {jobs} kernel{'s' if jobs != 1 else ''}, not {len(found.value.items)}",
                        "write one kind for all of them")
            return [None] * jobs
        return list(found.value.items)


def wishes_of(op: Operator, target: str) -> Wishes:
    """What is written in an operator for a target."""
    return Wishes(asked(op, target), target)


def index_text(name: str) -> bool:
    """Whether an index has a name that can be written."""
    return all(part.isidentifier() or part.isdigit() for part in name.split(".")) and not name[:1].isdigit()


