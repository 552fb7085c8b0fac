"""What a kernel looks like at the end: no statement without effect, and values that are used once in sight stand where they are used."""
from __future__ import annotations

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.contents import blocks as blocks
from pipelink_ir.backends.loops.contents import exprs as exprs
from pipelink_ir.backends.loops.contents import makes, put, reads

DEPTH = 40
"""Deepest expression that is put together."""
THREAD = "#thread"
"""Stands for a `Thread` among the names in an expression."""


def tidy(body: tuple[form.Stmt, ...]) -> form.Block:
    """The same block, cleaned."""
    return _melt_block(_sweep(body, _live(body)))


# ------------------------------------------------------------------------------------------------------------------- expressions


def parts(x: form.Expr) -> tuple[form.Expr, ...]:
    """Direct subexpressions."""
    if isinstance(x, form.Op):
        return x.args
    if isinstance(x, form.Convert):
        return (x.arg,)
    if isinstance(x, form.Choose):
        return (x.cond, x.then, x.other)
    if isinstance(x, form.Load):
        return (x.index,)
    return ()


def refs(x: form.Expr) -> list[str]:
    """Names in an expression, and memory that it loads from, whose names are spelled `%x` here."""
    out: list[str] = []
    _refs(x, out)
    return out


def _refs(x: form.Expr, out: list[str]) -> None:
    if isinstance(x, form.Ref):
        out.append(x.name)
    elif isinstance(x, form.Op):
        for a in x.args:
            _refs(a, out)
    elif isinstance(x, form.Const):
        pass
    elif isinstance(x, form.Load):
        out.append("%" + x.buffer)
        _refs(x.index, out)
    elif isinstance(x, form.Aligned):
        out.append("%" + x.buffer)
    elif isinstance(x, form.Thread):
        out.append(THREAD)
    else:
        for p in parts(x):
            _refs(p, out)


def written(s: form.Store | form.Move) -> str:
    """The memory that a statement stores to."""
    return s.buffer if isinstance(s, form.Store) else s.to


# ---------------------------------------------------------------------------------------------------------------------- liveness


def _live(body: form.Block) -> set[str]:
    """Names that something with an effect depends on: stores to memory and failures, and the control around them."""
    scratch: set[str] = set()
    needs: dict[str, set[str]] = {}
    roots: set[str] = set()

    def collect(block: form.Block, control: frozenset[str]) -> None:
        for s in block:
            own = frozenset(n for x in exprs(s) for n in refs(x)) | control | frozenset(reads(s))
            if isinstance(s, form.Alloc):
                scratch.add("%" + s.name)
            for name in makes(s):
                if name[0] != "%" or name in scratch:
                    needs.setdefault(name, set()).update(own)
                else:
                    roots.update(own)
            if isinstance(s, form.Fail):
                roots.update(own)
            for b in blocks(s):
                collect(b, own)

    collect(body, frozenset())
    live: set[str] = set()
    work = list(roots)
    while work:
        name = work.pop()
        if name not in live:
            live.add(name)
            work += needs.get(name, ())
    return live | {f"dead {n}" for n in scratch if n not in live}


def _dead(name: str, live: set[str]) -> bool:
    """Whether nobody needs what is made. Memory that is no scratch is needed."""
    return f"dead {name}" in live if name[0] == "%" else name not in live


def _sweep(body: form.Block, live: set[str]) -> form.Block:
    out: list[form.Stmt] = []
    for s in body:
        made = makes(s)
        if made and all(_dead(n, live) for n in made):
            continue
        if isinstance(s, form.For):
            inner = _sweep(s.body, live)
            if inner or s.kind in ("parallel", "grid", "block"):
                vector = s.vector and not any(isinstance(x, form.For) for x in inner)
                out.append(form.For(s.var, s.lo, s.hi, s.step, inner, s.kind, vector, s.unroll))
        elif isinstance(s, form.If):
            then, other = _sweep(s.then, live), _sweep(s.other, live)
            if then or other:
                out.append(form.If(s.cond, then, other))
        else:
            out.append(s)
    return tuple(out)


# ----------------------------------------------------------------------------------------------------------------------- melting


def _counts(body: form.Block, out: dict[str, int]) -> None:
    for s in body:
        for x in exprs(s):
            for n in refs(x):
                out[n] = out.get(n, 0) + 1
        for b in blocks(s):
            _counts(b, out)


def _unstable(body: form.Block, out: set[str]) -> None:
    """Names whose value at one place may not be their value at another: mutable scalars, and memory that is written."""
    for s in body:
        if not isinstance(s, form.Let | form.Alloc):
            out.update(makes(s))
        for b in blocks(s):
            _unstable(b, out)


def _melt_block(body: form.Block) -> form.Block:
    counts: dict[str, int] = {}
    unstable: set[str] = set()
    _counts(body, counts)
    _unstable(body, unstable)
    return _melt(body, {}, {}, counts, unstable)


def _melt(body: form.Block, held: dict[str, form.Expr], deep: dict[str, int], counts: dict[str, int], unstable: set[str]) -> form.Block:
    """Puts `Let`s that are used once, in this very block, into the statement that uses them, and constants everywhere. What is `held` are the
    values of such names, whose depths are `deep`; names are bound once in a kernel, so all blocks share both."""
    direct: dict[str, int] = {}
    for s in body:
        for x in exprs(s):
            for n in refs(x):
                direct[n] = direct.get(n, 0) + 1
    out: list[form.Stmt] = []
    for s in body:
        if isinstance(s, form.Let):
            value = _put(s.value, held)
            depth = _depth(s.value, deep)
            once = counts.get(s.name) == 1 and direct.get(s.name) == 1
            constant = isinstance(value, form.Const)
            if constant or (once and depth < DEPTH and not unstable.intersection(refs(value))):
                held[s.name], deep[s.name] = value, depth
            else:
                out.append(form.Let(s.name, value))
        else:
            out.append(_rebuilt(s, held, deep, counts, unstable))
    return tuple(out)


def _depth(x: form.Expr, deep: dict[str, int]) -> int:
    if isinstance(x, form.Ref):
        return deep.get(x.name, 0)
    return 1 + max((_depth(p, deep) for p in parts(x)), default=0)


def _put(x: form.Expr, held: dict[str, form.Expr]) -> form.Expr:
    if isinstance(x, form.Ref):
        return held.get(x.name, x)
    if isinstance(x, form.Op):
        return form.Op(x.fn, tuple(_put(a, held) for a in x.args), x.dtype, x.reorder)
    if isinstance(x, form.Convert):
        return form.Convert(_put(x.arg, held), x.to, x.dtype, x.saturate)
    if isinstance(x, form.Choose):
        return form.Choose(_put(x.cond, held), _put(x.then, held), _put(x.other, held), x.dtype)
    if isinstance(x, form.Load):
        return form.Load(x.buffer, _put(x.index, held), x.memory, x.dtype)
    return x


def _rebuilt(s: form.Stmt, held: dict[str, form.Expr], deep: dict[str, int], counts: dict[str, int], unstable: set[str]) -> form.Stmt:
    if isinstance(s, form.If):
        return form.If(_put(s.cond, held), _melt(s.then, held, deep, counts, unstable), _melt(s.other, held, deep, counts, unstable))
    if isinstance(s, form.For):
        return form.For(s.var, _put(s.lo, held), _put(s.hi, held), _put(s.step, held), _melt(s.body, held, deep, counts, unstable), s.kind, s.vector,
                        s.unroll)
    return put(s, lambda x: _put(x, held))
