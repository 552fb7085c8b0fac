"""Readable text of programs and kernels in the loop-level form."""
from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from pipelink_ir.backends.loops import form
from pipelink_ir.ir.dtypes import BOOL, F32, I64

_INFIX = {"or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "floordiv": 6, "mod": 6, "quot": 6, "rest": 6}


def program_text(program: form.Program) -> str:
    """All kernels of a program, its temporaries first."""
    lines = [f"program {program.name}"]
    lines += [f"  temporary {_buffer(b)}" for b in program.temporaries]
    lines += [f"  site {i}: {s.span}: {s.message}" for i, s in enumerate(program.sites)]
    return "\n".join([*lines, *(kernel_text(k) for k in program.kernels), ""])


def kernel_text(kernel: form.Kernel) -> str:
    """One kernel: its signature, then a statement a line."""
    params = [*(f"{b.kind} {_buffer(b)}" for b in kernel.buffers), *(f"{s}: i64" for s in kernel.symbols), *(f"{n}: {d}" for n, d in kernel.scalars)]
    marks = (("exact", kernel.exact), ("fast_math", kernel.fast_math), ("gpu", kernel.device == "gpu"), ("resident", kernel.resident), ("once", kernel.once),
             (f"tickets %{kernel.tickets}", kernel.tickets),
             (f"threads {kernel.threads}", kernel.threads),
             (f"team {expr_text(kernel.team)}" if kernel.team is not None else "", kernel.team is not None))
    words = "".join(f" {w}" for w, on in marks if on)
    return "\n".join([f"kernel {kernel.name}({', '.join(params)}){words} {{", *_block(kernel.body, 1), "}"])


def _buffer(b: form.Buffer) -> str:
    return f"%{b.name}: {b.memory}[{', '.join(map(expr_text, b.shape))}]"


def _block(body: form.Block, level: int) -> Iterator[str]:
    for s in body:
        yield from _stmt(s, level)


def _stmt(s: form.Stmt, level: int) -> Iterator[str]:
    pad = "  " * level
    if isinstance(s, form.Let):
        yield f"{pad}let {s.name} = {expr_text(s.value)}"
    elif isinstance(s, form.Var):
        yield f"{pad}var {s.name}: {s.dtype} = {expr_text(s.init)}"
    elif isinstance(s, form.Assign):
        yield f"{pad}{s.name} = {expr_text(s.value)}"
    elif isinstance(s, form.Store):
        yield f"{pad}%{s.buffer}[{expr_text(s.index)}] = {s.memory} {expr_text(s.value)}"
    elif isinstance(s, form.Move):
        yield f"{pad}move %{s.to}[{expr_text(s.at)}] = %{s.source}[{expr_text(s.index)}] x {s.count}{' anywhere' if s.anywhere else ''}"
    elif isinstance(s, form.TakeWords):
        unless = "" if s.outside is None else f" unless {expr_text(s.outside)}, then {s.other}"
        at = "" if s.at is None else f"[{expr_text(s.at)}]"
        yield f"{pad}words %{s.to}{at} = %{s.source}[{expr_text(s.index)}] x {s.count}{unless}"
    elif isinstance(s, form.Alloc):
        yield f"{pad}{'shared ' if s.shared else ''}alloc %{s.name}: {s.memory}[{expr_text(s.size)}]"
    elif isinstance(s, form.Fail):
        yield f"{pad}fail {s.site}({', '.join(map(expr_text, s.values))})"
    elif isinstance(s, form.For):
        step = "" if s.step == form.Const(1, I64) else f" step {expr_text(s.step)}"
        marks = "".join(f"{word} " for word, on in ((s.kind, s.kind != "serial"), ("vector", s.vector), ("unroll", s.unroll)) if on)
        yield f"{pad}{marks}for {s.var} in {expr_text(s.lo)}..{expr_text(s.hi)}{step} {{"
        yield from _block(s.body, level + 1)
        yield f"{pad}}}"
    elif isinstance(s, form.Barrier):
        yield f"{pad}barrier"
    elif isinstance(s, form.Signal):
        yield f"{pad}signal %{s.buffer}[{expr_text(s.index)}]"
    elif isinstance(s, form.AwaitCount):
        yield f"{pad}await %{s.buffer}[{expr_text(s.index)}] = {expr_text(s.count)}"
    elif isinstance(s, form.Combine):
        apart = "" if s.apart is None else f" apart by {expr_text(s.lanes)} if {expr_text(s.apart)}"
        yield f"{pad}combine {s.fn} {', '.join(s.names)}{apart}"
    elif isinstance(s, form.If):
        yield from _if(s, level)
    else:
        yield pad + _fragments(s)


def _fragments(s: form.Fragment | form.Own | form.Multiply | form.Trade | form.Contract | form.StoreFragment | form.CopyAsync | form.Await
               | form.Commit | form.StripLine | form.StripMultiply | form.Words | form.Pack | form.FewMultiply | form.WindowMultiply) -> str:
    """Statements about matrix fragments and copies under way."""
    if isinstance(s, form.Fragment):
        t = s.tiles
        return f"fragment {s.name}: {t.sums}[{t.rows}, {t.columns}] of {t.left} * {t.right}, warps {_by(t.warps)}, tiles {_by(t.tiles)}"
    if isinstance(s, form.Own):
        return s.text(expr_text)
    if isinstance(s, form.Multiply):
        return f"{s.fragment} += {_factor(s.left)} * {_factor(s.right)} over {s.depth} terms"
    if isinstance(s, form.StripLine):
        return f"line %{s.words}[{s.at}..] = %{s.buffer}[{expr_text(s.index)}..] if {expr_text(s.inside)}, {s.strip.bytes} bytes for 4 lanes"
    if isinstance(s, form.Words):
        return f"words %{s.words}[{s.at}..] = %{s.buffer}[{expr_text(s.index)}..], {s.bytes} bytes"
    if isinstance(s, form.Pack):
        return f"words %{s.words}[{s.at}..] = %{s.source}, {s.bytes} bytes"
    if isinstance(s, form.FewMultiply):
        return f"few %{s.sums}[{s.at}..] += %{s.words} * %{s.values}, {8 * s.halves}x8 of {s.left} * {s.right} over {4 * s.terms} terms" + _packed(s)
    if isinstance(s, form.StripMultiply):
        how = s.strip
        return (f"strip %{s.sums} = %{s.words} * %{s.weights}[{expr_text(s.index)}..], {16 * how.parts}x{how.columns} of {how.left} * {how.right}, "
                f"{how.lines} lines of {how.bytes} bytes, {2 * how.group} columns side by side")
    if isinstance(s, form.WindowMultiply):
        w = s.window
        terms = f"{w.down[0]} rows of {w.run} elements" if w.gathered else f"{w.down[0]} rows of {w.across[0]} pixels of {w.pixel} bytes"
        return (f"window %{s.sums} = %{s.tile}[{expr_text(s.at)}.. pixel {expr_text(s.column)}] * %{s.weights}[{expr_text(s.index)}..], "
                f"{16 * w.parts}x{8 * w.tiles} of {w.left} * {w.right}, {terms}, {w.rows} of the result")
    if isinstance(s, form.Trade):
        return f"%{s.target} = trade %{s.source}"
    if isinstance(s, form.Contract):
        r = s.ring
        at = f"{expr_text(s.row)}, {expr_text(s.column)}, batch {expr_text(s.batch)}"
        return (f"contract %{s.sums} = {_panel(s.left, r.along[0])} * {_panel(s.right, r.along[1])} at {at}, {expr_text(s.terms)} terms, "
                f"{r.rows}x{r.n} by {r.teams} teams, {r.stages} stages, maps %{s.maps}")
    if isinstance(s, form.StoreFragment):
        return f"%{s.buffer}[0.. pitch {s.pitch}] = part {expr_text(s.part)} of {s.fragment}"
    if isinstance(s, form.CopyAsync):
        return f"copy %{s.buffer}[{expr_text(s.index)}..] = %{s.origin}[{expr_text(s.source)}..] if {expr_text(s.inside)}"
    if isinstance(s, form.Await):
        return f"await {s.pending}{', shown' if s.shown else ''}"
    if isinstance(s, form.Commit):
        return "commit"
    assert_never(s)


def _by(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"


def _factor(f: form.Factor) -> str:
    return f"%{f.buffer}[{expr_text(f.index)}.. pitch {f.pitch}{'' if f.along else ' across'}]"


def _panel(p: form.Panel, along: bool) -> str:
    sizes, steps = ", ".join(map(expr_text, p.sizes)), ", ".join(map(expr_text, p.steps))
    moved = "" if p.other == p.buffer else f" or %{p.other} if {expr_text(p.moved)}"
    boxes = "" if p.boxes is None else f" in boxes of {p.boxes.pixels}"
    return f"%{p.buffer}[{sizes} steps {steps}{'' if along else ' across'}]{moved}{boxes}"


def _if(s: form.If, level: int) -> Iterator[str]:
    pad = "  " * level
    yield f"{pad}if {expr_text(s.cond)} {{"
    yield from _block(s.then, level + 1)
    if s.other:
        yield f"{pad}}} else {{"
        yield from _block(s.other, level + 1)
    yield f"{pad}}}"


def expr_text(x: form.Expr, around: int = 0) -> str:
    """An expression as PLIR would write it; operations that `ir/functions.py` does not have are called."""
    if isinstance(x, form.Const):
        return _const(x)
    if isinstance(x, form.Ref):
        return x.name
    if isinstance(x, form.Convert):
        return f"{'sat_' if x.saturate else ''}{x.to}({expr_text(x.arg)})"
    if isinstance(x, form.Choose):
        return f"choose({expr_text(x.cond)}, {expr_text(x.then)}, {expr_text(x.other)})"
    if isinstance(x, form.Load):
        return f"%{x.buffer}[{expr_text(x.index)}]"
    if isinstance(x, form.Aligned):
        return f"aligned(%{x.buffer}, {x.bytes})"
    if isinstance(x, form.Thread):
        return "thread"
    if x.fn in _INFIX:
        own = _INFIX[x.fn]
        text = f"{expr_text(x.args[0], own)} {x.fn}{'~' if x.reorder else ''} {expr_text(x.args[1], own + 1)}"
        return f"({text})" if own < around else text
    if x.fn == "neg":
        return f"-{expr_text(x.args[0], 7)}"
    return f"{x.fn}({', '.join(map(expr_text, x.args))})"


def _const(x: form.Const) -> str:
    if x.dtype is BOOL:
        return "true" if x.value else "false"
    if x.dtype is I64:
        return str(x.value)
    text = repr(x.value)
    return text if x.dtype is F32 and not text.lstrip("-").isalpha() else f"{text}:{x.dtype}"


def _packed(s: form.FewMultiply) -> str:
    """What becomes of the values of a product of few rows before they are multiplied."""
    if s.packed is None:
        return ""
    return f", packed {'i4' if s.nibbles else s.packed}" + "".join(f", times {expr_text(x)}" for x in s.scale)
