"""Which definitions are attention: sums of values weighted by a softmax of products, whatever the definitions are called and however they are cut.

    %s[i, j] = what is made of sum[d](%q[i, d] * %k[j, d])             scores: scaled, with biases, rounded as edges are
    %m[i]    = max[j where …](%s[i, j])
    %p[i, j] = exp(%s[i, j] - %m[i])
    %z[i]    = sum[j where …](%p[i, j])
    %o[i, c] = what is made of sum[j where …](%p[i, j] * %v[j, c]), %z[i] and %m[i]

All three reductions have one range and one filter. The weights may be divided by `%z` before they meet the values or behind, and any axes may stand before
`i`, of which `%k` and `%v` see what they like (`h floordiv 4`: grouped queries). A kernel then goes through the keys once and never has the scores in memory.

Weights are a factor of a product, so they may be rounded to the dtype of its operands (language.md, "Accuracy"). Where the program itself rounds them, once
divided (an edge of f16 between two operators), the kernel goes through the keys twice: what is rounded has to be known exactly.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Apply, Cast, FloatLit, IntLit, Name, Read, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import deep, reads_in, walk
from pipelink_ir.passes.scheduling.asked import asked
from pipelink_ir.passes.scheduling.attention_flow import MOST, WIDTHS, Lying, flows, masked
from pipelink_ir.passes.scheduling.conditions import Condition, NoBound, conditions
from pipelink_ir.passes.scheduling.counts import count, ranges_of
from pipelink_ir.passes.scheduling.risks import power_may_fail
from pipelink_ir.passes.scheduling.tensor_cores import HALVES, leaves_of
from pipelink_ir.passes.scheduling.views import Leaf, Looker, Seen, TooLarge, View

KEY, TERM = Leaf("key"), Leaf("term")
DEEPEST = 256
"""Most columns of the values, and most terms of a score: what a block keeps of them."""
LEAST = 8
"""With fewer columns or terms there is nothing for tensor cores to do."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a block is cut: `warps` times `tiles` times 16 queries, `keys` at a time, `terms` of the scores, `columns` of the values."""

    warps: int
    tiles: int
    keys: int
    terms: int
    columns: int
    blocks: int
    """So many blocks share a multiprocessor."""

    @property
    def queries(self) -> int:
        return 16 * self.warps * self.tiles


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


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """How a kernel computes attention."""

    found: Found
    factors: DType
    """Of queries and keys."""
    values: DType
    """Of weights and values."""
    cut: Cut
    over: int = 0
    """It is taken for more terms and columns than so many, and at most those of its tiles, where that is not known before."""
    arch: Arch | None = None
    """What is compiled for, if that is known."""
    open: bool = False
    """Whether numbers of terms or of columns are known at run time alone."""
    lying: tuple[Lying, Lying, Lying] | str = ""
    """How queries, keys and values lie for the copy engine, or why it does not bring them."""
    flowing: bool = False
    """Whether this kernel is the one that the copy engine feeds."""

    @property
    def instruction(self) -> str:
        """The instruction that does the work."""
        return "mma.sync m16n8k16"

    @property
    def flows(self) -> bool:
        """Whether a kernel that the copy engine feeds does the work, where memory and sizes are fit for that."""
        return not isinstance(self.lying, str)

    @property
    def masked(self) -> bool:
        """Whether a kernel before that one writes which keys are seen."""
        return self.flows and masked(self.found)


@dataclass(frozen=True, slots=True, eq=False)
class Choosing:
    """What is written before attention that flows: which keys are seen."""

    of: Attention


class _Weight(NamedTuple):
    """An exponential; what it is rounded to once divided by others, for the keys of a condition alone."""

    exponential: View
    rounded: DType | None
    others: list[tuple[Seen, bool]]
    only: View | None


class _Declined(Exception):
    """Why a definition is no attention that a kernel is known for."""


def attention_of(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, arch: Arch | None = None) -> Attention | None:
    """How attention is computed; None where a definition is none, or no kernel is known for it."""
    found = examined(op, local, tensor, piece, arch)
    return found if isinstance(found, Attention) else None


def examined(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, arch: Arch | None = None) -> Attention | str | None:
    """The same, with the reason where it is attention without a kernel."""
    with deep():
        found = _Search(op, local, piece).run() if len(tensor.pieces) == 1 and not piece.holes and _hopeful(op) else None
        if found is None:
            return None
        try:
            return _way(op, local, piece, found, arch)
        except _Declined as e:
            return str(e)


@lru_cache(maxsize=256)
def _heads(key: _Same) -> Mapping[str, frozenset[str]]:
    op = key.op
    wishes, free = asked(op.op, "cuda"), _free(op)
    out: dict[str, frozenset[str]] = {}
    covered: set[str] = set()
    for t in _candidates(op):
        if t.name in covered or wishes.word(t.name, "place") == "inline":
            continue
        found = attention_of(op, lambda n: n in free and wishes.word(n, "place") in (None, "inline"), t, t.pieces[0])
        if found is not None and not _shown(op, t, found.found.inside):
            out[t.name] = found.found.inside
            covered |= found.found.inside
    return {n: inside for n, inside in out.items() if n not in covered}


def _shown(op: TypedOperator, head: Tensor, inside: frozenset[str]) -> bool:
    """Whether something else reads weights or scores: then they are in memory anyway."""
    wide = {n for n in inside if len(op.tensors[n].shape) >= len(head.shape)}
    return any(r.tensor in wide for t in op.tensors.values() if t.name != head.name and t.name not in inside for p in t.pieces for r in reads_in(p.value))


def _free(op: TypedOperator) -> frozenset[str]:
    """Locals that are not computed step by step."""
    return frozenset(n for g in op.order if g.recurrence is None for n in g.tensors if op.tensors[n].kind == "local")


def _candidates(op: TypedOperator) -> Iterator[Tensor]:
    """What may be attention, from the last definition to the first."""
    for group in reversed(op.order):
        t = op.tensors[group.tensors[0]]
        if group.recurrence is None and len(t.pieces) == 1:
            yield t


@dataclass(frozen=True, slots=True)
class _Same:
    """An operator that is known by its identity."""

    op: TypedOperator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.op is self.op

    def __hash__(self) -> int:
        return id(self.op)


def heads(op: TypedOperator) -> Mapping[str, frozenset[str]]:
    """The definitions of an operator that are attention on a GPU, and for each the locals that its kernel computes itself."""
    return _heads(_Same(op)) if _hopeful(op) else {}


def reasons(op: TypedOperator, arch: Arch | None) -> Mapping[str, str]:
    """Why no kernel of its own computes definitions that are attention."""
    out: dict[str, str] = {}
    covered: set[str] = set()
    free = _free(op)
    for t in _candidates(op) if _hopeful(op) else ():
        found = _Search(op, free.__contains__, t.pieces[0]).run() if t.name not in covered else None
        if found is None:
            continue
        covered |= found.inside
        here = examined(op, free.__contains__, t, t.pieces[0], arch)
        if isinstance(here, str):
            out[t.name] = here
        elif t.name not in heads(op):
            shown = _shown(op, t, found.inside)
            out[t.name] = "something else reads its scores or weights" if shown else "the schedule wants something in it to lie in memory"
    return out


def _hopeful(op: TypedOperator) -> bool:
    """Whether everything occurs that attention is made of."""
    return op.reduces and _has_parts(_Same(op))


@lru_cache(maxsize=256)
def _has_parts(key: _Same) -> bool:
    missing = Counter({"sum": 2, "max": 1, "exp": 1})
    for x in (x for t in key.op.tensors.values() for p in t.pieces for x in walk(p.value)):
        missing -= Counter((x.kind,) if isinstance(x, Reduce) else ("exp",) if isinstance(x, Apply) and x.fn == "exp" else ())
        if not missing:
            return True
    return False


# ---------------------------------------------------------------------------------------------------------------------- looking


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


# ------------------------------------------------------------------------------------------------------------------------- ways


def _way(op: TypedOperator, local: Callable[[str], bool], piece: Piece, f: Found, arch: Arch | None) -> Attention:
    """The kernel for attention that was found."""
    if op.exact:
        raise _Declined("'accuracy = exact' asks for sums as they are written")
    if not _safe(op, piece, f):
        raise _Declined("a read in it is checked at run time, or guarded")
    factors = [leaves_of(op, local, x.expr) for x in (f.q, f.k, f.v)]
    if None in factors or any(len(s) != 1 or not s <= frozenset(HALVES) for s in factors if s is not None):
        raise _Declined("queries, keys and values are not made of operands of f16 or of bf16")
    q, k, v = (DTYPES[next(iter(s))] for s in factors if s is not None)
    if q is not k:
        raise _Declined(f"queries are made of {q}, keys of {k}")
    if f.rounded is not None and f.rounded is not v:
        raise _Declined(f"weights are rounded to {f.rounded}, values are {v}")
    if arch is not None and arch.kind == "cuda" and arch.sm > 0 and (arch.sm < 75 or (arch.sm < 80 and (q.name, v.name) != ("f16", "f16"))):
        raise _Declined(f"{arch} has no tensor cores for it")
    terms, columns = count(ranges_of(_reduce(f.term_range))[0]), count(piece.axes[f.column])
    for n, what in ((terms, "terms of a score"), (columns, "columns of the values")):
        if n is not None and not LEAST <= n <= DEEPEST:
            raise _Declined(f"{n} {what}: at most {DEEPEST} fit, and fewer than {LEAST} are not worth it")
    if _by_row(f):
        raise _Declined("both ends of the range of keys depend on the query")
    lying = flows(op, local, f, (q, v), arch, KEY, TERM) if max(terms or 0, columns or 0) <= MOST else f"more than {MOST} terms or columns"
    return Attention(f, q, v, cut_of(terms, columns, arch), arch=arch, open=None in (terms, columns), lying=lying)


def _by_row(f: Found) -> bool:
    """Whether it is not known that some row sees each key between the first and the last one."""
    return {"lower", "upper"} <= {c.kind for c in f.conditions if c.by_row and c.own}


def _safe(op: TypedOperator, piece: Piece, f: Found) -> bool:
    """Whether everything but what is made of the sums may be evaluated wherever a key is seen."""
    values = [p.value for n in f.inside for p in op.tensors[n].pieces]
    for x in (y for value in (*values, *(r for r in walk(piece.value) if isinstance(r, Reduce))) for y in walk(value)):
        if power_may_fail(x) or (isinstance(x, Read) and {"check"} & {*x.access}):
            return False
        if isinstance(x, Read) and "guarded" in x.access and x.tensor not in f.inside:
            return False
    return True


def _reduce(v: View) -> Reduce:
    assert isinstance(v.expr, Reduce)
    return v.expr


def cut_of(terms: int | None, columns: int | None, arch: Arch | None) -> Cut:
    """The tiles of a block, by what fits into its shared memory and registers. Sizes that are not known take the largest."""
    t, c = (_rounded(DEEPEST if n is None else n) for n in (terms, columns))
    deep = max(t, c)
    sm = 80 if arch is None or arch.kind != "cuda" or arch.sm == 0 else arch.sm
    roomy = sm in (80, 87) or 90 <= sm < 120
    if deep > 128 and sm < 80:
        return Cut(2, 1, 16, t, c, 1)
    if deep > 128:
        return Cut(4, 1, 32 if roomy else 16, t, c, 1)
    if not roomy:
        return Cut(4, 1, 32 if sm >= 80 or deep <= 64 else 16, t, c, 1)
    return Cut(4, 2, 64, t, c, 2 if sm >= 90 else 1)


def _rounded(n: int) -> int:
    return -(-n // 16) * 16


def versions(way: Attention) -> tuple[Attention, ...]:
    """The kernels of which one does the work: one where sizes are known, else one for each of some sizes. Those that the copy engine feeds come first; what is
    behind them is rarely needed then, and is one."""
    if way.flows:
        deep = max(way.cut.terms, way.cut.columns)
        widths = WIDTHS if way.open else tuple(w for w in WIDTHS if w >= deep)[:1]
        before = zip(widths, (0, *widths), strict=False)
        flowing = [replace(way, cut=Cut(8, 1, 128, w, w, 1), over=over, flowing=True) for w, over in before]
        return (*flowing, replace(way, cut=cut_of(None, None, way.arch)) if way.open else way)
    if not way.open:
        return (way,)
    out, over = [], 0
    for most in (64, 128, DEEPEST):
        out.append(replace(way, cut=cut_of(most, most, way.arch), over=over))
        over = most
    return tuple(out)
