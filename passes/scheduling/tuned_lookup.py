"""Which tuned schedules a module gets: entries of files are looked up for each operator and put in where they still mean
something, and what comes of it is told."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from pipelink_ir.ir.nodes import Module, Operator
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.infer.generic import name_dynamic
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.identity import Identity, identity
from pipelink_ir.passes.scheduling.printed import Scheduled, scheduled
from pipelink_ir.passes.scheduling.settle import settled
from pipelink_ir.passes.scheduling.tuned import Entry, NotThere, Written, applied, shapes_by_operator
from pipelink_ir.passes.scheduling.tuned_file import read_tuned
from pipelink_ir.version import __version__


@dataclass(slots=True)
class Tuning:
    """Entries for one module. `told` has what is to be said of operators, `unused` what of whole files."""

    module: Module
    device: str
    arch: str
    entries: Sequence[tuple[str, Entry]]
    """With the file of each, in the order in which they are asked."""
    quiet: frozenset[str] = frozenset()
    """Files that many programs share: what of them belongs to other programs is not told."""
    told: dict[str, str] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)
    shapes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Module, device: str, arch: str, files: Sequence[str], shared: Sequence[str]) -> Tuning | None:
        """None where there are no files."""
        if not files and not shared:
            return None
        entries = [(path, e) for path in (*files, *shared) for e in read_tuned(path)]
        return cls(module, device, arch, entries, frozenset(shared), shapes=shapes_by_operator(module))

    def scheduled(self, op: Operator) -> Scheduled:
        """The operator with its schedule, by the tuner's where there is one."""
        plain = scheduled(op, self.device)
        shapes = self.shapes.get(op.name, ())
        if not shapes:
            return plain
        typed = typed_for(op)
        who = identity(typed)
        same = [(k, path, e) for k, (path, e) in enumerate(self.entries) if e.operator == who.digest]
        self.met.update(k for k, _, _ in same)
        fit = [(path, e) for _, path, e in same if e.arch == self.arch and e.compiler == __version__]
        chosen = [next(((path, e) for path, e in fit if e.shapes == s), None) for s in shapes]
        if not fit:
            self._foreign(op, [(path, e) for _, path, e in same])
            return plain
        found = [c for c in chosen if c is not None]
        if len(found) < len(shapes) or any(e.schedule != found[0][1].schedule for _, e in found):
            why = "it was tuned for other shapes" if len(found) < len(shapes) else "its nodes were tuned to different ones"
            self.told[op.name] = f"declined: a tuned schedule ({_name(fit[0][0])}) is not used: {why}"
            return plain
        return self._with(op, typed, who, *found[0], plain)

    def _with(self, op: Operator, typed: TypedOperator, who: Identity, path: str, e: Entry, plain: Scheduled) -> Scheduled:
        if not e.schedule:
            self.told[op.name] = f"other: the default schedule was the best of those measured on {e.device or e.arch}, {e.default_ms:.4g} ms ({_name(path)})"
            return plain
        try:
            new = tried(op, typed, who, e.schedule, self.device, self.arch)
        except NotThere as fault:
            self.told[op.name] = f"declined: a tuned schedule ({_name(path)}) is not used: {fault}"
            return plain
        if new is None:
            return plain
        self.told[op.name] = (f"other: its schedule is the tuner's, {e.ms:.4g} ms instead of {e.default_ms:.4g} ms by the default one, "
                              f"measured on {e.device or e.arch} ({_name(path)})")
        return new

    def _foreign(self, op: Operator, same: Sequence[tuple[str, Entry]]) -> None:
        """Entries of this operator that are for something else."""
        loud = [(path, e) for path, e in same if path not in self.quiet]
        if loud:
            path, e = next(((path, e) for path, e in loud if e.arch == self.arch), loud[0])
            why = f"it was measured by version {e.compiler}, this is {__version__}" if e.arch == self.arch else f"it is for {e.arch}, not for {self.arch}"
            self.told[op.name] = f"declined: a tuned schedule ({_name(path)}) is not used: {why}"

    def unused(self) -> str | None:
        """What is to be said of entries that belong to no operator here."""
        counts: dict[str, int] = {}
        for k, (path, _) in enumerate(self.entries):
            if k not in self.met and path not in self.quiet:
                counts[path] = counts.get(path, 0) + 1
        parts = [f"{n} tuned schedule{'s' if n > 1 else ''} of {_name(path)} {'belong' if n > 1 else 'belongs'} to no operator here"
                 for path, n in counts.items()]
        return f"declined: {', '.join(parts)}" if parts else None


def typed_for(op: Operator) -> TypedOperator:
    """An operator in the form by which it is known, sizes of `?` named."""
    params, names = name_dynamic(op.params, set())
    return settled(typed_operator(replace(op, params=params) if names else op))


def tried(op: Operator, typed: TypedOperator, who: Identity, schedule: Written, device: str, arch: str) -> Scheduled | None:
    """The operator with a schedule put in and completed; None if all of that stands there already. Raises `NotThere` where some of it cannot be followed."""
    new = applied(op, typed, who, schedule, device)
    if new is op:
        return None
    known: Arch | None = parse_arch(arch) if device == "cuda" else None
    before = len(scheduled(op, device, known).objections)
    out = scheduled(new, device, known)
    if len(out.objections) > before:
        raise NotThere(f"it cannot be followed: {out.objections[-1].why}")
    return out


def _name(path: str) -> str:
    return PurePath(path).name
