"""Quotients of many f32 by one: its reciprocal is taken once, and two fused steps put the last bit of each product with it right.

    unroll for d in 0..4 { let v = e[d] / sum ; store y[d] = v }
becomes
    let by = inverse(sum)                          // once, where `sum` is known
    var doubt = false
    unroll for d in 0..4 { let v = quotient(e[d], sum, by) ; doubt = doubt or doubtful(e[d], v, by) ; store y[d] = v }
    if doubt { unroll for d in 0..4 { let v = e[d] / sum ; store y[d] = v } }

The result is that of the division, bit for bit: where the divisor or an element is so small or large that a step would not be exact, `doubtful` says so, and
the loop is run once more as it was. `docs/decisions/rows.md` says why one correction is enough. A division has a branch to a slow path for each element, which
keeps neighbours from running side by side and takes registers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.contents import blocks, exprs, makes, put
from pipelink_ir.backends.loops.tidy import refs
from pipelink_ir.ir.dtypes import BOOL, F32

LEAST = 4
"""Turns of a loop that are worth it."""
Fresh = Callable[[str], str]


def by_reciprocals(body: form.Block, given: Iterable[str], fresh: Fresh) -> form.Block:
    """The statements of a kernel with such quotients computed so. `given` are its scalars, `fresh` gives names that it does not have."""
    return _Quotients(fresh).block(body, given) if any(map(_candidates, body)) else body


class _Quotients:
    def __init__(self, fresh: Fresh) -> None:
        self.fresh = fresh
        self.inverses: dict[str, str] = {}
        """The reciprocals that are there, by the name of the divisor."""

    def block(self, body: form.Block, given: Iterable[str] = ()) -> form.Block:
        """A block: reciprocals of what it binds stand before the first statement that divides by it."""
        out: list[form.Stmt] = []
        own: set[str] = set()
        bound = set(given)
        for s in body:
            wanted = [n for n in _divisors(s) if n not in self.inverses and n in bound]
            for n in wanted:
                self.inverses[n] = self.fresh("by")
                own.add(n)
                out.append(form.Let(self.inverses[n], form.Op("inverse", (form.Ref(n, F32),), F32)))
            out += self._statement(s)
            changed = set(_changes((s,)))
            bound |= changed
            for n in changed & self.inverses.keys():
                del self.inverses[n]
        for n in own & self.inverses.keys():
            del self.inverses[n]
        return tuple(out)

    def _statement(self, s: form.Stmt) -> list[form.Stmt]:
        if isinstance(s, form.For):
            found = _loop(s) if s.unroll else {}
            if any(n in self.inverses for n in found.values()):
                return self._twice(s, {k: n for k, n in found.items() if n in self.inverses})
            return [form.For(s.var, s.lo, s.hi, s.step, self.block(s.body), s.kind, s.vector, s.unroll)]
        if isinstance(s, form.If):
            return [form.If(s.cond, self.block(s.then), self.block(s.other))]
        return [s]

    def _twice(self, s: form.For, found: dict[str, str]) -> list[form.Stmt]:
        """The loop by reciprocals, and as it is where that is in doubt."""
        doubt = form.Ref(self.fresh("doubt"), BOOL)
        body: list[form.Stmt] = []
        for t in s.body:
            if not isinstance(t, form.Let) or t.name not in found or not isinstance(t.value, form.Op):
                body.append(t)
                continue
            x, by = t.value.args[0], form.Ref(self.inverses[found[t.name]], F32)
            body.append(form.Let(t.name, form.Op("quotient", (x, t.value.args[1], by), F32)))
            missed = form.Op("doubtful", (x, form.Ref(t.name, F32), by), BOOL)
            body.append(form.Assign(doubt.name, form.Op("or", (doubt, missed), BOOL)))
        again = form.For(self.fresh(s.var), s.lo, s.hi, s.step, (), s.kind, s.vector, s.unroll)
        return [form.Var(doubt.name, BOOL, form.Const(False, BOOL)),
                form.For(s.var, s.lo, s.hi, s.step, tuple(body), s.kind, s.vector, s.unroll),
                form.If(doubt, (form.For(again.var, s.lo, s.hi, s.step, self._renamed(s, again.var), s.kind, s.vector, s.unroll),))]

    def _renamed(self, s: form.For, var: str) -> form.Block:
        names = {s.var: var}

        def rename(x: form.Expr) -> form.Expr:
            if isinstance(x, form.Ref):
                return form.Ref(names.get(x.name, x.name), x.dtype)
            if isinstance(x, form.Op):
                return form.Op(x.fn, tuple(map(rename, x.args)), x.dtype, x.reorder)
            if isinstance(x, form.Convert):
                return form.Convert(rename(x.arg), x.to, x.dtype, x.saturate)
            if isinstance(x, form.Choose):
                return form.Choose(rename(x.cond), rename(x.then), rename(x.other), x.dtype)
            if isinstance(x, form.Load):
                return form.Load(x.buffer, rename(x.index), x.memory, x.dtype)
            return x

        out: list[form.Stmt] = []
        for t in s.body:
            t = put(t, rename)
            if isinstance(t, form.Let):
                names[t.name] = self.fresh(t.name)
                t = form.Let(names[t.name], t.value)
            out.append(t)
        return tuple(out)


def _loop(s: form.For) -> dict[str, str]:
    """The quotients in a loop that may be run twice, by the names of their divisors, which are bound outside."""
    if not isinstance(s.lo, form.Const) or not isinstance(s.hi, form.Const) or s.hi.value - s.lo.value < LEAST:
        return {}
    if not all(isinstance(t, form.Let | form.Store) for t in s.body):
        return {}
    stored = {t.buffer for t in s.body if isinstance(t, form.Store)}
    if any("%" + n in refs(x) for t in s.body for x in exprs(t) for n in stored):
        return {}
    inside = {t.name for t in s.body if isinstance(t, form.Let)} | {s.var}
    out = {}
    for t in s.body:
        if isinstance(t, form.Let) and isinstance(t.value, form.Op) and t.value.fn == "/" and t.value.dtype is F32:
            x, y = t.value.args
            if isinstance(y, form.Ref) and y.name not in inside and isinstance(x, form.Ref) and x.name in inside:
                out[t.name] = y.name
    return out


def _divisors(s: form.Stmt) -> Iterable[str]:
    """What the loops in a statement divide by, if the statement does not change it."""
    found = _candidates(s)
    changed = set(_changes((s,))) if found else ()
    return [n for n in found if n not in changed]


def _candidates(s: form.Stmt) -> dict[str, None]:
    """What the loops in a statement divide by."""
    found: dict[str, None] = {}

    def look(t: form.Stmt) -> None:
        if isinstance(t, form.For) and t.unroll:
            found.update(dict.fromkeys(_loop(t).values()))
        for b in blocks(t):
            for inner in b:
                look(inner)

    look(s)
    return found


def _changes(body: form.Block) -> Iterable[str]:
    """Names that statements bind or change."""
    for s in body:
        yield from (n for n in makes(s) if n[0] not in "%#")
        if isinstance(s, form.For):
            yield s.var
        for b in blocks(s):
            yield from _changes(b)
