"""Contracts along one edge: what the producer promises against what the consumer asks for.

The primary place is the node that consumes the edge; notes name the node that makes it and the lines of both contracts. A key that is not written promises
nothing and asks for nothing.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import About, Note, Report
from pipelink_ir.ir.nodes import Device, Items, Operator, Setting
from pipelink_ir.ir.source import Span
from pipelink_ir.passes.contracts.ranges import UNKNOWN, Interval
from pipelink_ir.passes.contracts.values import integer, number
from pipelink_ir.passes.infer.text import written

CONTIGUITY = {"any": 0, "rows": 1, "dense": 2}


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one edge."""

    name: str
    made: Span
    maker: Operator | None
    """None for an input of the pipeline."""
    promises: dict[str, Setting] = field(default_factory=dict)
    """The producer's settings that speak of this result alone."""
    range: Interval = UNKNOWN
    device: Device | None = None
    entered: tuple[tuple[Span, str], ...] = ()
    """Where it was handed into the graphs that it is seen in now, outermost first, and what those are called."""


def promises_of(op: Operator, result: str) -> dict[str, Setting]:
    """The settings of memory and semantic that are scoped to one result."""
    out: dict[str, Setting] = {}
    for section in op.sections:
        if section.name in ("memory", "semantic"):
            for entry in section.entries:
                if getattr(entry, "tensor", None) == result:
                    out |= {s.key: s for s in entry.settings}  # type: ignore[union-attr]
    return out


def declared_range(s: Setting | None) -> Interval | None:
    """`range = [lo, hi]` as an interval whose ends are attained."""
    if s is None or not isinstance(s.value, Items) or len(s.value.items) != 2:
        return None
    lo, hi = map(number, s.value.items)
    return None if lo is None or hi is None else Interval(lo, hi, True, True)


@dataclass(slots=True)
class EdgeCheck:
    """The checks of one operand of one node."""

    op: Operator
    operand: str
    fact: Fact
    where: Span
    device: Device | None
    report: Report

    def run(self) -> None:
        for key in (self.align, self.contiguity, self.cross_device, self.range, self.color, self.finite):
            key()

    @property
    def name(self) -> str:
        """The operator and the operand, as messages name them."""
        return f"'@{written(self.op.name)}'"

    @property
    def as_operand(self) -> str:
        return f"as '%{self.operand.partition('.')[0]}'"

    def _asked(self, section: str, key: str) -> Setting | None:
        found = contracts.setting(self.op, section, key, self.operand)
        return found.setting if found is not None else None

    def _error(self, code: str, asked: Setting, got: str, expected: str, help: str, severity: str = "error") -> None:
        """`got` and `expected` are the two halves of the message. The primary place is the node that the edge, where it was made, leads to: inside a graph
        that it was handed into, the node that asks is a note."""
        fact, where = self.fact, self.where
        promise = fact.promises.get(asked.key)
        notes = [Note(f"'%{fact.name}' is made here" + (f", by '@{written(fact.maker.name)}'" if fact.maker is not None else ""), fact.made)]
        if fact.entered:
            where, graph = fact.entered[0][0], fact.entered[-1][1]
            notes.append(Note(f"inside '@{written(graph)}' it goes on here", self.where))
        notes.append(Note(f"{self.name} asks for it here", asked.span))
        if promise is not None:
            notes.append(Note("what is promised", promise.span))
        message = f"{got}, but {expected}"
        about = About(code, written(self.op.name), fact.name, expected, got)
        (self.report.error if severity == "error" else self.report.warning)(code, where, message, notes, help, about)

    def align(self) -> None:
        asked, promise = self._asked("memory", "align"), self.fact.promises.get("align")
        if asked is None or promise is None:
            return
        need, have = integer(asked.value), integer(promise.value)
        if need is not None and have is not None and have < need:
            self._error("align", asked, f"'%{self.fact.name}' lies on {have} bytes", f"{self.name} asks for {need} {self.as_operand}",
                        f"promise more ('%y {{ align = {need} }}'), ask for less ('align = {have}'), or insert '%t = @std.copy(%{self.fact.name})'")

    def contiguity(self) -> None:
        asked, promise = self._asked("memory", "contiguity"), self.fact.promises.get("contiguity")
        if asked is None or promise is None:
            return
        need, have = contracts.word(asked.value) or "any", contracts.word(promise.value) or "dense"
        if CONTIGUITY.get(have, 2) < CONTIGUITY.get(need, 0):
            self._error("contiguity", asked, f"'%{self.fact.name}' may be '{have}'", f"{self.name} asks for '{need}' {self.as_operand}",
                        f"insert '%t = @std.copy(%{self.fact.name})', or promise 'contiguity = {need}'")

    def cross_device(self) -> None:
        asked = self._asked("memory", "cross_device")
        if asked is None or contracts.word(asked.value) != "false" or self.fact.maker is None:
            return
        a, b = self.fact.device, self.device
        if a is not None and b is not None and (a.kind, a.index, a.name) != (b.kind, b.index, b.name):
            self._error("cross_device", asked, f"'%{self.fact.name}' is made on {device_name(a)}",
                        f"{self.name} runs on {device_name(b)} and takes no operand from another device",
                        f"place both on one device, or allow it: '%{self.operand.partition('.')[0]} {{ cross_device = true }}'")

    def range(self) -> None:
        asked = self._asked("semantic", "range")
        want = declared_range(asked)
        if asked is None or want is None:
            return
        inferred, declared = self.fact.range, declared_range(self.fact.promises.get("range"))
        have = declared if declared is not None else inferred
        expected = f"{self.name} asks for {want} {self.as_operand}"
        if not have.meets(want):
            if not inferred.meets(want) and have.misses(want):
                self._error("range", asked, f"'%{self.fact.name}' lies in {have}", expected, _rescale(self.fact.name, have, want))
            return
        width, asked_width = have.hi - have.lo, want.hi - want.lo
        if have.lo_hit and have.hi_hit and 0 < width and width * 100 <= asked_width < float("inf"):
            self._error("range", asked, f"'%{self.fact.name}' lies in {have}", f"{expected}, a range that is far wider", _rescale(self.fact.name, have, want),
                        "warning")

    def color(self) -> None:
        asked, promise = self._asked("semantic", "color"), self.fact.promises.get("color")
        if asked is None or promise is None:
            return
        need, have = contracts.describe(asked.value), contracts.describe(promise.value)
        if need != have:
            convert = {("srgb", "linear"): "decode it first, as '@srgb_to_linear' of std.image does",
                       ("linear", "srgb"): "encode it first, as '@linear_to_srgb' of std.image does"}
            help = convert.get((have, need), f"convert '%{self.fact.name}' from {have} to {need} first")
            if any(contracts.describe(s.value) == have for r in self.op.results if (s := promises_of(self.op, r.name).get("color")) is not None):
                help = f"leave this node out: '%{self.fact.name}' is {have} already"
            self._error("color", asked, f"'%{self.fact.name}' is {have}", f"{self.name} asks for {need} {self.as_operand}", help)

    def finite(self) -> None:
        asked, promise = self._asked("semantic", "finite"), self.fact.promises.get("finite")
        if asked is None or promise is None:
            return
        if contracts.word(asked.value) == "true" and contracts.word(promise.value) == "false":
            self._error("finite", asked, f"'%{self.fact.name}' may hold NaN or infinities", f"{self.name} asks for finite values {self.as_operand}",
                        "guard the producer ('select(isnan(x) or isinf(x), 0, x)') and promise 'finite = true'")


def _rescale(name: str, have: Interval, want: Interval) -> str:
    if have.lo == want.lo == 0 and math.isfinite(have.hi) and math.isfinite(want.hi) and have.hi > 0 < want.hi:
        return f"scale '%{name}' by {want.hi / have.hi:.6g} first, or ask for {have}"
    return f"clamp or scale '%{name}' to {want} first, or ask for {have}"


def device_name(d: Device) -> str:
    """`cuda:1`, `cpu`, `@t4`."""
    return f"@{d.name}" if d.kind == "target" else f"cuda:{d.index}" if d.kind == "cuda" else d.kind
