"""What occurred in the programs that were generated: node kinds, functions, reductions, borders, dtypes, casts, and how comparisons went."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pipelink_ir.ir.contracts import BORDERS
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import FUNCTIONS, REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Module, Operand, Read, Reduce, Scoped, Setting
from pipelink_ir.passes.infer.operator import typed_operator

ALL_DTYPES = tuple(DTYPES)
ALL_FUNCTIONS = tuple(n for n in FUNCTIONS if n != "fma")
ALL_REDUCTIONS = tuple(REDUCTIONS)
ALL_BORDERS = tuple(b for b in BORDERS if b != "none")
ALL_CASTS = (*DTYPES, *(f"sat_{d.name}" for d in DTYPES.values() if d.is_int))


class Census:
    """Counts by group and name."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def add(self, group: str, name: str, n: int = 1) -> None:
        self.counts.setdefault(group, Counter())[name] += n

    def program(self, module: Module) -> None:
        """Everything in a parsed module."""
        self.add("outcome", "programs")
        for node in _nodes(module):
            self.add("node", type(node).__name__)
            if isinstance(node, Apply):
                self.add("function" if node.fn in FUNCTIONS else "setting", node.fn)
            elif isinstance(node, Reduce):
                self.add("reduction", node.kind)
                self.add("reduction of", f"{len(node.ranges)} ranges{' where' if node.where is not None else ''}")
            elif isinstance(node, Cast):
                self.add("cast", ("sat_" if node.saturate else "") + node.to)
            elif isinstance(node, Operand) and node.type.dtype in DTYPES:
                self.add("dtype", node.type.dtype)

    def typed(self, module: Module) -> None:
        """What inference found: borders, access of reads, recurrences."""
        for op in module.operators:
            if op.compute is None:
                continue
            typed = typed_operator(op)
            for t in typed.tensors.values():
                for border in t.border:
                    if border is not None:
                        self.add("border", border.mode)
                        self.add("border of", t.kind)
            for t in typed.tensors.values():
                for e in (p.value for p in t.pieces):
                    for node in _nodes(e):
                        if isinstance(node, Read):
                            for word in node.access:
                                self.add("access", word)
            for group in typed.order:
                if group.recurrence is not None:
                    self.add("recurrence", f"{'upwards' if group.recurrence.step > 0 else 'downwards'}, {len(group.tensors)} tensors")

    def missing(self, group: str, names: Iterable[str]) -> list[str]:
        """Those that never occurred."""
        seen = self.counts.get(group, Counter())
        return [f"{group} {n}" for n in names if not seen[n]]

    def lines(self) -> list[str]:
        """One line a group, the most frequent first."""
        return [f"{group}: " + ", ".join(f"{n} {c}" for n, c in counts.most_common()) for group, counts in sorted(self.counts.items())]


def _nodes(node: Any) -> Iterator[Any]:
    """All nodes below and including one, without the settings' keys and spans."""
    stack = [node]
    while stack:
        n = stack.pop()
        if isinstance(n, tuple):
            stack += n
        elif is_dataclass(n) and type(n).__module__ == "pipelink_ir.ir.nodes":
            yield n
            stack += [getattr(n, f.name) for f in fields(n)]


__all__ = ["ALL_BORDERS", "ALL_CASTS", "ALL_DTYPES", "ALL_FUNCTIONS", "ALL_REDUCTIONS", "Census", "Scoped", "Setting"]
