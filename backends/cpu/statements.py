"""Statements and expressions of the loop form as the lines of a function."""
from __future__ import annotations

from pipelink_ir.backends.cpu.convert import cast, compute_type, from_memory, memory_type, to_memory
from pipelink_ir.backends.cpu.function import Function, Place, fail, sanitise
from pipelink_ir.backends.cpu.irtext import Value
from pipelink_ir.backends.cpu.mathlib import apply
from pipelink_ir.backends.loops.form import (
    Alloc,
    Assign,
    Block,
    Choose,
    Const,
    Convert,
    Expr,
    Fail,
    For,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    Var,
)
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DType

OUT_OF_MEMORY = -1
"""The number of the site that stands for memory that could not be had."""

STACK_LIMIT = 64 << 10
"""Bytes of scratch that one kernel keeps on the stack."""

UNROLLED_TURNS, UNROLLED_STATEMENTS = 9, 100
"""Turns of a loop of constant length, and statements in all, up to which it is written out."""

_REORDER = "reassoc nsz "


def _expr(e: Function, x: Expr) -> Value:
    b = e.body
    if isinstance(x, Const):
        return b.const(compute_type(x.dtype), x.value)
    if isinstance(x, Ref):
        return _ref(e, x)
    if isinstance(x, Op):
        return _op(e, x)
    if isinstance(x, Convert):
        return cast(b, _expr(e, x.arg), x.to, x.saturate)
    if isinstance(x, Choose):
        return b.select(_expr(e, x.cond), _expr(e, x.then), _expr(e, x.other))
    if isinstance(x, Load):
        return _load(e, x)
    internal_error(f"kernel {e.kernel.name}: '{type(x).__name__}' is for GPUs")


def _ref(e: Function, x: Ref) -> Value:
    if x.name in e.names:
        return e.names[x.name]
    slot = e.variables.get(x.name)
    if slot is None:
        internal_error(f"kernel {e.kernel.name}: '{x.name}' is not bound")
    return e.body.define(slot.type, f"load {slot.type}, ptr {slot.text}")


def _op(e: Function, x: Op) -> Value:
    args = [_expr(e, a) for a in x.args]
    if x.reorder and x.fn == "+" and args[0].type in ("float", "double"):
        b = e.body
        return b.define(args[0].type, f"fadd {_REORDER}{args[0].type} {args[0].text}, {args[1].text}")
    return apply(e.body, x.fn, *args)


def _isindex_value(e: Function, x: Expr) -> bool:
    """Made of loop variables, symbols and constants alone: it never wraps."""
    if isinstance(x, Const):
        return True
    if isinstance(x, Ref):
        return x.name in e.index_names
    return isinstance(x, Op) and x.fn in ("+", "-", "*", "quot", "rest") and all(_isindex_value(e, a) for a in x.args)


_NSW = {"+": "add nsw", "-": "sub nsw", "*": "mul nsw"}


def index_value(e: Function, x: Expr) -> Value:
    """An expression that counts elements or iterations."""
    if isinstance(x, Op) and x.fn in _NSW and len(x.args) == 2:
        a, b = (index_value(e, y) for y in x.args)
        return e.body.binary(_NSW[x.fn] if _isindex_value(e, x) else _NSW[x.fn][:3], a, b)
    return _expr(e, x)


def _address(e: Function, name: str, index: Expr, memory: DType) -> tuple[str, str, str]:
    """(address, type, metadata) of an element."""
    place = e.places.get(name)
    if place is None:
        internal_error(f"kernel {e.kernel.name}: buffer '{name}' is not known")
    if place.memory is not memory:
        internal_error(f"kernel {e.kernel.name}: '{name}' holds {place.memory}, not {memory}")
    kind = memory_type(memory, e.module.features.f16c)
    at = index_value(e, index)
    pointer = e.body.fresh()
    e.body.line(f"{pointer} = getelementptr inbounds nuw {kind}, ptr {place.address}, i64 {at.text}")
    group = f", !llvm.access.group {e.group}" if e.group else ""
    return pointer, kind, f", align {memory.bytes}{place.marks}{group}"


def _load(e: Function, x: Load) -> Value:
    pointer, kind, marks = _address(e, x.buffer, x.index, x.memory)
    return from_memory(e.body, e.body.define(kind, f"load {kind}, ptr {pointer}{marks}"), x.memory)


# ----------------------------------------------------------------------------------------------------------------------- statements


def _block(e: Function, block: Block) -> None:
    """Statements in order; what they bind ends with the block, and its heap scratch is freed."""
    names, variables, places, index_names = dict(e.names), dict(e.variables), dict(e.places), set(e.index_names)
    for stmt in block:
        statement(e, stmt)
    e.names, e.variables, e.places, e.index_names = names, variables, places, index_names


def statement(e: Function, stmt: Stmt) -> None:
    b = e.body
    match stmt:
        case Let(name, value):
            e.names[name] = _expr(e, value)
            if _isindex_value(e, value):
                e.index_names.add(name)
        case Var(name, dtype, init):
            _declare(e, name, compute_type(dtype), _expr(e, init))
        case Assign(name, value):
            v, slot = _expr(e, value), e.variables[name]
            b.line(f"store {v.type} {v.text}, ptr {slot.text}")
        case Store(buffer, index, value, memory):
            raw = to_memory(b, _expr(e, value), memory)
            pointer, kind, marks = _address(e, buffer, index, memory)
            b.line(f"store {kind} {b.convert('bitcast', raw, kind).text}, ptr {pointer}{marks}")
        case For():
            _for(e, stmt)
        case If():
            _if(e, stmt)
        case Alloc():
            _alloc(e, stmt)
        case Fail(site, values):
            fail(e, site, [_expr(e, v) for v in values])


def _declare(e: Function, name: str, kind: str, init: Value) -> None:
    slot = e.body.fresh()
    e.slots.append(f"  {slot} = alloca {kind}")
    e.body.line(f"store {kind} {init.text}, ptr {slot}")
    e.variables[name] = Value(slot, kind)
    e.names.pop(name, None)


def _if(e: Function, stmt: If) -> None:
    then, other, end = e.label("then"), e.label("else"), e.label("end")
    e.branch(_expr(e, stmt.cond), then, other if stmt.other else end)
    for label, block in ((then, stmt.then), (other, stmt.other)):
        if block or label == then:
            e.body.label(label)
            _block(e, block)
            e.jump(end)
    e.body.label(end)


def _for(e: Function, loop: For) -> None:
    lo, hi, step = (index_value(e, x) for x in (loop.lo, loop.hi, loop.step))
    _loop(e, loop, lo, hi, step, _isindex_value(e, loop.lo))


def parallel_loop(e: Function, loop: For) -> None:
    """Iterations `begin` to `end` of the parallel loop."""
    b = e.body
    lo, step = index_value(e, loop.lo), index_value(e, loop.step)
    first = b.binary("add nsw", lo, b.binary("mul nsw", Value("%begin", "i64"), step))
    last = b.binary("add nsw", lo, b.binary("mul nsw", Value("%end", "i64"), step))
    _loop(e, loop, first, last, step, _isindex_value(e, loop.lo))


def _loop(e: Function, loop: For, lo: Value, hi: Value, step: Value, index: bool) -> None:
    b = e.body
    before, head, inside, latch, end = (e.label(s) for s in ("before", "head", "body", "next", "end"))
    var = f"%i.{sanitise(loop.var)}.{e.labels}"
    e.jump(before)
    b.label(before)
    e.jump(head)
    b.label(head)
    b.line(f"{var} = phi i64 [ {lo.text}, %{before} ], [ {var}.next, %{latch} ]")
    e.branch(b.compare("slt", Value(var, "i64"), hi), inside, end)
    b.label(inside)
    outer_group, names, index_names = e.group, dict(e.names), set(e.index_names)
    vector = loop.vector and not any(isinstance(s, Alloc) for s in loop.body)
    if vector:
        e.group = e.module.node("distinct !{}")
    e.names[loop.var] = Value(var, "i64")
    e.variables.pop(loop.var, None)
    if index:
        e.index_names.add(loop.var)
    _block(e, loop.body)
    marks = _loop_marks(e, e.group if vector else "", _is_short(loop))
    e.group, e.names, e.index_names = outer_group, names, index_names
    e.jump(latch)
    b.label(latch)
    b.line(f"{var}.next = add nsw i64 {var}, {step.text}")
    b.line(f"br label %{head}{marks}")
    b.label(end)


def _loop_marks(e: Function, group: str, unroll: bool) -> str:
    node = e.module.node
    wishes = [node(f'!{{!"llvm.loop.parallel_accesses", {group}}}')] if group else []
    wishes += [node('!{!"llvm.loop.unroll.full"}')] if unroll else []
    return f", !llvm.loop {e.module.unique(*wishes)}" if wishes else ""


def _is_short(loop: For) -> bool:
    """A few turns over a body without loops: better written out, so that what is around it can become vectors."""
    lo, hi, step = loop.lo, loop.hi, loop.step
    if not (isinstance(lo, Const) and isinstance(hi, Const) and isinstance(step, Const)) or loop.kind == "parallel":
        return False
    turns = len(range(int(lo.value), int(hi.value), int(step.value)))
    return turns <= UNROLLED_TURNS and turns * len(loop.body) <= UNROLLED_STATEMENTS and not any(isinstance(s, For) for s in loop.body)


# -------------------------------------------------------------------------------------------------------------------------- scratch


def _alloc(e: Function, stmt: Alloc) -> None:
    """Small constant sizes live on the stack; sizes known when the function begins are allocated there, once; others where they stand."""
    kind = memory_type(stmt.memory, e.module.features.f16c)
    size = stmt.size.value if isinstance(stmt.size, Const) else None
    name = f"%t.{sanitise(stmt.name)}.{e.body.fresh()[1:]}"
    if size is not None and e.stack + int(size) * stmt.memory.bytes <= STACK_LIMIT:
        e.stack += int(size) * stmt.memory.bytes
        e.slots.append(f"  {name} = alloca [{max(1, int(size))} x {kind}], align 64")
    elif _of_symbols(e, stmt.size):
        _heap_at_entry(e, stmt, name)
    else:
        _heap_here(e, stmt, name)
    e.places[stmt.name] = Place(name, stmt.memory, e.scratch)


def _of_symbols(e: Function, x: Expr) -> bool:
    if isinstance(x, Const):
        return True
    if isinstance(x, Ref):
        return x.name in e.kernel.symbols
    return isinstance(x, Op) and all(_of_symbols(e, a) for a in x.args)


def _heap_at_entry(e: Function, stmt: Alloc, name: str) -> None:
    """Before the first loop, so that a thread allocates once for all its iterations."""
    lines, e.body.lines = e.body.lines, e.entry
    symbols = {s: e.names[s] for s in e.kernel.symbols}
    names, e.names = e.names, symbols
    slot = _heap_slot(e)
    size = _bytes(e, stmt)
    e.entry.append(f"  {name} = call noalias ptr @aligned_alloc(i64 64, i64 {size.text})")
    e.entry.append(f"  store ptr {name}, ptr {slot}")
    _check_memory(e, name)
    e.body.lines, e.names = lines, names


def _heap_here(e: Function, stmt: Alloc, name: str) -> None:
    """The slot keeps the last address: it is freed when the place is reached again, and at the end."""
    slot = _heap_slot(e)
    b = e.body
    size = _bytes(e, stmt)
    old = b.fresh()
    b.line(f"{old} = load ptr, ptr {slot}")
    e.module.declarations.setdefault("free", "declare void @free(ptr) nounwind")
    b.line(f"call void @free(ptr {old})")
    b.line(f"{name} = call noalias ptr @aligned_alloc(i64 64, i64 {size.text})")
    b.line(f"store ptr {name}, ptr {slot}")
    _check_memory(e, name)


def _heap_slot(e: Function) -> str:
    slot = f"%heap{len(e.heap)}"
    e.slots += [f"  {slot} = alloca ptr", f"  store ptr null, ptr {slot}"]
    e.heap.append(slot)
    e.module.declarations.setdefault("aligned_alloc", "declare noalias ptr @aligned_alloc(i64, i64) nounwind")
    return slot


def _bytes(e: Function, stmt: Alloc) -> Value:
    """The size in bytes, a multiple of 64 and not 0."""
    b = e.body
    size = b.mul(_expr(e, stmt.size), b.const("i64", stmt.memory.bytes))
    return b.band(b.add(size, b.const("i64", 64)), b.const("i64", -64))


def _check_memory(e: Function, name: str) -> None:
    failed, fine = e.label("nomemory"), e.label("memory")
    e.branch(e.body.define("i1", f"icmp eq ptr {name}, null"), failed, fine)
    e.body.label(failed)
    fail(e, OUT_OF_MEMORY, [])
    e.jump("leave")
    e.body.label(fine)
