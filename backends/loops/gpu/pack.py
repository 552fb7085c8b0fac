"""Loads and stores of neighbours in straight code, put together into accesses of up to 16 bytes.

Addresses are sums of names with factors (`Emitter.form_of`). Those that differ by constants alone are a group; a stretch of a group whose sum is a multiple of
its length becomes one `Move`, through scratch of the thread. Which sizes have to be multiples for that, and which buffers have to begin at one, is noted:
`conditions` is the kernel's question to its sizes and addresses.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.emit import Atom, Emitter, i64
from pipelink_ir.backends.loops.lower import Lowering
from pipelink_ir.backends.loops.reads import extent
from pipelink_ir.ir.dtypes import I64, DType

BYTES = 16
"""What one access moves at most."""
_NEVER = 64
"""More factors of two than any number of elements has."""
Terms = tuple[tuple[str, int], ...]


class Packer:
    """Packs the statements of one block. `multiples` are sizes that are known to be multiples of something wherever the block runs, `shared` is memory of the
    block that is read, or written, beside the tensors, which are left alone unless `tensors`."""

    def __init__(self, lo: Lowering, multiples: Mapping[Atom, int], shared: Mapping[str, DType] | None = None, writes: str = "",
                 tensors: bool = True) -> None:
        self.lo, self.e = lo, lo.e
        self.shared, self.writes, self.tensors = shared or {}, writes, tensors
        self.twos = {a.name: _twos(n) for a, n in multiples.items() if isinstance(a, form.Ref)}
        self.asked: dict[str, int] = {}
        self.begins: dict[str, int] = {}

    def conditions(self) -> list[Atom]:
        """What has to hold for the packed block."""
        e = self.e
        out = [e.op("==", e.op("rest", e.op("max", self._in_sight(form.Ref(n, I64)), i64(0)), i64(1 << k)), i64(0)) for n, k in sorted(self.asked.items())]
        out += [e.bind("aligned", form.Aligned(b, n), 0) for b, n in sorted(self.begins.items())]
        return out

    def _in_sight(self, size: Atom) -> Atom:
        """A size, computed once more if that was in the block alone: a quotient is, and one that is rounded up."""
        value = self.e.values.get(size.name) if isinstance(size, form.Ref) and self.e.depth_of(size) >= len(self.e.frames) else None
        if isinstance(value, form.Choose):
            cond, then, other = (self._in_sight(a) for a in (value.cond, value.then, value.other) if isinstance(a, form.Ref | form.Const))
            return self.e.choose(cond, then, other)
        if not isinstance(value, form.Op):
            return size
        return self.e.op(value.fn, *(self._in_sight(a) for a in value.args if isinstance(a, form.Ref | form.Const)))

    def packed(self, stmts: list[form.Stmt]) -> list[form.Stmt]:
        """The statements of the innermost block, which is open, with the accesses that can be put together put together."""
        out = list(stmts)
        before: dict[int, list[form.Stmt]] = {}
        after: dict[int, list[form.Stmt]] = {}
        bound = {s.name: k for k, s in enumerate(out) if isinstance(s, form.Let)}
        for (buffer, terms), found in groups(self.e, out, lambda s: self._loaded(s)).items():
            for places in self._stretches(buffer, terms, found):
                self._load(buffer, places, out, bound, before)
        for (buffer, terms), found in groups(self.e, out, lambda s: self._stored(s)).items():
            for places in self._stretches(buffer, terms, found):
                self._store(buffer, places, out, before, after)
        return [s for k, own in enumerate(out) for s in (*before.get(k, ()), own, *after.get(k, ()))]

    def _loaded(self, s: form.Stmt) -> tuple[str, form.Expr] | None:
        """The operand or buffer and the index that a statement loads."""
        if isinstance(s, form.Let) and isinstance(s.value, form.Load):
            own = self.tensors and s.value.buffer in self.lo.used and s.value.buffer not in self.lo.written
            if own or (s.value.buffer in self.shared and s.value.buffer != self.writes):
                return s.value.buffer, s.value.index
        return None

    def _stored(self, s: form.Stmt) -> tuple[str, form.Expr] | None:
        if isinstance(s, form.Store) and (s.buffer == self.writes or (self.tensors and s.buffer in self.lo.written)) and s.value.dtype is s.memory.compute:
            return s.buffer, s.index
        return None

    def _stretches(self, buffer: str, terms: Terms, found: dict[int, int]) -> list[list[int]]:
        """The stretches of a group that move at once: the statements of their elements in order."""
        bytes_ = (self.shared.get(buffer) or self.lo.op.tensors[buffer].dtype).bytes
        out: list[list[int]] = []
        left = set(found)
        size = BYTES // bytes_
        while size > 1:
            starts = [c for c in sorted(left) if c % size == 0 and left.issuperset(range(c, c + size))]
            if starts and self._multiple(buffer, terms, size):
                for c in starts:
                    out.append([found[c + k] for k in range(size)])
                    left.difference_update(range(c, c + size))
                if buffer not in self.shared:
                    self.begins[buffer] = max(self.begins.get(buffer, 1), size * bytes_)
            size //= 2
        return out

    # ------------------------------------------------------------------------------------------------------------------- moves

    def _load(self, buffer: str, places: list[int], stmts: list[form.Stmt], bound: dict[str, int], before: dict[int, list[form.Stmt]]) -> None:
        loads = [(s.name, s.value) for k in places if isinstance(s := stmts[k], form.Let) and isinstance(s.value, form.Load)]
        index, at = loads[0][1].index, min(places)
        if isinstance(index, form.Ref) and bound.get(index.name, -1) >= at:
            return
        name, kept = self._scratch(buffer), loads[0][1].dtype
        before.setdefault(at, []).extend((form.Alloc(name, kept, i64(len(places))), form.Move(name, i64(0), buffer, index, len(places))))
        for n, (k, (own, _)) in enumerate(zip(places, loads, strict=True)):
            stmts[k] = form.Let(own, form.Load(name, i64(n), kept, kept))

    def _store(self, buffer: str, places: list[int], stmts: list[form.Stmt], before: dict[int, list[form.Stmt]], after: dict[int, list[form.Stmt]]) -> None:
        stores = [s for k in places if isinstance(s := stmts[k], form.Store)]
        name, kept = self._scratch(buffer), stores[0].memory.compute
        before.setdefault(min(places), []).append(form.Alloc(name, kept, i64(len(places))))
        after.setdefault(max(places), []).append(form.Move(buffer, stores[0].index, name, i64(0), len(places)))
        for n, (k, own) in enumerate(zip(places, stores, strict=True)):
            stmts[k] = form.Store(name, i64(n), own.value, kept)

    def _scratch(self, buffer: str) -> str:
        return self.e.memory(f"{buffer.rsplit('.', 1)[-1]}s")

    # --------------------------------------------------------------------------------------------------------------- multiples

    def _multiple(self, buffer: str, terms: Terms, size: int) -> bool:
        """Whether a sum is a multiple of `size`, if need be because a size of the tensor is asked to be one."""
        need = _twos(size)
        may = self._inner(buffer)
        asked: set[str] = set()
        if all(_twos(factor) + self._of(name, "", need, asked) >= need for name, factor in terms):
            return True
        if any(_twos(factor) + self._of(name, may, need, asked) < need for name, factor in terms):
            return False
        for name in asked:
            self.asked[name] = max(self.asked.get(name, 0), need)
        return True

    def _inner(self, buffer: str) -> str:
        """The last axis of a tensor whose size is not a number: what is asked to be a multiple."""
        if buffer in self.shared:
            return ""
        t = self.lo.op.tensors[buffer]
        for k in reversed(range(len(t.shape))):
            n = extent(self.lo, t, k)
            if isinstance(n, form.Ref):
                return n.name
        return ""

    def _of(self, name: str, may: str, need: int, asked: set[str]) -> int:
        """How many factors of two the value of a name has at least."""
        known = self.twos.get(name, 0)
        if name == may:
            if known < need:
                asked.add(name)
            return max(known, need)
        if name in self.e.affine:
            constant, terms = self.e.affine[name]
            return max(known, min([_twos(constant), *(_twos(f) + self._of(n, may, need, asked) for n, f in terms if n != name)]))
        return max(known, self._value(self.e.values.get(name), may, need, asked))

    def _value(self, x: form.Expr | None, may: str, need: int, asked: set[str]) -> int:
        if isinstance(x, form.Const) and x.dtype is I64:
            return _twos(int(x.value))
        if isinstance(x, form.Ref):
            return self._of(x.name, may, need, asked)
        if not isinstance(x, form.Op):
            return 0
        if x.fn == "*":
            return sum(self._value(a, may, need, asked) for a in x.args)
        return min(self._value(a, may, need, asked) for a in x.args) if x.fn in ("+", "-", "neg", "min", "max") else 0


def _twos(n: int) -> int:
    """How often two divides a number."""
    return _NEVER if not n else (n & -n).bit_length() - 1


def groups(e: Emitter, stmts: list[form.Stmt], of: Callable[[form.Stmt], tuple[str, form.Expr] | None]) -> dict[tuple[str, Terms], dict[int, int]]:
    """For each buffer and sum of names the statement that moves the element at each constant beyond it."""
    out: dict[tuple[str, Terms], dict[int, int]] = {}
    for k, s in enumerate(stmts):
        found = of(s)
        if found is not None and isinstance(found[1], form.Ref | form.Const):
            constant, terms = e.form_of(found[1])
            out.setdefault((found[0], terms), {}).setdefault(constant, k)
    return out
