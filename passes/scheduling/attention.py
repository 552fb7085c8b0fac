"""How attention is computed on a GPU, where definitions are such (`attention_search.py`): by a kernel that goes through the keys once and never has the scores
in memory.

Weights are a factor of a product, so they may be rounded to the dtype of its operands (language.md, "Accuracy"). Where the program itself rounds them, once
divided (an edge of f16 between two operators), the kernel goes through the keys twice: what is rounded has to be known exactly.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Apply, Read, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import deep, reads_in, walk
from pipelink_ir.passes.scheduling.asked import asked
from pipelink_ir.passes.scheduling.attention_flow import MOST, TILE, WIDTHS, Lying, flows, masked, teams_of
from pipelink_ir.passes.scheduling.attention_search import KEY, TERM, Found, found_in
from pipelink_ir.passes.scheduling.counts import count, ranges_of
from pipelink_ir.passes.scheduling.risks import power_may_fail
from pipelink_ir.passes.scheduling.tensor_cores import HALVES, leaves_of
from pipelink_ir.passes.scheduling.views import View

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
    teams: int = 2
    """If it flows: so many times 64 queries share a block."""
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


class _Declined(Exception):
    """Why a definition is no attention that a kernel is known for."""


def attention_of(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, arch: Arch | None = None) -> Attention | None:
    """How attention is computed; None where a definition is none, or no kernel is known for it."""
    found = examined(op, local, tensor, piece, arch)
    return found if isinstance(found, Attention) else None


def examined(op: TypedOperator, local: Callable[[str], bool], tensor: Tensor, piece: Piece, arch: Arch | None = None) -> Attention | str | None:
    """The same, with the reason where it is attention without a kernel."""
    with deep():
        found = found_in(op, local, piece) if len(tensor.pieces) == 1 and not piece.holes and _hopeful(op) else None
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
        found = found_in(op, free.__contains__, t.pieces[0]) if t.name not in covered else None
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
    hidden = any(c.rows or c.kind == "other" for c in f.conditions)
    teams = 2 if hidden else teams_of([count(piece.axes[k]) for k in f.batch], count(piece.axes[f.row]), terms, columns)
    return Attention(f, q, v, cut_of(terms, columns, arch), arch=arch, open=None in (terms, columns), lying=lying, teams=teams)


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
        sizes = [(w, w) for w in WIDTHS] if way.open else [(way.cut.terms, -(-way.cut.columns // 32) * 32)]
        before = zip(sizes, (0, *WIDTHS), strict=False)
        flowing = [replace(way, cut=Cut(4 * way.teams, 1, TILE, *size, 1), over=over, flowing=True) for size, over in before]
        return (*flowing, replace(way, cut=cut_of(None, None, way.arch)) if way.open else way)
    if not way.open:
        return (way,)
    out, over = [], 0
    for most in (64, 128, DEEPEST):
        out.append(replace(way, cut=cut_of(most, most, way.arch), over=over))
        over = most
    return tuple(out)
