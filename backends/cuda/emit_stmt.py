"""Statements of the loop form as lines of C++."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pipelink_ir.backends.cuda.emit_expr import Expressions, Place, memory_type
from pipelink_ir.backends.cuda.emit_fragments import Streamed, feeding, fragment_line, has_fragments, stream_lines, streamed_in, tile_text
from pipelink_ir.backends.cuda.emit_own import has_own
from pipelink_ir.backends.cuda.kinds import C_TYPES, addressing, kind_of_dtype, over_symbols
from pipelink_ir.backends.cuda.long_lines import broken
from pipelink_ir.backends.cuda.names import Names
from pipelink_ir.backends.cuda.target_facts import TargetFacts
from pipelink_ir.backends.loops.contents import blocks, exprs, makes
from pipelink_ir.backends.loops.form import (
    Alloc,
    Assign,
    Attend,
    AwaitCount,
    Barrier,
    Block,
    Combine,
    Const,
    Contract,
    Expr,
    Fail,
    For,
    Fragment,
    If,
    Kernel,
    Let,
    Load,
    Move,
    Op,
    Ref,
    Signal,
    Stmt,
    Store,
    TakeWords,
    Trade,
    Var,
)
from pipelink_ir.backends.loops.tidy import parts
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import I64, DType

KEPT = 32
"""Values of a thread that are surely registers."""
LOCAL_BYTES = 16 << 10
"""Bytes of scratch of constant size that each thread keeps for itself; larger ones come from the kernel's scratch."""


@dataclass(frozen=True, slots=True)
class Space:
    """Scratch whose size the host finds out: elements over symbols, bytes of each."""

    name: str
    bytes: int
    count: Expr


@dataclass(slots=True)
class Writer:
    """The lines of one kernel while they are written."""

    kernel: Kernel
    facts: TargetFacts
    scope: Names
    e: Expressions
    lines: list[str] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    """Declarations at the top of the kernel: shared memory, arenas, what is cut off them."""
    level: int = 1
    uniform: bool = False
    """Whether all threads of a block run here alike."""
    guarded: bool = False
    """Whether only the leader runs here."""
    shared: list[Space] = field(default_factory=list)
    private: list[Space] = field(default_factory=list)
    static_shared: int = 0
    uses_status: bool = False
    addressing: frozenset[str] = frozenset()
    """Names of which indices are made."""
    moved: frozenset[str] = frozenset()
    """Memory of which several elements are moved at once."""
    fragments: dict[str, str] = field(default_factory=dict)
    """Matrix fragments by name, as they are called in C++."""
    uses_fragments: bool = False
    stream: str = ""
    """The stream of a kernel that has one, as it is called in C++."""
    feeding: Streamed | None = None
    """What the threads that feed do at the end of the block to come."""
    aliased: frozenset[str] = frozenset()
    """Buffers that may lie where another one does, …"""
    looks: bool = False
    """… and whether all threads of a block look at one of them where only some store to the other: then those wait for all."""

    def __post_init__(self) -> None:
        self.uses_fragments = has_fragments(self.kernel.body)
        self.addressing = addressing(self.kernel, self.e.kinds)
        self.moved = frozenset(_moved(self.kernel.body))
        self.looks = not self.aliased.isdisjoint(_looked_at(self.kernel.body)) if self.aliased else False

    def line(self, text: str) -> None:
        self.lines += broken("  " * self.level + text)

    def name(self, text: str) -> str:
        """Binds a name of the form."""
        out = self.e.names[text] = self.scope.new(text)
        return out

    # ------------------------------------------------------------------------------------------------------------------- statements

    def block(self, body: Block) -> None:
        """The statements of a block, one level further in."""
        self.level += 1
        feeds, self.feeding = self.feeding, None
        shared = heap = False
        held: list[str] = []
        for s in body:
            if isinstance(s, Alloc):
                if s.shared and not shared:
                    shared = True
                    self.line(f"{self.facts.barrier}  // what the last turn left in shared memory has been read")
                heap = self._alloc(s)
                if heap:
                    held.append(self.e.places[s.name].name)
            elif isinstance(s, Store | Move) and self._by_leader(s):
                self._leader(s)
            else:
                self.statement(s)
        self._release(held)
        self.close_leader()
        if feeds is not None:
            self.line(f"{self.stream}.feed({tile_text(feeds, self.e)});")
        self.level -= 1

    def statement(self, s: Stmt) -> None:
        """One statement."""
        self.close_leader()
        e = self.e
        match s:
            case Let(name, value):
                kind = e.kinds.names[name]
                e.bind(name, value)
                text = e.address(value) if name in self.addressing else e.data(value)
                if value == self.kernel.team:
                    text = "pl::threads()"  # what a block was launched with
                self.line(f"const {C_TYPES[kind]} {self.name(name)} = {text};")
            case Var(name, dtype, init):
                text = e.data(init)
                self.line(f"{C_TYPES[kind_of_dtype(dtype)]} {self.name(name)} = {text};")
            case Assign(name, value):
                self._assign(name, value)
            case Store() | Move():
                self._store(s)
            case TakeWords():
                unless = "" if s.outside is None else f", {e.data(s.outside)}, {s.other}"
                to = e.places[s.to].name if s.at is None else f"&{e.places[s.to].name}[{e.address(s.at)}]"
                self.line(f"pl::load_words<{s.count}>({to}, &{e.places[s.source].name}[{e.address(s.index)}]{unless});")
            case For():
                self._for(s)
            case If(cond, then, other):
                self.line(f"if ({e.data(cond)}) {{")
                self.block(then)
                if other:
                    self.line("} else {")
                    self.block(other)
                self.line("}")
            case Alloc():
                internal_error(f"kernel {self.kernel.name}: scratch '{s.name}' stands outside of every block")
            case Fail(site, values):
                self.uses_status = True
                self.line(f"pl::fail({', '.join(['status', str(site), *map(e.data, values)])});")
            case Barrier():
                self.line(self.facts.barrier)
            case Combine():
                self._combine(s)
            case Signal():
                self.line(f"pl::signal(&{e.places[s.buffer].name}[{e.address(s.index)}]);")
            case AwaitCount():
                self.line(f"pl::await_count(&{e.places[s.buffer].name}[{e.address(s.index)}], {e.address(s.count)});")
            case Contract():
                self.line(f"{self.stream}.multiply({e.places[s.sums].name}, {tile_text(s, e)});")
            case Attend():
                self.line(f"{self.stream}.multiply({', '.join(e.places[n].name for n in s.targets)}, {tile_text(s, e)});")
            case _:
                if isinstance(s, Fragment):
                    self.fragments[s.name] = self.scope.new(s.name)
                self.line(fragment_line(s, e, self.fragments))

    def _assign(self, name: str, value: Expr) -> None:
        target = self.e.text(Ref(name, value.dtype))
        if isinstance(value, Op) and value.fn in ("+", "-", "*") and value.args[0] == Ref(name, value.dtype) and value.dtype.is_float:
            self.line(f"{target} {value.fn}= {self.e.data(value.args[1])};")
        else:
            self.line(f"{target} = {self.e.data(value)};")

    def _store(self, s: Store | Move) -> None:
        if isinstance(s, Move):
            self._move(s)
            return
        place = self.e.place(s.buffer, s.memory)
        self.line(f"{place.name}[{self.e.address(s.index)}] = {self.e.stored(s.value, s.memory)};")

    def _move(self, s: Move) -> None:
        to, source = self.e.places[s.to], self.e.places[s.source]
        word = "take" if s.anywhere else "load" if to.private else "store" if source.private else "copy"
        self.line(f"pl::{word}_many<{s.count}>(&{to.name}[{self.e.address(s.at)}], &{source.name}[{self.e.address(s.index)}]);")

    # ------------------------------------------------------------------------------------------ what one thread does for its block

    def _by_leader(self, s: Store | Move) -> bool:
        return self.uniform and not self.e.places[s.buffer if isinstance(s, Store) else s.to].private

    def _leader(self, s: Store | Move) -> None:
        """Neighbouring stores share one `if`."""
        if not self.guarded:
            self._all_have_looked(s)
            self.line("if (pl::leader()) {")
            self.guarded = True
        self.level += 1
        self._store(s)
        self.level -= 1

    def _all_have_looked(self, s: Stmt) -> None:
        """Before some threads store where all of them look."""
        if self.looks and not self.aliased.isdisjoint(_stored([s])):
            self.line(f"{self.facts.barrier}  // what lies where this is stored has been read")

    def close_leader(self) -> None:
        """Ends what only the leader does."""
        if self.guarded:
            self.guarded = False
            self.line("}")

    # ------------------------------------------------------------------------------------------------------------------------ loops

    def _for(self, loop: For) -> None:
        if loop.kind == "serial":
            self._serial(loop)
        elif loop.kind in ("thread", "each"):
            if not self.uniform:
                internal_error(f"kernel {self.kernel.name}: a loop over threads inside another, or outside of a block")
            self._all_have_looked(loop)
            self.uniform = False
            if loop.kind == "each":
                self._by_each(loop)
            elif self.kernel.threads and (loop.lo, loop.hi, loop.step) == (Const(0, I64), Const(self.kernel.threads, I64), Const(1, I64)):
                self._by_each(loop)
            else:
                self._strided(loop, "pl::thread()", "pl::threads()")
            self.uniform = True
        else:
            internal_error(f"kernel {self.kernel.name}: a loop of kind '{loop.kind}' stands inside the kernel")

    def outermost(self, loop: For) -> None:
        """The loop that is spread over the grid."""
        self.close_leader()
        if loop.kind == "block":
            self.uniform = True
            streamed = streamed_in(loop.body)
            if streamed is not None:
                self._streamed(loop, streamed)
                return
            if self.kernel.tickets:
                ticket = f"index_t(pl::ticket({self.e.places[self.kernel.tickets].name}))"
                self._turns(loop, f"{C_TYPES[self.e.kinds.names[loop.var]]} %s = {ticket}", self._end(loop), f"%s = {ticket}")
                return
            self._strided(loop, "pl::block()", "pl::blocks()")
        elif self.kernel.once:
            self._bound(loop)
            self.line(f"PL_TURN({C_TYPES[self.e.kinds.names[loop.var]]}, {self.name(loop.var)}, {self._end(loop)}) {{")
            self.block(loop.body)
            self.line("}")
        else:
            self._strided(loop, "pl::grid_thread()", "pl::grid_threads()")

    def _streamed(self, loop: For, s: Streamed) -> None:
        """A loop over tiles that teams of a block take in turns (or share, if it is attention), while further threads feed them."""
        ring = s.ring if isinstance(s, Contract) else s.flow
        self.stream, shared = self.scope.new("stream"), self.scope.new("ring")
        self.shared.append(Space("ring", 1, Const(ring.shared, I64)))
        self.head.append(f"  u8* const {shared} = common.take<u8>({ring.shared});")
        for text in stream_lines(s, self.e, self.stream, shared):
            self.line(text)
        self.line(f"if ({self.stream}.feeds()) {{")
        self.level += 1
        self.line(f"{self.stream}.begin_feeding();")
        names = dict(self.e.names)
        self.feeding = s
        feeds = replace(loop, body=feeding(loop.body))
        every = ring.teams if isinstance(s, Contract) and s.ring.short else 1
        if isinstance(s, Contract):
            self._strided(feeds, f"{every} * pl::block()" if every > 1 else "pl::block()", f"{every} * pl::blocks()" if every > 1 else "pl::blocks()")
        else:
            self._winding(feeds)
        self.feeding = None
        self.e.names = names
        self.level -= 1
        self.line("} else {")
        self.level += 1
        self.line(f"{self.stream}.begin_multiplying();")
        if isinstance(s, Contract):
            first = f"({every} * pl::block() + {self.stream}.team())" if every > 1 else f"(pl::block() + {self.stream}.team() * pl::blocks())"
            self._strided(loop, first, f"{ring.teams} * pl::blocks()")
        else:
            self._winding(loop)
            self.line(f"{self.stream}.end_multiplying();")
        self.level -= 1
        self.line("}")

    def _winding(self, loop: For) -> None:
        """A loop whose turns are taken by turns, forwards and backwards: where they become shorter and shorter all blocks have as much to do."""
        kind = C_TYPES[self.e.kinds.names[loop.var]]
        self._turns(loop, f"{kind} %s = pl::block()", self._end(loop), f"{self.stream}.wind(%s)")

    def _serial(self, loop: For) -> None:
        kind = C_TYPES[self.e.kinds.names[loop.var]]
        lo, end, step = self.e.text(loop.lo), self._end(loop), self._step(loop)
        self._turns(loop, f"{kind} %s = {lo}", end, "%s++" if step == "1" else f"%s += {step}")

    def _by_each(self, loop: For) -> None:
        """A loop of which every thread takes one turn."""
        self._bound(loop)
        self.line("{")
        self.level += 1
        member = f"{self.stream}.member()" if self.stream else "pl::thread_again()" if self.kernel.team is not None and self.kernel.fit > 1 else "pl::thread()"
        self.line(f"const index_t {self.name(loop.var)} = {member};")
        self.level -= 1
        self.block(loop.body)
        self.line("}")

    def _strided(self, loop: For, first: str, stride: str) -> None:
        """A loop whose turns are taken by turns."""
        kind = C_TYPES[self.e.kinds.names[loop.var]]
        low, end, step = self.e.text(loop.lo, 12), self._end(loop), self._step(loop)
        begin = first if step == "1" else f"{first} * {step}"
        begin = begin if loop.lo == Const(0, I64) else f"{low} + {begin}"
        self._turns(loop, f"{kind} %s = {begin}", end, f"%s += {stride}" if step == "1" else f"%s += {stride} * {step}")

    def _turns(self, loop: For, begin: str, end: str, advance: str) -> None:
        """The `for`, with `%s` for the loop's variable. What is not at hand as a name or a literal is computed once, in its head."""
        self._bound(loop)
        var, limit = self.name(loop.var), end
        begin = begin % var
        if not isinstance(loop.hi, Const) and not self._lasting(loop.hi):
            limit = self.scope.new(f"{loop.var}_end")
            begin += f", {limit} = {end}"
        if loop.unroll:
            whole = loop.kind == "serial" and isinstance(loop.lo, Const) and isinstance(loop.hi, Const)
            self.line("PL_UNROLL" if whole else "PL_UNROLL_SOME")
        self.line(f"for ({begin}; {var} < {limit}; {advance % var}) {{")
        self.block(loop.body)
        self.line("}")

    def _end(self, loop: For) -> str:
        return self.e.text(loop.hi)

    def _lasting(self, x: Expr) -> bool:
        """A name whose value never changes."""
        return isinstance(x, Ref) and (x.name in self.e.kinds.lets or x.name in self.kernel.symbols)

    def _step(self, loop: For) -> str:
        if not isinstance(loop.step, Const) and not self._lasting(loop.step):
            internal_error(f"kernel {self.kernel.name}: the step of '{loop.var}' is neither a constant nor a name")
        return self.e.text(loop.step, 14)

    def _bound(self, loop: For) -> None:
        low, high = self.e.range_of(loop.lo)[0], self.e.range_of(loop.hi)[1] - 1
        self.e.bounds.names[loop.var] = (low, max(low, high))

    # --------------------------------------------------------------------------------------------------------------------- combining

    def _combine(self, s: Combine) -> None:
        if not self.uniform:
            internal_error(f"kernel {self.kernel.name}: '{s.fn}' is combined where the threads of a block are not together")
        names = [self.e.text(Ref(n, I64)) for n in s.names]
        always = s.apart is not None and isinstance(s.apart, Const) and bool(s.apart.value)
        ask = None if s.apart is None else self.e.data(s.apart)
        some = names if s.lanes == Const(32, I64) else [*names, self.e.text(s.lanes)]
        apart, block = f"pl::lanes_{s.fn}({', '.join(some)})", f"pl::block_{s.fn}({', '.join(names)})"
        if s.fn in ("argmax", "argmin"):
            if ask is not None:
                self.line(f"{apart};" if always else f"if ({ask}) {apart};")
            if not always:
                self.line(f"{'else ' if ask is not None else ''}{block};")
        else:
            self.line(f"{names[0]} = {apart if always else block if ask is None else f'{ask} ? {apart} : {block}'};")

    # ----------------------------------------------------------------------------------------------------------------------- scratch

    def _alloc(self, s: Alloc) -> bool:
        """Declares scratch; whether it comes from the heap and must be given back."""
        self.close_leader()
        name, kind = self.scope.new(s.name), memory_type(s.memory)
        self.e.places[s.name] = Place(name, s.memory, private=not s.shared)
        size = over_symbols(s.size, self.kernel, self.e.kinds)
        constant = int(size.value) if isinstance(size, Const) else None
        if s.shared:
            self._shared(s, name, kind, size, constant)
            return False
        if constant is not None and constant * s.memory.bytes <= LOCAL_BYTES:
            # What a thread keeps under conditions begins as something: else its registers are held from the beginning of the kernel on.
            begins = " = {}" if self.uniform and constant <= KEPT and not has_own(self.kernel.body) else ""
            self.line(f"{kind} {name}[{max(1, constant)}]{begins};")
            return False
        if size is not None:
            self.private.append(Space(s.name, s.memory.bytes, size))
            self.head += broken(f"  {kind}* const {name} = own.take<{kind}>({self.e.text(size)});")
            return False
        self.uses_status = True
        self.line(f"{kind}* const {name} = pl::heap<{kind}>({self.e.text(s.size)}, status);")
        self.line(f"if ({name} == nullptr) return;")
        return True

    def _shared(self, s: Alloc, name: str, kind: str, size: Expr | None, constant: int | None) -> None:
        if not self.uniform:
            internal_error(f"kernel {self.kernel.name}: shared memory '{s.name}' where the threads of a block are not together")
        if size is None:
            internal_error(f"kernel {self.kernel.name}: shared memory '{s.name}' of a size that the host cannot know")
        nbytes = None if constant is None else (max(1, constant) * s.memory.bytes + 15) // 16 * 16
        if nbytes is not None and self.static_shared + nbytes <= self.facts.static_shared - 4096:
            self.static_shared += nbytes
            aligned = "alignas(16) " if self.uses_fragments or s.name in self.moved else ""
            self.head.append(f"  {aligned}{self.facts.shared} {kind} {name}[{max(1, constant or 0)}];")
            return
        self.shared.append(Space(s.name, s.memory.bytes, size))
        self.head += broken(f"  {kind}* const {name} = common.take<{kind}>({self.e.text(size)});")

    def _release(self, held: list[str]) -> None:
        for name in reversed(held):
            self.close_leader()
            self.line(f"pl::release({name});")


def _looked_at(body: Block) -> Iterator[str]:
    """Memory that statements read which all threads of a block run alike; of a block with teams, which meet at no barrier, none."""
    if streamed_in(body) is not None:
        return
    for s in body:
        yield from (x.buffer for x in _within(exprs(s)) if isinstance(x, Load))
        if not isinstance(s, For) or s.kind not in ("thread", "each"):
            for b in blocks(s):
                yield from _looked_at(b)


def _within(some: Iterable[Expr]) -> Iterator[Expr]:
    """Expressions with all that they are made of."""
    for x in some:
        yield x
        yield from _within(parts(x))


def _stored(body: Iterable[Stmt]) -> Iterator[str]:
    """Memory that statements store to."""
    for s in body:
        yield from (n[1:] for n in makes(s) if n.startswith("%"))
        for b in blocks(s):
            yield from _stored(b)


def _moved(body: Block) -> Iterator[str]:
    for s in body:
        if isinstance(s, Move):
            yield from (s.to, s.source)
        elif isinstance(s, Trade):
            yield from (s.target, s.source)
        for b in blocks(s):
            yield from _moved(b)


def kind_name(dtype: DType) -> str:
    """The C++ type in which values of a dtype are computed."""
    return C_TYPES[kind_of_dtype(dtype.compute)]
