"""From the loop form to LLVM IR: a program as one module, a kernel as one function.

A kernel is `void @k0.NAME(ptr frame, i64 begin, i64 end)`. The frame holds eight bytes for each of: the kernel's buffers (addresses), its symbols, its
scalars, and the address of the status block. A kernel with a parallel loop runs iterations `begin` to `end` of it, counted from 0, and has a
companion `i64 @n0.NAME(ptr frame)` that says how many there are.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from pipelink_ir.backends.cpu.convert import cast, compute_type, from_memory, memory_type, to_memory
from pipelink_ir.backends.cpu.irtext import Body, Features, IRModule, Value
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
    Kernel,
    Let,
    Load,
    Op,
    Program,
    Ref,
    Stmt,
    Store,
    Var,
)
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import DType

STATUS_WORDS = 6
"""i64 words of the status block: taken (0 or 1), the number of the site, four values."""

OUT_OF_MEMORY = -1
"""The number of the site that stands for memory that could not be had."""

STACK_LIMIT = 64 << 10
"""Bytes of scratch that one kernel keeps on the stack."""

_FAST = "reassoc contract arcp afn "
_REORDER = "reassoc nsz "


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The symbols of one kernel; `count` is None where there is no parallel loop."""

    kernel: Kernel
    symbol: str
    count: str | None


@dataclass(frozen=True, slots=True)
class ProgramCode:
    """A program as LLVM IR."""

    program: Program
    text: str
    kernels: tuple[KernelCode, ...]
    externals: frozenset[str]

    @property
    def symbols(self) -> list[str]:
        return [s for k in self.kernels for s in (k.symbol, k.count) if s]


def sanitise(name: str) -> str:
    """A name as part of a symbol: letters, digits, `_` and `.` stay, all else becomes its code between dollars; no two names meet."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.") else f"${ord(c):x}$" for c in name)


def emit_program(program: Program, features: Features, triple: str, layout: str) -> ProgramCode:
    """One module for `program`."""
    module = IRModule(features)
    kernels = emit_into(module, program)
    return ProgramCode(program, module.text(triple, layout), kernels, frozenset(module.externals))


def emit_into(module: IRModule, program: Program) -> tuple[KernelCode, ...]:
    """The kernels of `program` as further functions of `module`."""
    out = []
    for n, kernel in enumerate(program.kernels):
        symbol = f"k{n}.{sanitise(program.name)}"
        count = f"n{n}.{sanitise(program.name)}" if kernel.loop else None
        _emit_kernel(module, kernel, symbol)
        if count:
            _emit_count(module, kernel, count)
        out.append(KernelCode(kernel, symbol, count))
    return tuple(out)


# -------------------------------------------------------------------------------------------------------------------------- frames


def slots(kernel: Kernel) -> int:
    """Eight-byte slots in the frame of `kernel`; the last one is the status block's."""
    return len(kernel.buffers) + len(kernel.symbols) + len(kernel.scalars) + 1


@dataclass(slots=True)
class _Place:
    """A buffer: its address, its dtype, and the metadata that its accesses carry."""

    address: str
    memory: DType
    marks: str


@dataclass(slots=True)
class _Emitter:
    """The state of one function."""

    module: IRModule
    kernel: Kernel
    body: Body
    slots: list[str] = field(default_factory=list)
    """The allocations on the stack; LLVM turns into registers only what the very first block allocates."""
    entry: list[str] = field(default_factory=list)
    """Lines before the kernel's own: the frame is read, heap scratch is allocated."""
    names: dict[str, Value] = field(default_factory=dict)
    variables: dict[str, Value] = field(default_factory=dict)
    """Addresses of `Var`s, with the type of what they hold."""
    places: dict[str, _Place] = field(default_factory=dict)
    index_names: set[str] = field(default_factory=set)
    """i64 names made of loop variables and symbols alone."""
    heap: list[str] = field(default_factory=list)
    """Slots of addresses to be freed when the function ends."""
    group: str = ""
    """The access group of the innermost loop whose iterations are independent."""
    stack: int = 0
    labels: int = 0
    scratch: str = ""
    """The alias metadata of all scratch."""

    def label(self, stem: str) -> str:
        self.labels += 1
        return f"{stem}.{self.labels}"

    def jump(self, label: str) -> None:
        self.body.line(f"br label %{label}")

    def branch(self, cond: Value, yes: str, no: str) -> None:
        self.body.line(f"br i1 {cond.text}, label %{yes}, label %{no}")


def _start(module: IRModule, kernel: Kernel) -> _Emitter:
    """A function that has read its frame."""
    emitter = _Emitter(module, kernel, Body(module, flags=_FAST if kernel.fast_math else ""))
    lines, at = emitter.entry, 0

    def slot(name: str, kind: str, extra: str = "") -> str:
        nonlocal at
        lines.append(f"  %{name}.at = getelementptr inbounds nuw i64, ptr %frame, i64 {at}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}.at, align 8{extra}")
        at += 1
        return f"%{name}"

    marks = _buffer_marks(emitter)
    for n, buffer in enumerate(kernel.buffers):
        emitter.places[buffer.name] = _Place(slot(f"b{n}.{sanitise(buffer.name)}", "ptr"), buffer.memory, marks[buffer.name])
    for n, name in enumerate(kernel.symbols):
        emitter.names[name] = Value(slot(f"d{n}.{sanitise(name)}", "i64"), "i64")
        emitter.index_names.add(name)
    for n, (name, dtype) in enumerate(kernel.scalars):
        kind = compute_type(dtype)
        text = slot(f"s{n}.{sanitise(name)}", "i8" if kind == "i1" else kind)
        if kind == "i1":
            lines.append(f"  {text}.bit = icmp ne i8 {text}, 0")
            text += ".bit"
        emitter.names[name] = Value(text, kind)
    slot("status", "ptr")
    return emitter


def _buffer_marks(emitter: _Emitter) -> dict[str, str]:
    """Alias metadata: each buffer that the kernel writes is apart from all others; those it only reads are one class. Scratch is its own class."""
    kernel, node, unique = emitter.kernel, emitter.module.node, emitter.module.unique
    written = _stored(kernel.body)
    domain = unique()
    classes = {b.name: b.name if b.name in written else "" for b in kernel.buffers}
    scopes = {c: unique(domain) for c in sorted({*classes.values(), ""})}
    spare = unique(domain)
    everything = [*scopes.values(), spare]
    lists = {c: (node(f"!{{{s}}}"), node("!{" + ", ".join(x for x in everything if x != s) + "}")) for c, s in scopes.items()}
    emitter.scratch = f", !alias.scope {node(f'!{{{spare}}}')}, !noalias {node('!{' + ', '.join(scopes.values()) + '}')}"
    return {b: f", !alias.scope {lists[c][0]}, !noalias {lists[c][1]}" for b, c in classes.items()}


def _stored(block: Block) -> set[str]:
    out: set[str] = set()
    todo: list[Stmt] = list(block)
    while todo:
        stmt = todo.pop()
        if isinstance(stmt, Store):
            out.add(stmt.buffer)
        elif isinstance(stmt, For):
            todo += stmt.body
        elif isinstance(stmt, If):
            todo += [*stmt.then, *stmt.other]
    return out


def _finish(emitter: _Emitter, head: str, result: str) -> None:
    """The function's text: entry, body, the blocks that free and return."""
    body = emitter.body
    body.line("br label %leave")
    body.label("leave")
    for n, slot in enumerate(emitter.heap):
        body.line(f"%free.{n} = load ptr, ptr {slot}")
        body.line(f"call void @free(ptr %free.{n})")
    if emitter.heap:
        emitter.module.declarations.setdefault("free", "declare void @free(ptr) nounwind")
    body.line(f"ret {result}")
    name = head.split("@")[1].split("(")[0]
    emitter.module.functions[name] = "\n".join([head + " {", "entry:", *emitter.slots, *emitter.entry, "  br label %start", "start:", *body.lines, "}", ""])


def _emit_kernel(module: IRModule, kernel: Kernel, symbol: str) -> None:
    emitter = _start(module, kernel)
    loop = kernel.loop
    for stmt in kernel.body[:-1] if loop else kernel.body:
        _stmt(emitter, stmt)
    if loop:
        _parallel(emitter, loop)
    _finish(emitter, f"define void @{symbol}(ptr noundef nonnull %frame, i64 noundef %begin, i64 noundef %end) nounwind", "void")


def _emit_count(module: IRModule, kernel: Kernel, symbol: str) -> None:
    """max(0, ceil((hi - lo) / step))."""
    emitter, loop = _start(module, kernel), kernel.loop
    assert loop is not None
    for stmt in kernel.body[:-1]:
        _stmt(emitter, stmt)
    b = emitter.body
    lo, hi, step = (_index(emitter, e) for e in (loop.lo, loop.hi, loop.step))
    one = b.const("i64", 1)
    length = b.sub(b.intrinsic("smax", hi, lo), lo)
    count = b.binary("udiv", b.sub(b.add(length, step), one), step)
    _finish(emitter, f"define i64 @{symbol}(ptr noundef nonnull %frame) nounwind", f"i64 {count.text}")


# ---------------------------------------------------------------------------------------------------------------------- expressions


def _expr(e: _Emitter, x: Expr) -> Value:
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
    return _load(e, x)


def _ref(e: _Emitter, x: Ref) -> Value:
    if x.name in e.names:
        return e.names[x.name]
    slot = e.variables.get(x.name)
    if slot is None:
        internal_error(f"kernel {e.kernel.name}: '{x.name}' is not bound")
    return e.body.define(slot.type, f"load {slot.type}, ptr {slot.text}")


def _op(e: _Emitter, x: Op) -> Value:
    args = [_expr(e, a) for a in x.args]
    if x.reorder and x.fn == "+" and args[0].type in ("float", "double"):
        b = e.body
        return b.define(args[0].type, f"fadd {_REORDER}{args[0].type} {args[0].text}, {args[1].text}")
    return apply(e.body, x.fn, *args)


def _is_index(e: _Emitter, x: Expr) -> bool:
    """Made of loop variables, symbols and constants alone: it never wraps."""
    if isinstance(x, Const):
        return True
    if isinstance(x, Ref):
        return x.name in e.index_names
    return isinstance(x, Op) and x.fn in ("+", "-", "*", "quot", "rest") and all(_is_index(e, a) for a in x.args)


_NSW = {"+": "add nsw", "-": "sub nsw", "*": "mul nsw"}


def _index(e: _Emitter, x: Expr) -> Value:
    """An expression that counts elements or iterations."""
    if isinstance(x, Op) and x.fn in _NSW and len(x.args) == 2:
        a, b = (_index(e, y) for y in x.args)
        return e.body.binary(_NSW[x.fn] if _is_index(e, x) else _NSW[x.fn][:3], a, b)
    return _expr(e, x)


def _address(e: _Emitter, name: str, index: Expr, memory: DType) -> tuple[str, str, str]:
    """(address, type, metadata) of an element."""
    place = e.places.get(name)
    if place is None:
        internal_error(f"kernel {e.kernel.name}: buffer '{name}' is not known")
    if place.memory is not memory:
        internal_error(f"kernel {e.kernel.name}: '{name}' holds {place.memory}, not {memory}")
    kind = memory_type(memory, e.module.features.f16c)
    at = _index(e, index)
    pointer = e.body.fresh()
    e.body.line(f"{pointer} = getelementptr inbounds nuw {kind}, ptr {place.address}, i64 {at.text}")
    group = f", !llvm.access.group {e.group}" if e.group else ""
    return pointer, kind, f", align {memory.bytes}{place.marks}{group}"


def _load(e: _Emitter, x: Load) -> Value:
    pointer, kind, marks = _address(e, x.buffer, x.index, x.memory)
    return from_memory(e.body, e.body.define(kind, f"load {kind}, ptr {pointer}{marks}"), x.memory)


# ----------------------------------------------------------------------------------------------------------------------- statements


def _block(e: _Emitter, block: Block) -> None:
    """Statements in order; what they bind ends with the block, and its heap scratch is freed."""
    names, variables, places, index_names = dict(e.names), dict(e.variables), dict(e.places), set(e.index_names)
    for stmt in block:
        _stmt(e, stmt)
    e.names, e.variables, e.places, e.index_names = names, variables, places, index_names


def _stmt(e: _Emitter, stmt: Stmt) -> None:
    b = e.body
    match stmt:
        case Let(name, value):
            e.names[name] = _expr(e, value)
            if _is_index(e, value):
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
            _fail(e, site, [_expr(e, v) for v in values])


def _declare(e: _Emitter, name: str, kind: str, init: Value) -> None:
    slot = e.body.fresh()
    e.slots.append(f"  {slot} = alloca {kind}")
    e.body.line(f"store {kind} {init.text}, ptr {slot}")
    e.variables[name] = Value(slot, kind)
    e.names.pop(name, None)


def _if(e: _Emitter, stmt: If) -> None:
    then, other, end = e.label("then"), e.label("else"), e.label("end")
    e.branch(_expr(e, stmt.cond), then, other if stmt.other else end)
    for label, block in ((then, stmt.then), (other, stmt.other)):
        if block or label == then:
            e.body.label(label)
            _block(e, block)
            e.jump(end)
    e.body.label(end)


def _for(e: _Emitter, loop: For) -> None:
    lo, hi, step = (_index(e, x) for x in (loop.lo, loop.hi, loop.step))
    _loop(e, loop, lo, hi, step, _is_index(e, loop.lo))


def _parallel(e: _Emitter, loop: For) -> None:
    """Iterations `begin` to `end` of the parallel loop."""
    b = e.body
    lo, step = _index(e, loop.lo), _index(e, loop.step)
    first = b.binary("add nsw", lo, b.binary("mul nsw", Value("%begin", "i64"), step))
    last = b.binary("add nsw", lo, b.binary("mul nsw", Value("%end", "i64"), step))
    _loop(e, loop, first, last, step, _is_index(e, loop.lo))


def _loop(e: _Emitter, loop: For, lo: Value, hi: Value, step: Value, index: bool) -> None:
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
    marks = f", !llvm.loop {_loop_node(e, e.group)}" if vector else ""
    e.group, e.names, e.index_names = outer_group, names, index_names
    e.jump(latch)
    b.label(latch)
    b.line(f"{var}.next = add nsw i64 {var}, {step.text}")
    b.line(f"br label %{head}{marks}")
    b.label(end)


def _loop_node(e: _Emitter, group: str) -> str:
    return e.module.unique(e.module.node(f'!{{!"llvm.loop.parallel_accesses", {group}}}'))


def _fail(e: _Emitter, site: int, values: list[Value]) -> None:
    """Out of the way: the function is cold and not inlined."""
    e.module.functions.setdefault("pl.fail", _FAIL)
    given = [e.body.convert("sext", v, "i64") if v.type != "i1" else e.body.convert("zext", v, "i64") for v in values[:4]]
    texts = [v.text for v in given] + ["0"] * (4 - len(given))
    e.body.line(f"call void @pl.fail(ptr %status, i64 {site}, {', '.join(f'i64 {t}' for t in texts)})")


_FAIL = """define internal void @pl.fail(ptr %status, i64 %site, i64 %v0, i64 %v1, i64 %v2, i64 %v3) cold noinline nounwind {
  %pair = cmpxchg ptr %status, i64 0, i64 1 acq_rel monotonic
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %record, label %leave
record:
  %p1 = getelementptr inbounds i64, ptr %status, i64 1
  store i64 %site, ptr %p1
  %p2 = getelementptr inbounds i64, ptr %status, i64 2
  store i64 %v0, ptr %p2
  %p3 = getelementptr inbounds i64, ptr %status, i64 3
  store i64 %v1, ptr %p3
  %p4 = getelementptr inbounds i64, ptr %status, i64 4
  store i64 %v2, ptr %p4
  %p5 = getelementptr inbounds i64, ptr %status, i64 5
  store i64 %v3, ptr %p5
  br label %leave
leave:
  ret void
}
"""


# -------------------------------------------------------------------------------------------------------------------------- scratch


def _alloc(e: _Emitter, stmt: Alloc) -> None:
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
    e.places[stmt.name] = _Place(name, stmt.memory, e.scratch)


def _of_symbols(e: _Emitter, x: Expr) -> bool:
    if isinstance(x, Const):
        return True
    if isinstance(x, Ref):
        return x.name in e.kernel.symbols
    return isinstance(x, Op) and all(_of_symbols(e, a) for a in x.args)


def _heap_at_entry(e: _Emitter, stmt: Alloc, name: str) -> None:
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


def _heap_here(e: _Emitter, stmt: Alloc, name: str) -> None:
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


def _heap_slot(e: _Emitter) -> str:
    slot = f"%heap{len(e.heap)}"
    e.slots += [f"  {slot} = alloca ptr", f"  store ptr null, ptr {slot}"]
    e.heap.append(slot)
    e.module.declarations.setdefault("aligned_alloc", "declare noalias ptr @aligned_alloc(i64, i64) nounwind")
    return slot


def _bytes(e: _Emitter, stmt: Alloc) -> Value:
    """The size in bytes, a multiple of 64 and not 0."""
    b = e.body
    size = b.mul(_expr(e, stmt.size), b.const("i64", stmt.memory.bytes))
    return b.band(b.add(size, b.const("i64", 64)), b.const("i64", -64))


def _check_memory(e: _Emitter, name: str) -> None:
    failed, fine = e.label("nomemory"), e.label("memory")
    e.branch(e.body.define("i1", f"icmp eq ptr {name}, null"), failed, fine)
    e.body.label(failed)
    _fail(e, OUT_OF_MEMORY, [])
    e.jump("leave")
    e.body.label(fine)
