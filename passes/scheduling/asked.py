"""`schedule { … }` of an operator, as the one target reads it that a program is compiled for.

    schedule { %row { place = row, at = h }, %sum { place = buffer } }                        for every target
    schedule { target = cuda, %y { map = block(n) }, %z { beside = %y } }      for that target alone

A section that names its target speaks before one that does not. Passes write sections of the first kind, users both.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.nodes import Items, Name, Operator, Read, Scoped, Section, Setting

TARGETS = ("cpu", "cuda")
"""Targets that have schedules."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is written: settings by definition and key, and if the operator was derived, or must not be, the locals that were made to be stored."""

    tensors: Mapping[str, Mapping[str, Setting]]
    derived: tuple[str, ...] | None

    def of(self, tensor: str, key: str) -> Setting | None:
        return self.tensors.get(tensor, {}).get(key)

    def word(self, tensor: str, key: str) -> str | None:
        found = self.of(tensor, key)
        return contracts.word(found.value) if found is not None else None


def target_of(s: Section) -> str | None:
    """The target that a section names."""
    return next((contracts.word(e.value) for e in s.entries if isinstance(e, Setting) and e.key == "target"), None)


def section_of(op: Operator, setting: Setting) -> str | None:
    """The target named by the section that a setting stands in."""
    for s in contracts.sections(op, "schedule"):
        if any(e is setting or (isinstance(e, Scoped) and any(inner is setting for inner in e.settings)) for e in s.entries):
            return target_of(s)
    return None


def asked(op: Operator, target: str) -> Asked:
    """What an operator's schedule says to a target."""
    found = list(contracts.sections(op, "schedule"))
    tensors: dict[str, dict[str, Setting]] = {}
    derived = None
    for s in [*(s for s in found if target_of(s) == target), *(s for s in found if target_of(s) is None)]:
        for e in s.entries:
            if isinstance(e, Scoped):
                for inner in e.settings:
                    tensors.setdefault(e.tensor, {}).setdefault(inner.key, inner)
            elif e.key == "derived" and derived is None:
                derived = tuple(i.tensor for i in (e.value.items if isinstance(e.value, Items) else (e.value,)) if isinstance(i, Read))
    return Asked(tensors, derived)


def with_derived(op: Operator, target: str, stored: Iterable[str]) -> Operator:
    """The operator marked as derived, with those new locals that were made to lie in memory."""
    return with_entries(op, target, [Setting("derived", Items(tuple(Read(n) for n in sorted(stored))))])


def with_entries(op: Operator, target: str, entries: Iterable[Setting | Scoped]) -> Operator:
    """The operator with more settings in the section of a target."""
    own = next((s for s in contracts.sections(op, "schedule") if target_of(s) == target), None)
    if own is None:
        return replace(op, sections=(*op.sections, Section("schedule", (Setting("target", Name(target)), *entries))))
    return replace(op, sections=tuple(replace(s, entries=_merged(s.entries, entries)) if s is own else s for s in op.sections))


def _merged(old: tuple[Setting | Scoped, ...], new: Iterable[Setting | Scoped]) -> tuple[Setting | Scoped, ...]:
    """The old entries with new ones behind those of the same definition."""
    out = list(old)
    for e in new:
        at = next((k for k, o in enumerate(out) if isinstance(e, Scoped) and isinstance(o, Scoped) and o.tensor == e.tensor), None)
        if at is None:
            out.append(e)
        else:
            before = out[at]
            assert isinstance(before, Scoped)
            assert isinstance(e, Scoped)
            out[at] = replace(before, settings=(*before.settings, *e.settings))
    return tuple(out)
