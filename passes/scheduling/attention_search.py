"""Which definitions are attention: sums of values weighted by a softmax of products, whatever the definitions are called and however they are cut.

    %s[i, j] = what is made of sum[d](%q[i, d] * %k[j, d])             scores: scaled, with biases, rounded as edges are
    %m[i]    = max[j where …](%s[i, j])
    %p[i, j] = exp(%s[i, j] - %m[i])
    %z[i]    = sum[j where …](%p[i, j])
    %o[i, c] = what is made of sum[j where …](%p[i, j] * %v[j, c]), %z[i] and %m[i]

All three reductions have one range and one filter. The weights may be divided by `%z` before they meet the values or behind, and any axes may stand before
`i`, of which `%k` and `%v` see what they like (`h floordiv 4`: grouped queries).
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Apply, Cast, FloatLit, IntLit, Name, Reduce
from pipelink_ir.ir.typed import Piece, TypedOperator
from pipelink_ir.passes.scheduling.conditions import Condition, NoBound, conditions
from pipelink_ir.passes.scheduling.counts import ranges_of
from pipelink_ir.passes.scheduling.tensor_cores import HALVES
from pipelink_ir.passes.scheduling.views import Leaf, Looker, Seen, TooLarge, View

KEY, TERM = Leaf("key"), Leaf("term")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Attention: the reductions by where they stand, the factors, and the axes of the result that are the query, the column of the values, and all others."""

    weighted: tuple[View, ...]
    totals: tuple[View, ...]
    tops: tuple[View, ...]
    dots: tuple[View, ...]
    scaled: tuple[tuple[Seen, bool], ...]
    """Factors that stand inside the sum of a score and depend on neither key nor term."""
    scale: tuple[tuple[Seen, bool], ...] | None
    """The factors of a score that is a positive multiple of its product; None if it is anything else."""
    score: View
    key_range: View
    """The reduction whose range and filter say which keys a query sees."""
    counted: bool
    """Whether a key that is not seen counts with a weight of 0, rather than not at all."""
    term_range: View
    q: View
    k: View
    v: View
    divided: tuple[tuple[Seen, bool], ...]
    """Factors beside the weights and the values: all depend on the query alone."""
    rounded: DType | None
    """What the program rounds the divided weights to."""
    row: int
    column: int
    batch: tuple[int, ...]
    conditions: tuple[Condition, ...]
    inside: frozenset[str]
    """Locals that the kernel computes itself."""


class _Weight(NamedTuple):
    """An exponential; what it is rounded to once divided by others, for the keys of a condition alone."""

    exponential: View
    rounded: DType | None
    others: list[tuple[Seen, bool]]
    only: View | None


def found_in(op: TypedOperator, local: Callable[[str], bool], piece: Piece) -> Found | None:
    """The attention that a definition is; None if it is none. `local`: what may be looked into."""
    return _Search(op, local, piece).run()


@dataclass(slots=True)
class _Search:
    op: TypedOperator
    local: Callable[[str], bool]
    piece: Piece
    look: Looker = field(init=False)

    def __post_init__(self) -> None:
        self.look = Looker(self.op, self.local)

    def run(self) -> Found | None:
        root = View(self.piece.value, {a.index: Leaf("axis", k) for k, a in enumerate(self.piece.axes)})
        try:
            reductions = [v for v in self.look.walk(root) if isinstance(v.expr, Reduce)]
            for v in reductions:
                found = self._weighted(v, reductions)
                if found is not None:
                    return found
        except TooLarge:
            pass
        return None

    def _plain(self, v: View, kind: str) -> bool:
        """Whether a view is a reduction of a kind over one range."""
        x = v.expr
        return isinstance(x, Reduce) and x.kind == kind and len(x.ranges) == 1 and x.dtype is not None and x.dtype.name == "f32"

    def _over(self, v: View) -> tuple[int | None, ...]:
        """What a reduction runs over: equal for reductions over the same keys."""
        x = v.expr
        assert isinstance(x, Reduce)
        r, (_, where) = ranges_of(x)[0], self.look.opened(v, KEY)
        key = self.look.key
        lo = None if r.lo is None or r.lo == IntLit(0, dtype=r.lo.dtype) else key(View(r.lo, v.env))
        return lo, key(View(r.hi, v.env)), None if where is None else key(where)

    def _weighted(self, v: View, all_of: list[View]) -> Found | None:
        look = self.look
        if not self._plain(v, "sum"):
            return None
        over = self._over(v)
        body, _ = look.opened(v, KEY)
        weights: list[_Weight] = []
        values, others = [], []
        for f, below in look.factors(body):
            one = None if below or KEY not in look.leaves(f) else self._weight(f)
            if one is not None:
                weights.append(one)
            elif KEY in look.leaves(f):
                values.append((f, below))
            else:
                others.append((f, below))
        if len(weights) != 1 or len(values) != 1 or values[0][1] or not isinstance(values[0][0], View):
            return None
        weight, rounded, more, only = weights[0]
        if only is not None:
            # What the softmax leaves out has the weight 0: the sum itself must then be over everything.
            if over[2] is not None:
                return None
            over = (*over[:2], look.key(only))
        score, top = self._exponent(weight, over)
        if score is None or top is None:
            return None
        dot = self._dot(score)
        if dot is None:
            return None
        q, k, term_range, scaled = dot
        found = self._axes(score, q, k, values[0][0])
        if found is None:
            return None
        row, column, batch = found
        divided = (*others, *more)
        weighted, totals, tops = [v], list[View](), [top]
        for other in [*all_of, *(x for f, _ in divided for x in look.walk(f) if isinstance(x.expr, Reduce))]:
            if other is v:
                continue
            word = self._same(other, over, v, weight, top)
            if word is None:
                return None
            {"weighted": weighted, "total": totals, "top": tops}[word].append(other)
        if any(column in _axes(look, f) for f, _ in divided):
            return None
        dots = [x for x in look.walk(score) if isinstance(x.expr, Reduce)]
        try:
            conds = conditions(look, top, KEY, Leaf("axis", row))
        except NoBound:
            return None
        inside = frozenset(n for n in look.passed if self.op.tensors[n].kind == "local")
        return Found(tuple(weighted), tuple(totals), tuple(tops), tuple(dots), scaled, self._scale(score, scaled), score, top, only is not None, term_range,
                     q, k, values[0][0], divided, rounded, row, column, batch, conds, inside)

    def _scale(self, score: View, scaled: tuple[tuple[Seen, bool], ...]) -> tuple[tuple[Seen, bool], ...] | None:
        """The factors of a score that is a positive multiple of its product, by the same for all."""
        factors = [*self.look.factors(score), *scaled]
        others = [(f, below) for f, below in factors if not (isinstance(f, View) and isinstance(f.expr, Reduce))]
        if len(others) != len(factors) - 1 or any(below for f, below in factors if isinstance(f, View) and isinstance(f.expr, Reduce)):
            return None
        return tuple(others) if all(not self.look.leaves(f) and self._positive(f) for f, _ in others) else None

    def _positive(self, v: Seen) -> bool:
        v = self.look.of(v)
        if isinstance(v, Leaf):
            return False
        x = v.expr
        if isinstance(x, IntLit | FloatLit):
            return x.value > 0
        if isinstance(x, Name):
            return x.name in self.op.symbols
        known = isinstance(x, Cast) or (isinstance(x, Apply) and x.fn in ("*", "/", "+", "sqrt", "rsqrt", "exp", "exp2"))
        return known and all(map(self._positive, self.look.parts(v)))

    def _weight(self, f: Seen) -> _Weight | None:
        """The exponential that a factor is: by itself, or divided, or only for some keys and 0 for others, and then rounded."""
        if not isinstance(f, View):
            return None
        rounded, only = None, None
        if isinstance(f.expr, Cast) and f.expr.to in HALVES:
            rounded, f = DTYPES[f.expr.to], self.look.of(self.look.parts(f)[0])
        if isinstance(f, View) and isinstance(f.expr, Apply) and f.expr.fn == "select":
            only, f, rest = self.look.parts(f)
            rest_of = self.look.of(rest)
            if not isinstance(rest_of, View) or not isinstance(rest_of.expr, IntLit | FloatLit) or rest_of.expr.value != 0:
                return None
        inner = self.look.factors(f)
        found = [x for x, below in inner if not below and isinstance(x, View) and isinstance(x.expr, Apply) and x.expr.fn == "exp"]
        others = [(x, below) for x, below in inner if not found or x is not found[0]]
        if len(found) != 1 or any(KEY in self.look.leaves(x) for x, _ in others) or (others and rounded is None and only is None):
            return None
        # An exponential that is rounded before it is divided would have to be known as far as the largest of its row.
        return None if rounded is not None and not others else _Weight(found[0], rounded, others, only)

    def _exponent(self, weight: View, over: tuple[int | None, ...]) -> tuple[View | None, View | None]:
        """The score, and the maximum that is taken off."""
        look = self.look
        x = look.of(look.parts(weight)[0])
        if not isinstance(x, View) or not isinstance(x.expr, Apply) or x.expr.fn != "-":
            return None, None
        score, top = (look.of(p) for p in look.parts(x))
        if not isinstance(score, View) or not isinstance(top, View) or not self._plain(top, "max") or self._over(top) != over:
            return None, None
        return (score, top) if look.key(look.opened(top, KEY)[0]) == look.key(score) else (None, None)

    def _dot(self, score: View) -> tuple[View, View, View, tuple[tuple[Seen, bool], ...]] | None:
        """The factors of the one product in a score, the query's and the key's, the sum, and factors that it has besides."""
        look = self.look
        found = [v for v in look.walk(score) if isinstance(v.expr, Reduce)]
        if not found or any(look.key(v) != look.key(found[0]) for v in found) or not self._plain(found[0], "sum"):
            return None
        body, where = look.opened(found[0], TERM)
        if where is not None:
            return None
        sides: dict[bool, list[Seen]] = {False: [], True: []}
        scaled: list[tuple[Seen, bool]] = []
        for f, below in look.factors(body):
            leaves = look.leaves(f)
            if TERM not in leaves and KEY not in leaves:
                scaled.append((f, below))
            elif TERM in leaves and not below:
                sides[KEY in leaves].append(f)
            else:
                return None
        if len(sides[False]) != 1 or len(sides[True]) != 1:
            return None
        q, k = sides[False][0], sides[True][0]
        return (q, k, found[0], tuple(scaled)) if isinstance(q, View) and isinstance(k, View) else None

    def _axes(self, score: View, q: View, k: View, v: View) -> tuple[int, int, tuple[int, ...]] | None:
        look = self.look
        rows = _axes(look, q) - _axes(look, k) - _axes(look, v)
        columns = _axes(look, v) - _axes(look, score)
        if not rows or len(columns) != 1:
            return None
        row, column = max(rows), next(iter(columns))
        return row, column, tuple(n for n in range(len(self.piece.axes)) if n not in (row, column))

    def _same(self, other: View, over: tuple[int | None, ...], weighted: View, weight: View, top: View) -> str | None:
        """What another reduction is of this attention."""
        look = self.look
        if look.key(other) == look.key(weighted):
            return "weighted"
        if look.key(other) == look.key(top):
            return "top"
        if self._plain(other, "sum") and self._over(other) == over and look.key(look.opened(other, KEY)[0]) == look.key(weight):
            return "total"
        return None


def _axes(look: Looker, v: Seen) -> frozenset[int]:
    return frozenset(leaf.number for leaf in look.leaves(v) if leaf.kind == "axis")
