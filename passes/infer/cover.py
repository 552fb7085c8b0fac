"""Pieces of one name cover it and do not overlap."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import I64
from pipelink_ir.ir.nodes import Expr, IntLit, Name
from pipelink_ir.ir.prover import Facts
from pipelink_ir.ir.typed import Piece
from pipelink_ir.passes.infer.access import both, comparison
from pipelink_ir.passes.infer.drafts import Draft, DraftPiece

Box = tuple[tuple[Expr, Expr], ...]
SPLITS = 64
"""How often a box may be cut before the search gives up."""


def check_pieces(t: Draft, box: Sequence[tuple[Expr, Expr]], pieces: Sequence[Piece], facts: Facts, report: Report) -> None:
    """Report pieces that overlap, and gaps between them."""
    if _is_chain(t, box):
        return
    if _overlaps(t, pieces, facts, report):
        return
    parts = [_written(p, box) for p in t.pieces]
    search = _Cover(parts, facts)
    if search.covers(tuple(box), 0):
        return
    where = "its whole shape" if t.kind == "result" else "the whole of its extent"
    span = t.span if t.kind == "result" else t.pieces[0].target
    report.error("result", span, f"'%{t.name}' is not defined over {where}", [Note("a piece of it", p.target) for p in t.pieces[:4]],
                 "add a piece for the gap, or a general definition beside the constant positions")


def _is_chain(t: Draft, box: Sequence[tuple[Expr, Expr]]) -> bool:
    """Whether the pieces follow each other along one axis, each beginning where the one before ends, and fill the box. Joins of hundreds of parts are
    written so, and are seen in one pass; whatever is written otherwise is left to the search."""
    boxes = [tuple(_plain(end) for pair in _written(p, box) for end in pair) for p in t.pieces]
    whole = tuple(_plain(end) for pair in box for end in pair)
    moving = [k for k in range(t.rank) if any(b[2 * k:2 * k + 2] != boxes[0][2 * k:2 * k + 2] for b in boxes)]
    if len(moving) != 1:
        return len(boxes) == 1 and boxes[0] == whole
    k = moving[0]
    fixed = [i for i in range(2 * t.rank) if i // 2 != k]
    follows = all(a[2 * k + 1] == b[2 * k] for a, b in pairwise(boxes))
    return follows and boxes[0][2 * k] == whole[2 * k] and boxes[-1][2 * k + 1] == whole[2 * k + 1] and all(b[i] == whole[i] for b in boxes for i in fixed)


def _plain(e: Expr) -> Expr:
    return e if isinstance(e, IntLit | Name) else normal(e)


def _written(p: DraftPiece, box: Sequence[tuple[Expr, Expr]]) -> Box:
    """The box of a piece as it was written: constant positions take nothing away from what is covered."""
    out: list[tuple[Expr, Expr]] = []
    for k, a in enumerate(p.axes):
        if a.position is not None:
            out.append((IntLit(a.position, dtype=I64), IntLit(a.position + 1, dtype=I64)))
        elif a.hi is not None:
            out.append((a.lo if a.lo is not None else IntLit(0, dtype=I64), a.hi))
        else:
            out.append(box[k])
    return tuple(out)


def _overlaps(t: Draft, pieces: Sequence[Piece], facts: Facts, report: Report) -> bool:
    for i, p in enumerate(t.pieces):
        for j in range(i):
            q = t.pieces[j]
            if _special(p, q) or _special(q, p):
                continue
            if _disjoint(p, q, pieces[i], pieces[j], facts):
                continue
            report.error("duplicate", p.target, f"this piece of '%{t.name}' overlaps another one", [Note("the other one", q.target)], _apart(p, q))
            return True
    return False


def _apart(p: DraftPiece, q: DraftPiece) -> str:
    """How two pieces that overlap are parted."""
    here, there = ([a.position for a in x.axes] for x in (p, q))
    if here == there and all(a.hi is None for x in (p, q) for a in x.axes):
        return "keep one of the two: they define the same places"
    if any(v is not None for v in (*here, *there)):
        return "let one of them leave out the places where they meet, as in 'h in 1..H'"
    return "let one begin where the other ends"


def _special(p: DraftPiece, q: DraftPiece) -> bool:
    """Whether p has constant positions where q has none: then p wins, and both may stand."""
    positions = [(a.position, b.position) for a, b in zip(p.axes, q.axes, strict=True)]
    return any(a is not None and b is None for a, b in positions) and all(b is None or a == b for a, b in positions)


def _disjoint(p: DraftPiece, q: DraftPiece, tp: Piece, tq: Piece, facts: Facts) -> bool:
    for a, b, x, y in zip(p.axes, q.axes, tp.axes, tq.axes, strict=True):
        if a.position is not None and b.position is not None:
            if a.position != b.position:
                return True
            continue
        lo_a, hi_a, lo_b, hi_b = x.lo, x.hi, y.lo, y.hi
        assert lo_a is not None
        assert lo_b is not None
        # Nothing overlaps an empty piece, so both may be taken to have a place.
        some = facts.with_condition(both(comparison("<", lo_a, hi_a), comparison("<", lo_b, hi_b)))
        if some.prove(comparison("<=", hi_a, lo_b)) or some.prove(comparison("<=", hi_b, lo_a)) or some.contradictory():
            return True
    return False


class _Cover:
    """Cuts a box along the ends of pieces until each part lies in one piece. A cut at any place is sound: [lo, cut) and [cut, hi) hold [lo, hi)."""

    def __init__(self, parts: Sequence[Box], facts: Facts) -> None:
        self.parts, self.facts, self.splits = parts, facts, 0

    def covers(self, box: Box, depth: int) -> bool:
        facts = self.facts
        for lo, hi in box:
            facts = facts.with_condition(comparison("<", lo, hi))
        if facts.contradictory():
            return True
        if any(self._inside(box, part, facts) for part in self.parts):
            return True
        if depth > 12:
            return False
        for part in self.parts:
            for axis, ((lo, hi), (start, end)) in enumerate(zip(box, part, strict=True)):
                for cut in (start, end):
                    if self.splits < SPLITS and not _same(cut, lo) and not _same(cut, hi) and self._cuts(cut, lo, hi, facts):
                        self.splits += 1
                        left = (*box[:axis], (lo, cut), *box[axis + 1:])
                        right = (*box[:axis], (cut, hi), *box[axis + 1:])
                        return self.covers(left, depth + 1) and self.covers(right, depth + 1)
        return False

    @staticmethod
    def _inside(box: Box, part: Box, facts: Facts) -> bool:
        return all((_same(lo, start) or facts.prove(comparison("<=", start, lo))) and (_same(hi, end) or facts.prove(comparison("<=", hi, end)))
                   for (lo, hi), (start, end) in zip(box, part, strict=True))

    @staticmethod
    def _cuts(cut: Expr, lo: Expr, hi: Expr, facts: Facts) -> bool:
        """Whether a cut may lie strictly inside, so that it makes progress."""
        return not facts.prove(comparison("<=", cut, lo)) and not facts.prove(comparison(">=", cut, hi))


def _same(a: Expr, b: Expr) -> bool:
    return a is b or normal(a) == normal(b)
