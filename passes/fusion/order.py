"""Which groups of nodes may become one without a cycle: an order of groups that is kept up to date while they are merged.

Each group has a label, and every edge leads from a smaller label to a larger one. Two groups may become one if no way leads from the earlier to the later
through a third; only groups between the two labels can lie on such a way, so the search looks at no others, and it gives up (and says no) beyond a bound.
The merged group takes the place of the later one, and what the search found to come behind the earlier one moves behind both.
"""
from __future__ import annotations

from collections.abc import Iterable

WINDOW = 128
"""Most groups that are looked at for one question."""
_GAP = 1 << 64


class Order:
    """Groups by number with their edges. All edges must be added in an order in which their ends were added."""

    def __init__(self) -> None:
        self.before: dict[int, set[int]] = {}
        self.behind: dict[int, set[int]] = {}
        self.label: dict[int, int] = {}
        self._next: dict[int, int | None] = {}
        self._previous: dict[int, int | None] = {}
        self._last: int | None = None

    def add(self, group: int, before: Iterable[int]) -> None:
        """A group behind all others; `before` are the groups that it needs."""
        self.before[group] = set(before)
        self.behind[group] = set()
        for b in self.before[group]:
            self.behind[b].add(group)
        self.label[group] = self.label[self._last] + _GAP if self._last is not None else 0
        self._link(group, self._last)
        self._last = group

    def remove(self, group: int) -> None:
        """Take a group away, with its edges."""
        for b in self.before.pop(group):
            self.behind[b].discard(group)
        for b in self.behind.pop(group):
            self.before[b].discard(group)
        self._unlink(group)
        del self.label[group]

    def need(self, group: int, before: int) -> None:
        """One more edge, which must not lead backwards."""
        assert self.label[before] < self.label[group]
        self.before[group].add(before)
        self.behind[before].add(group)

    def sequence(self) -> list[int]:
        """All groups, each behind those that it needs."""
        return sorted(self.label, key=lambda g: self.label[g])

    def between(self, first: int, second: int) -> list[int] | None:
        """The groups that come behind the earlier of two and are labelled before the later, in order; None if a way leads through them from the one to the
        other, or if there are too many to tell."""
        a, b = (first, second) if self.label[first] < self.label[second] else (second, first)
        limit = self.label[b]
        stack = [s for s in self.behind[a] if s != b and self.label[s] < limit]
        found = set(stack)
        while stack:
            if len(found) > WINDOW:
                return None
            for s in self.behind[stack.pop()]:
                if s == b:
                    return None
                if s not in found and self.label[s] < limit:
                    found.add(s)
                    stack.append(s)
        return sorted(found, key=lambda g: self.label[g])

    def merge(self, first: int, second: int, between: list[int]) -> int:
        """Make two groups one, which keeps the number of the later; `between` is what was found between them."""
        a, b = (first, second) if self.label[first] < self.label[second] else (second, first)
        for g in between:
            self._unlink(g)
        self._unlink(a)
        self._insert(between, b)
        for g in self.before.pop(a):
            self.behind[g].discard(a)
            if g != b:
                self.behind[g].add(b)
                self.before[b].add(g)
        for g in self.behind.pop(a):
            self.before[g].discard(a)
            if g != b:
                self.before[g].add(b)
                self.behind[b].add(g)
        del self.label[a]
        return b

    # ---------------------------------------------------------------------------------------------------------------------- labels

    def _insert(self, groups: list[int], behind: int) -> None:
        """Groups, in their order, right behind one."""
        after = self._next[behind]
        gap = self.label[after] - self.label[behind] if after is not None else _GAP * (len(groups) + 1)
        step = gap // (len(groups) + 1)
        if groups and step == 0:
            self._spread()
            self._insert(groups, behind)
            return
        at = behind
        for g in groups:
            self.label[g] = self.label[at] + step
            self._link(g, at)
            at = g

    def _spread(self) -> None:
        """New labels with room between them."""
        at = self._last
        order: list[int] = []
        while at is not None:
            order.append(at)
            at = self._previous[at]
        for k, g in enumerate(reversed(order)):
            self.label[g] = k * _GAP

    def _link(self, group: int, behind: int | None) -> None:
        after = self._next[behind] if behind is not None else None
        self._previous[group], self._next[group] = behind, after
        if behind is not None:
            self._next[behind] = group
        if after is not None:
            self._previous[after] = group
        if behind == self._last:
            self._last = group

    def _unlink(self, group: int) -> None:
        before, after = self._previous.pop(group), self._next.pop(group)
        if before is not None:
            self._next[before] = after
        if after is not None:
            self._previous[after] = before
        if self._last == group:
            self._last = before
