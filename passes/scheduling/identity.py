"""What an operator is, whatever its parts are called and in whatever order they are written: the key under which its tuned schedule is kept.

A definition is known by a digest of its value in which indices are numbered from outside, dimensions by where operands have them, and reads stand for what
they read. So `labels` names definitions in a way that survives renaming: `r0`, `r1`, … are the results, `d0`, `d1`, … all others, by their digests. Settings of
`schedule` have no part in it: they say how, not what.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.typed import Border, Group, Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import deep, walk


@dataclass(frozen=True, slots=True)
class Identity:
    """The digest of an operator, and a name for each of its results and locals that does not depend on what they are called."""

    digest: str
    labels: Mapping[str, str]

    @property
    def tensors(self) -> dict[str, str]:
        """What each label stands for."""
        return {label: tensor for tensor, label in self.labels.items()}


def identity(op: TypedOperator) -> Identity:
    """What an operator is."""
    with deep():
        return _Identifier(op).run()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


@dataclass(slots=True)
class _Identifier:
    op: TypedOperator
    names: dict[str, str] = field(default_factory=dict)
    """Dimensions and scalar attributes by their places."""
    known: dict[str, str] = field(default_factory=dict)
    """The digests of tensors."""

    def run(self) -> Identity:
        op = self.op
        self._number()
        for k, t in enumerate(op.operands):
            self.known[t.name] = _digest("operand", str(k), self._tensor(t))
        for group in op.order:
            self._group(group)
        results = [self.known[r.name] for r in op.results]
        flags = f"{op.empty} {op.exact} {op.fast_math} {[d.name for _, d in op.scalars]} {len(op.symbols)}"
        locals_ = sorted((self.known[t.name], k, t.name) for k, t in enumerate(op.tensors.values()) if t.kind == "local")
        labels = {**{r.name: f"r{k}" for k, r in enumerate(op.results)}, **{name: f"d{k}" for k, (_, _, name) in enumerate(locals_)}}
        return Identity(_digest(flags, *(self.known[t.name] for t in op.operands), *results, *(d for d, _, _ in locals_)), labels)

    def _number(self) -> None:
        """Dimensions in the order in which operands have them."""
        dims = [n.name for t in self.op.operands for pair in t.shape for bound in pair for n in walk(bound) if isinstance(n, Name)]
        for k, name in enumerate(dict.fromkeys([*(d for d in dims if d in self.op.symbols), *self.op.symbols])):
            self.names[name] = f"dim{k}"
        for k, (name, _) in enumerate(self.op.scalars):
            self.names[name] = f"scalar{k}"

    def _group(self, group: Group) -> None:
        """The digests of tensors that are computed together. Those of a recurrence read each other: each round takes in what is one read further away."""
        for n in group.tensors:
            self.known[n] = _digest("self", self._tensor(self.op.tensors[n]), str(group.recurrence))
        for _ in range(1 if group.recurrence is None else len(group.tensors) + 1):
            found = {n: self._defined(self.op.tensors[n], group) for n in group.tensors}
            self.known.update(found)

    def _defined(self, t: Tensor, group: Group) -> str:
        step = "" if group.recurrence is None else f"{group.recurrence.step} {group.recurrence.axis[group.tensors.index(t.name)]}"
        return _digest(t.kind, self._tensor(t), step, *sorted(self._piece(p) for p in t.pieces))

    def _tensor(self, t: Tensor) -> str:
        shape = " ".join(f"{self._text(lo, {})}..{self._text(hi, {})}" for lo, hi in t.shape)
        return f"{t.dtype.name} [{shape}] {' '.join(map(self._border, t.border))}"

    def _border(self, b: Border | None) -> str:
        return "-" if b is None else b.mode + ("" if b.value is None else f"({self._text(b.value, {})})")

    def _piece(self, p: Piece) -> str:
        inner = {a.index: f"i{k}" for k, a in enumerate(p.axes)}
        axes = " ".join(f"{self._bound(a.lo)}..{self._text(a.hi, {})}" for a in p.axes)
        return f"[{axes}] {sorted(p.holes)} {self._text(p.value, inner)}"

    def _bound(self, lo: Expr | None) -> str:
        return "0:i64" if lo is None else self._text(lo, {})

    def _text(self, x: Expr, inner: Mapping[str, str]) -> str:
        """An expression; `inner` are the indices around it."""
        dtype = "" if x.dtype is None else x.dtype.name
        if isinstance(x, IntLit):
            return f"{x.value}:{dtype}"
        if isinstance(x, FloatLit):
            return f"{x.bits}:{dtype}"
        if isinstance(x, Const):
            return f"{x.name}:{dtype}"
        if isinstance(x, Name):
            return inner.get(x.name) or self.names.get(x.name, x.name)
        if isinstance(x, Read):
            return f"%{self.known[x.tensor]}[{self._all(x.indices, inner)}]{' '.join(x.access)}"
        if isinstance(x, Apply):
            return f"{x.fn}{'!' if x.exact else ''}({self._all(x.args, inner)}):{dtype}"
        if isinstance(x, Cast):
            return f"{x.to}{'s' if x.saturate else ''}({self._text(x.arg, inner)})"
        if isinstance(x, Reduce):
            return self._reduce(x, dict(inner))
        assert isinstance(x, Range)
        return f"{self._bound(x.lo) if x.lo is None else self._text(x.lo, inner)}..{self._text(x.hi, inner)}"

    def _reduce(self, x: Reduce, inner: dict[str, str]) -> str:
        ranges, around = [], dict(inner)
        for r in x.ranges:
            ranges.append(self._text(r, inner))
            if isinstance(r, Range):
                inner[r.index] = f"i{len(inner)}"
        where = "" if x.where is None else self._text(x.where, inner)
        rank = "" if x.rank is None else self._text(x.rank, around)
        return f"{x.kind}[{','.join(ranges)}|{where}|{rank}]({self._text(x.body, inner)}):{'' if x.dtype is None else x.dtype.name}"

    def _all(self, xs: Iterable[Expr], inner: Mapping[str, str]) -> str:
        return ",".join(self._text(x, inner) for x in xs)
