"""What a kernel looks like at the end: no statement without effect, and values that are used once in sight stand where they are used."""
from __future__ import annotations

from pipelink_ir.backends.loops import form

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


def exprs(s: form.Stmt) -> tuple[form.Expr, ...]:
    """The expressions that a statement itself evaluates."""
    if isinstance(s, form.Let | form.Assign):
        return (s.value,)
    if isinstance(s, form.Var):
        return (s.init,)
    if isinstance(s, form.Store):
        return (s.index, s.value)
    if isinstance(s, form.Move):
        return (s.at, s.index)
    if isinstance(s, form.Combine) and s.apart is not None:
        return (s.apart,)
    if isinstance(s, form.For):
        return (s.lo, s.hi, s.step)
    if isinstance(s, form.If):
        return (s.cond,)
    if isinstance(s, form.Alloc):
        return (s.size,)
    if isinstance(s, form.Own):
        return s.exprs
    if isinstance(s, form.Multiply):
        return (s.left.index, s.right.index)
    if isinstance(s, form.Contract):
        return (s.row, s.column, s.batch, s.terms, *s.left.sizes, *s.left.steps, *s.right.sizes, *s.right.steps)
    if isinstance(s, form.StoreFragment):
        return (s.part,)
    if isinstance(s, form.CopyAsync):
        return (s.index, s.source, s.inside)
    return s.values if isinstance(s, form.Fail) else ()


def blocks(s: form.Stmt) -> tuple[form.Block, ...]:
    """The blocks inside a statement."""
    if isinstance(s, form.For):
        return (s.body,)
    if isinstance(s, form.If):
        return (s.then, s.other)
    return ()


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
            own = frozenset(n for x in exprs(s) for n in refs(x)) | control
            if isinstance(s, form.Move):
                own |= {"%" + s.source}
            if isinstance(s, form.Alloc):
                scratch.add(s.name)
                needs.setdefault("%" + s.name, set()).update(own)
            elif isinstance(s, form.Let | form.Var | form.Assign):
                needs.setdefault(s.name, set()).update(own)
            elif isinstance(s, form.Combine):
                for name in s.names:
                    needs.setdefault(name, set()).update(own, s.names)
            elif isinstance(s, form.Own):
                for name in s.targets:
                    needs.setdefault("%" + name, set()).update(own, ("%" + n for n in s.sources))
            elif isinstance(s, form.Contract):
                needs.setdefault("%" + s.sums, set()).update(own)
            elif isinstance(s, form.Trade):
                needs.setdefault("%" + s.target, set()).update(own, ("%" + s.source,))
            elif isinstance(s, form.Multiply):
                needs.setdefault(f"#{s.fragment}", set()).update(own, ("%" + s.left.buffer, "%" + s.right.buffer))
            elif isinstance(s, form.StoreFragment):
                needs.setdefault("%" + s.buffer, set()).update(own, (f"#{s.fragment}",))
            elif isinstance(s, form.CopyAsync):
                needs.setdefault("%" + s.buffer, set()).update(own)
            elif isinstance(s, form.Store | form.Move) and written(s) in scratch:
                needs.setdefault("%" + written(s), set()).update(own)
            elif isinstance(s, form.Store | form.Move | form.Fail):
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
    return live | {"dead %" + n for n in scratch if "%" + n not in live}


def _sweep(body: form.Block, live: set[str]) -> form.Block:
    out: list[form.Stmt] = []
    for s in body:
        if isinstance(s, form.Let | form.Var | form.Assign) and s.name not in live:
            continue
        if isinstance(s, form.Combine) and live.isdisjoint(s.names):
            continue
        if isinstance(s, form.Combine) and not live.intersection(s.names):
            continue
        if isinstance(s, form.StoreFragment | form.CopyAsync) and "dead %" + s.buffer in live:
            continue
        if isinstance(s, form.Contract | form.Trade) and "dead %" + (s.sums if isinstance(s, form.Contract) else s.target) in live:
            continue
        if isinstance(s, form.Own) and live.issuperset("dead %" + n for n in s.targets):
            continue
        if (isinstance(s, form.Fragment) and f"#{s.name}" not in live) or (isinstance(s, form.Multiply) and f"#{s.fragment}" not in live):
            continue
        if (isinstance(s, form.Alloc) and "%" + s.name not in live) or (isinstance(s, form.Store | form.Move) and "dead %" + written(s) in live):
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
        if isinstance(s, form.Var):
            out.add(s.name)
        elif isinstance(s, form.Move):
            out.add("%" + s.to)
        elif isinstance(s, form.Store | form.StoreFragment | form.CopyAsync):
            out.add("%" + s.buffer)
        elif isinstance(s, form.Contract):
            out.add("%" + s.sums)
        elif isinstance(s, form.Trade):
            out.add("%" + s.target)
        elif isinstance(s, form.Own):
            out.update("%" + n for n in s.targets)
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


def _three(x: tuple[form.Expr, form.Expr, form.Expr], held: dict[str, form.Expr]) -> tuple[form.Expr, form.Expr, form.Expr]:
    return _put(x[0], held), _put(x[1], held), _put(x[2], held)


def _rebuilt(s: form.Stmt, held: dict[str, form.Expr], deep: dict[str, int], counts: dict[str, int], unstable: set[str]) -> form.Stmt:
    if isinstance(s, form.Var):
        return form.Var(s.name, s.dtype, _put(s.init, held))
    if isinstance(s, form.Assign):
        return form.Assign(s.name, _put(s.value, held))
    if isinstance(s, form.Store):
        return form.Store(s.buffer, _put(s.index, held), _put(s.value, held), s.memory)
    if isinstance(s, form.Combine) and s.apart is not None:
        return form.Combine(s.fn, s.names, _put(s.apart, held), s.lanes)
    if isinstance(s, form.Move):
        return form.Move(s.to, _put(s.at, held), s.source, _put(s.index, held), s.count)
    if isinstance(s, form.Alloc):
        return form.Alloc(s.name, s.memory, _put(s.size, held), s.shared)
    if isinstance(s, form.Fail):
        return form.Fail(s.site, tuple(_put(v, held) for v in s.values))
    if isinstance(s, form.Contract):
        a, b = (form.Panel(p.buffer, _three(p.sizes, held), (_put(p.steps[0], held), _put(p.steps[1], held))) for p in (s.left, s.right))
        return form.Contract(s.sums, s.ring, a, b, _put(s.terms, held), *_three((s.row, s.column, s.batch), held), s.maps)
    if isinstance(s, form.Own):
        return s.put(lambda x: _put(x, held))
    if isinstance(s, form.Multiply):
        left, right = (form.Factor(f.buffer, _put(f.index, held), f.along, f.pitch) for f in (s.left, s.right))
        return form.Multiply(s.fragment, left, right, s.depth)
    if isinstance(s, form.StoreFragment):
        return form.StoreFragment(s.fragment, _put(s.part, held), s.buffer, s.pitch)
    if isinstance(s, form.CopyAsync):
        return form.CopyAsync(s.buffer, _put(s.index, held), s.origin, _put(s.source, held), _put(s.inside, held), s.memory)
    if isinstance(s, form.If):
        return form.If(_put(s.cond, held), _melt(s.then, held, deep, counts, unstable), _melt(s.other, held, deep, counts, unstable))
    if isinstance(s, form.For):
        return form.For(s.var, _put(s.lo, held), _put(s.hi, held), _put(s.step, held), _melt(s.body, held, deep, counts, unstable), s.kind, s.vector,
                        s.unroll)
    return s
