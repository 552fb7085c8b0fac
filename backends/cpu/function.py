"""One function of LLVM IR while it is written: what its names stand for, how its frame is read, how its accesses are marked, how it ends."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pipelink_ir.backends.cpu.convert import compute_type
from pipelink_ir.backends.cpu.irtext import Body, IRModule, Value
from pipelink_ir.backends.loops.form import Block, For, If, Kernel, Stmt, Store
from pipelink_ir.ir.dtypes import DType

FAST = "reassoc contract arcp afn "
"""The flags of an operator with `fast_math`: no assumption about NaN and infinities among them."""


def sanitise(name: str) -> str:
    """A name as part of a symbol: letters, digits, `_` and `.` stay, all else becomes its code between dollars; no two names meet."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.") else f"${ord(c):x}$" for c in name)


def slots(kernel: Kernel) -> int:
    """Eight-byte slots in the frame of `kernel`; the last one is the status block's."""
    return len(kernel.buffers) + len(kernel.symbols) + len(kernel.scalars) + 1


@dataclass(slots=True)
class Place:
    """A buffer: its address, its dtype, and the metadata that its accesses carry."""

    address: str
    memory: DType
    marks: str


@dataclass(slots=True)
class Function:
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
    places: dict[str, Place] = field(default_factory=dict)
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


def start(module: IRModule, kernel: Kernel, shared: Mapping[str, str] = MappingProxyType({})) -> Function:
    """A function that has read its frame. `shared`: buffers that may lie in one place, each with a name for the place."""
    function = Function(module, kernel, Body(module, flags=FAST if kernel.fast_math else ""))
    lines, at = function.entry, 0

    def slot(name: str, kind: str, extra: str = "") -> str:
        nonlocal at
        lines.append(f"  %{name}.at = getelementptr inbounds nuw i64, ptr %frame, i64 {at}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}.at, align 8{extra}")
        at += 1
        return f"%{name}"

    marks = _buffer_marks(function, shared)
    for n, buffer in enumerate(kernel.buffers):
        function.places[buffer.name] = Place(slot(f"b{n}.{sanitise(buffer.name)}", "ptr"), buffer.memory, marks[buffer.name])
    for n, name in enumerate(kernel.symbols):
        function.names[name] = Value(slot(f"d{n}.{sanitise(name)}", "i64"), "i64")
        function.index_names.add(name)
    for n, (name, dtype) in enumerate(kernel.scalars):
        kind = compute_type(dtype)
        text = slot(f"s{n}.{sanitise(name)}", "i8" if kind == "i1" else kind)
        if kind == "i1":
            lines.append(f"  {text}.bit = icmp ne i8 {text}, 0")
            text += ".bit"
        function.names[name] = Value(text, kind)
    slot("status", "ptr")
    return function


def _buffer_marks(function: Function, shared: Mapping[str, str]) -> dict[str, str]:
    """Alias metadata: each buffer that the kernel writes is apart from all others; those it only reads are one class; operands and the results that may take
    over their memory are one class. Scratch is its own class."""
    kernel, node, unique = function.kernel, function.module.node, function.module.unique
    written = _stored(kernel.body)
    domain = unique()
    classes = {b.name: b.name if b.name in written else "" for b in kernel.buffers}
    classes |= {b.name: f"{shared[b.name]} and others" for b in kernel.buffers if b.name in shared}
    scopes = {c: unique(domain) for c in sorted({*classes.values(), ""})}
    spare = unique(domain)
    everything = [*scopes.values(), spare]
    lists = {c: (node(f"!{{{s}}}"), node("!{" + ", ".join(x for x in everything if x != s) + "}")) for c, s in scopes.items()}
    function.scratch = f", !alias.scope {node(f'!{{{spare}}}')}, !noalias {node('!{' + ', '.join(scopes.values()) + '}')}"
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


def finish(function: Function, head: str, result: str) -> None:
    """The function's text: entry, body, the blocks that free and return."""
    body = function.body
    body.line("br label %leave")
    body.label("leave")
    for n, slot in enumerate(function.heap):
        body.line(f"%free.{n} = load ptr, ptr {slot}")
        body.line(f"call void @free(ptr %free.{n})")
    if function.heap:
        function.module.declarations.setdefault("free", "declare void @free(ptr) nounwind")
    body.line(f"ret {result}")
    name = head.split("@")[1].split("(")[0]
    function.module.functions[name] = "\n".join([head + " {", "entry:", *function.slots, *function.entry, "  br label %start", "start:", *body.lines, "}", ""])


def fail(e: Function, site: int, values: list[Value]) -> None:
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
