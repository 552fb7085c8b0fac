"""Proves that a kernel keeps the rules at the head of `form.py`; what does not is a fault of ours.

Checked: names are bound once and in sight where they are used; types agree; memory is declared and read and written in its dtype; operands are not written;
what stands before and around a parallel loop; the depth of expressions. Not checked: that indices are inside, which the interpreter of the tests does.
"""
from __future__ import annotations

from typing import NoReturn, assert_never

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.contents import exprs, places
from pipelink_ir.backends.loops.gpu.check import check_device
from pipelink_ir.backends.loops.own_check import check_own
from pipelink_ir.backends.loops.tidy import DEPTH, parts
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.dtypes import BOOL, F32, F64, I8, I32, I64, U8, DType

_TYPES = (BOOL, I32, I64, F32, F64)
_TO_BOOL = frozenset(("==", "!=", "<", "<=", ">", ">=", "isnan", "isinf", "doubtful"))


def check_program(program: form.Program) -> None:
    """All kernels of a program."""
    for kernel in program.kernels:
        _Checker(program, kernel).run()


class _Checker:
    def __init__(self, program: form.Program, kernel: form.Kernel) -> None:
        self.program, self.kernel = program, kernel
        self.memory: dict[str, DType] = {b.name: b.memory for b in kernel.buffers}
        self.readonly = {b.name for b in kernel.buffers if b.kind == "operand"}
        self.types: dict[str, DType] = {**dict.fromkeys(kernel.symbols, I64), **dict(kernel.scalars)}
        self.mutable: set[str] = set()
        self.shared: set[str] = set()
        self.own: set[str] = set()
        """Scratch of a block, and scratch of a thread."""
        self.fragments: dict[str, form.Tiles] = {}

    def fail(self, message: str) -> NoReturn:
        internal_error(f"kernel {self.kernel.name} of the loop-level form: {message}")

    def need(self, holds: bool, message: str) -> None:
        if not holds:
            self.fail(message)

    def run(self) -> None:
        body = self.kernel.body
        if self.kernel.loop is not None:
            self.need(all(isinstance(s, form.Let) for s in body[:-1]), "something but a Let stands before the parallel loop")
        self.block(body, set(self.types), 0)
        check_device(self.kernel, self.need)

    # -------------------------------------------------------------------------------------------------------------- statements

    def block(self, body: form.Block, scope: set[str], level: int) -> None:
        for s in body:
            for x in exprs(s):
                self.expr(x, scope, 0)
            self.statement(s, scope, level)

    def statement(self, s: form.Stmt, scope: set[str], level: int) -> None:
        if isinstance(s, form.Let):
            self.bind(s.name, s.value.dtype, scope)
        elif isinstance(s, form.Var):
            self.need(s.init.dtype is s.dtype, f"{s.name} begins with another type")
            self.bind(s.name, s.dtype, scope)
            self.mutable.add(s.name)
        elif isinstance(s, form.Assign):
            self.need(s.name in scope and s.name in self.mutable, f"{s.name} is no Var in sight")
            self.need(self.types[s.name] is s.value.dtype, f"{s.name} is assigned another type")
        elif isinstance(s, form.Store):
            self.store(s)
        elif isinstance(s, form.Move):
            self.move(s)
        elif isinstance(s, form.TakeWords):
            fits = s.count in (4, 8, 16) and self.memory.get(s.source) in (I8, U8) and s.to in self.own and self.memory[s.to] is I32 and s.index.dtype is I64
            self.need(fits and self.kernel.device == "gpu" and (s.outside is None or s.outside.dtype is BOOL), f"bytes of %{s.source} do not fit %{s.to}")
        elif isinstance(s, form.Alloc):
            self.need(s.size.dtype is I64 and s.name not in self.memory, f"the scratch {s.name} is declared twice or its size is no i64")
            self.memory[s.name] = s.memory
            (self.shared if s.shared else self.own).add(s.name)
        elif isinstance(s, form.For):
            self.need(s.lo.dtype is s.hi.dtype is s.step.dtype is I64, f"bounds of the loop over {s.var} are no i64")
            self.need(s.kind != "parallel" or level == 0, f"the parallel loop over {s.var} stands inside something")
            inner = set(scope)
            self.bind(s.var, I64, inner)
            self.block(s.body, inner, level + 1)
        elif isinstance(s, form.If):
            self.need(s.cond.dtype is BOOL, "a condition is no bool")
            self.block(s.then, set(scope), level + 1)
            self.block(s.other, set(scope), level + 1)
        elif isinstance(s, form.Combine):
            self.need(s.apart is None or s.apart.dtype is BOOL, "a condition is no bool")
            self.need(all(n in scope and n in self.mutable for n in s.names), f"'{s.fn}' combines what is no Var in sight")
        elif isinstance(s, form.Signal | form.AwaitCount):
            self.need(s.buffer == self.kernel.tickets, f"%{s.buffer} has no counters")
        elif isinstance(s, form.Contract):
            self.contract(s, level)
        elif isinstance(s, form.Trade):
            fits = s.count in (8, 16) and s.count * self.memory[s.target].bytes <= 16
            self.need({s.target, s.source} <= self.own and fits, f"%{s.source} cannot be traded to %{s.target}")
        elif isinstance(s, form.StripLine | form.StripMultiply):
            self.strip(s)
        elif isinstance(s, form.Words):
            self.need(s.words in self.own and self.memory[s.words] is I32 and s.index.dtype is I64 and s.bytes % 16 == 0, f"%{s.words} cannot hold words")
            self.need(self.memory.get(s.buffer) is s.memory, f"%{s.buffer} is read as another dtype")
        elif isinstance(s, form.Pack):
            self.need({s.words, s.source} <= self.own and self.memory[s.words] is I32, f"%{s.source} cannot be packed to %{s.words}")
        elif isinstance(s, form.FewMultiply):
            self.need({s.sums, s.words, s.values} <= self.own and self.memory[s.words] is I32, f"%{s.sums} is made of what is not each thread's own")
            held = self.memory[s.values]
            fits = held is s.right or (held is F32 and s.right.is_float and s.left.is_float)
            packed = held is I32 and (s.packed is s.right or (s.right.is_float and s.packed is not None and s.packed.is_int and s.packed.bytes == 1))
            self.need((fits if s.packed is None else packed) and all(x.dtype is F32 for x in s.scale), f"%{s.values} is no factor")
        elif isinstance(s, form.WindowMultiply):
            w = s.window
            self.need(s.sums in self.own and self.memory[s.sums] is w.sum, f"%{s.sums} cannot hold sums")
            self.need({s.tile, s.weights} <= self.shared and self.memory[s.tile] is w.left and self.memory[s.weights] is w.right, f"%{s.tile} is no tile")
            self.need(w.gathered or w.pixel % 32 == 0, "there is no such window")
            self.need(s.at.dtype is s.column.dtype is s.index.dtype is I64, "a place of a window is no i64")
        elif isinstance(s, form.Own):
            check_own(self.kernel, self.memory, self.shared, s, self.need)
        elif isinstance(s, form.Fragment | form.Multiply | form.StoreFragment | form.CopyAsync):
            self.matrix(s)
        elif isinstance(s, form.Fail):
            self.need(0 <= s.site < len(self.program.sites) and len(s.values) <= 4, f"there is no site {s.site}")
        elif not isinstance(s, form.Barrier | form.Commit | form.Await):
            assert_never(s)

    def strip(self, s: form.StripLine | form.StripMultiply) -> None:
        """What a warp has of rows, and what it makes of it."""
        r = s.strip
        self.need(r.bytes % 16 == 0 and r.columns % (8 * r.group) == 0 and r.left.bytes == r.right.bytes <= 2, "there is no such strip")
        self.need(s.words in self.own and self.memory[s.words] is I32 and s.index.dtype is I64, f"%{s.words} cannot hold words of lines")
        if isinstance(s, form.StripLine):
            self.need(self.memory.get(s.buffer) is r.left and s.inside.dtype is BOOL and 0 <= s.at <= r.held - r.words, f"%{s.buffer} has no such lines")
        else:
            self.need(s.sums in self.own and self.memory[s.sums] is r.sum, f"%{s.sums} cannot hold sums")
            self.need(s.weights in self.shared and self.memory[s.weights] is r.right, f"%{s.weights} is no factor")

    def contract(self, s: form.Contract, level: int) -> None:
        """A product that streams."""
        r = s.ring
        self.need(level == 1 and self.kernel.threads == 128 and self.kernel.resident, "a product that streams stands elsewhere than in the loop of a team")
        self.need(self.memory.get(s.sums) is r.sum and s.sums not in self.shared, f"%{s.sums} cannot hold sums")
        self.need(self.memory.get(s.maps) is I64 and s.maps not in self.readonly, f"%{s.maps} cannot hold maps")
        for p, dtype in ((s.left, r.left), (s.right, r.right)):
            self.need(self.memory.get(p.buffer) is dtype and self.memory.get(p.other) is dtype, "a factor holds another dtype")
            self.need(p.moved.dtype is BOOL, "where a factor lies is no bool")
            b = p.boxes
            self.need(len(p.sizes) == (3 if b is None else 8) and (b is None or (p is s.left and r.along[0] and not r.short and b.pixels <= r.rows)),
                      "a factor has other sizes")
        self.need(all(r.along) or r.left.bytes == 2, "bytes cannot be transposed")
        self.need(all(x.dtype is I64 for x in places(s)), "a place of a product is no i64")

    def matrix(self, s: form.Fragment | form.Multiply | form.StoreFragment | form.CopyAsync) -> None:
        """Statements about matrix fragments, and copies that feed them."""
        if isinstance(s, form.Fragment):
            t = s.tiles
            self.need(s.name not in self.fragments, f"the fragment {s.name} is declared twice")
            self.need(self.kernel.threads == t.threads and t.tiles[1] % 2 == 0, f"the fragment {s.name} does not fit {self.kernel.threads} threads")
            self.fragments[s.name] = t
            return
        if isinstance(s, form.CopyAsync):
            alike = s.buffer in self.shared and self.memory[s.buffer] is s.memory is self.memory.get(s.origin)
            self.need(alike, f"%{s.origin} cannot be copied to %{s.buffer}")
            self.need(s.index.dtype is s.source.dtype is I64 and s.inside.dtype is BOOL, f"a copy to %{s.buffer} has no place")
            return
        self.need(s.fragment in self.fragments, f"there is no fragment {s.fragment}")
        tiles = self.fragments[s.fragment]
        if isinstance(s, form.StoreFragment):
            fits = s.buffer in self.shared and self.memory[s.buffer] is tiles.sums and s.part.dtype is I64 and s.pitch >= tiles.columns
            self.need(fits, f"a part of {s.fragment} cannot be stored in %{s.buffer}")
            return
        for f, dtype, lines in ((s.left, tiles.left, tiles.rows), (s.right, tiles.right, tiles.columns)):
            step = f.pitch * dtype.bytes
            self.need(f.buffer in self.shared and self.memory[f.buffer] is dtype and f.index.dtype is I64, f"%{f.buffer} is no factor of {s.fragment}")
            self.need(step % 16 == 0 and step // 16 % 2 == 1 and f.pitch >= (s.depth if f.along else lines), f"the lines of %{f.buffer} lie badly")
            self.need(f.along or dtype.bytes == 2, f"bytes of %{f.buffer} cannot be transposed")
            self.need(s.depth % (32 // dtype.bytes) == 0, f"{s.depth} terms are not a whole number of steps")

    def store(self, s: form.Store) -> None:
        self.need(s.buffer in self.memory and s.buffer not in self.readonly, f"%{s.buffer} is not there to be written")
        self.need(self.memory[s.buffer] is s.memory and s.index.dtype is I64, f"%{s.buffer} is written as another dtype")
        self.need(s.value.dtype is s.memory.compute or (s.value.dtype is F64 and s.memory.is_float), f"a {s.value.dtype} is stored in %{s.buffer}")

    def move(self, s: form.Move) -> None:
        self.need(s.to in self.memory and s.source in self.memory and s.to not in self.readonly, f"%{s.source} cannot be moved to %{s.to}")
        self.need(self.kernel.device == "gpu" and s.at.dtype is s.index.dtype is I64 and bool({s.to, s.source} & (self.own | self.shared)),
                  f"%{s.source} is moved to %{s.to}, neither of which is scratch of a GPU")
        for name, other in ((s.to, s.source), (s.source, s.to)):
            here, there = self.memory[name], self.memory[other]
            self.need(here is there or (here is there.compute and name in self.own) or (there is here.compute and other in self.own),
                      f"%{s.source} is moved to %{s.to} as another dtype")
            fits = s.count * here.bytes <= form.WORD and name == s.source and s.to in self.own if s.anywhere else s.count * here.bytes in (1, 2, 4, 8, 16)
            self.need(name in self.own or fits, f"{s.count} elements of %{name} are moved at once")

    def bind(self, name: str, dtype: DType, scope: set[str]) -> None:
        self.need(name not in self.types, f"{name} is bound twice")
        self.types[name] = dtype
        scope.add(name)

    # ------------------------------------------------------------------------------------------------------------- expressions

    def expr(self, x: form.Expr, scope: set[str], depth: int) -> None:
        self.need(x.dtype in _TYPES, f"an expression has the type {x.dtype}")
        self.need(depth <= DEPTH + 2, "an expression is too deep")
        if isinstance(x, form.Ref):
            self.need(x.name in scope and self.types[x.name] is x.dtype, f"{x.name} is not in sight, or of another type")
        elif isinstance(x, form.Load):
            self.need(self.memory.get(x.buffer) is x.memory and x.dtype is x.memory.compute and x.index.dtype is I64, f"%{x.buffer} is read as another dtype")
        elif isinstance(x, form.Thread):
            self.need(x.dtype is I64 and self.kernel.device == "gpu", "a number of a thread on a CPU")
        elif isinstance(x, form.Aligned):
            self.need(x.buffer in self.memory, f"%{x.buffer} is not there")
        elif isinstance(x, form.Op):
            self.op(x)
        elif isinstance(x, form.Convert):
            self.need(x.dtype is x.to.compute, "a cast has not the compute type")
        elif isinstance(x, form.Choose):
            self.need(x.cond.dtype is BOOL and x.then.dtype is x.other.dtype is x.dtype, "the values of a choice have two types")
        for p in parts(x):
            self.expr(p, scope, depth + 1)

    def op(self, x: form.Op) -> None:
        types = {a.dtype for a in x.args}
        known = form.PRIMITIVES | form.SHORT | form.STEPS | form.BYTES | set(form.EXACT.values())
        self.need(x.fn in known and len(types) == 1, f"'{x.fn}' of {', '.join(map(str, sorted(t.name for t in types)))}")
        if x.fn in form.BYTES:
            self.need(types == {I32} and x.dtype is (F32 if x.fn == form.DIGITS else I32) and self.kernel.device == "gpu", f"'{x.fn}' gives {x.dtype}")
            return
        self.need(x.dtype is (BOOL if x.fn in _TO_BOOL else x.args[0].dtype), f"'{x.fn}' gives {x.dtype}")
