"""Sums of products of bytes in straight code: four products at a time, of bytes that lie in words.

    move a[0] = x[i] x 8 ; move b[0] = x[i + C] x 8 ; move c[0] = x[i + 2 * C] x 8 ; …
    let y = a[3] * k[0] + b[3] * k[1] + c[3] * k[2] + …
becomes
    words a = x[i] x 8 ; words b = … ; …
    let y = dot(four(a[0], b[0], c[0], d[0]; third byte each), four(k[0], k[1], k[2], 0), dot(…))

Windows that overlap share what they put together: what lies between two of them is multiplied by zero in each, so four neighbours do for two windows of three.
A border that answers for all bytes of a word with one number does so when they are loaded, whatever is done with them. Integers wrap, so the order of a sum
does not matter.

A sum that only becomes a float begins as the bits of a float that has it as its last digits.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.contents import blocks, exprs
from pipelink_ir.backends.loops.emit import i64
from pipelink_ir.backends.loops.gpu.take import needed
from pipelink_ir.backends.loops.lower import Lowering
from pipelink_ir.backends.loops.tidy import refs
from pipelink_ir.ir.dtypes import BOOL, F32, I8, I32, U8

LEAST = 3
"""Products that are worth it."""
FOUR = 4
SMALL = 1 << 22
"""Sums below it, in size, are the last digits of a float."""


@dataclass(frozen=True, slots=True)
class Byte:
    """Where a byte comes from: number `at` of what was moved to the memory `of`, or a value by its name (`at` is -1)."""

    of: str
    at: int
    tensor: str
    signed: bool
    chain: tuple[tuple[form.Expr, int, bool], ...] = ()
    """The choices behind the load: a condition, a number, whether that is taken where the condition holds."""


@dataclass(slots=True)
class Sum:
    """A sum: the name it has, its products as pairs of names of bytes, and what else is added."""

    name: str
    products: list[tuple[str, str]] = field(default_factory=list)
    rest: list[form.Expr] = field(default_factory=list)


Part = tuple[tuple[Byte, ...], dict[Byte, str]]
"""At most four bytes, and the other factor of each that is multiplied, by its name."""


def dotted(lo: Lowering, stmts: Sequence[form.Stmt]) -> list[form.Stmt]:
    """The statements of a block with such sums computed so."""
    d = _Dots(lo, list(stmts))
    return d.run() if d.sums or d.whole else list(stmts)


class _Dots:
    def __init__(self, lo: Lowering, stmts: list[form.Stmt]) -> None:
        self.lo, self.e, self.stmts = lo, lo.e, stmts
        self.lets = {s.name: s.value for s in stmts if isinstance(s, form.Let)}
        self.uses: dict[str, int] = {}
        _count(stmts, self.uses)
        self.moves = {s.to: s for s in stmts if isinstance(s, form.Move) and s.count % FOUR == 0 and self._dtype(s.source) in (I8, U8)}
        self.whole: set[str] = set()
        """Memories whose bytes all come out of words by the same choices."""
        self.bytes = self._bytes()
        self.sums = self._sums()
        self.before: list[form.Stmt] = []
        self.words: dict[tuple[Byte | None, ...], form.Expr] = {}
        self.loaded: dict[tuple[str, int], form.Expr] = {}
        self.scratch: dict[str, str] = {}

    def _dtype(self, buffer: str) -> object:
        t = self.lo.op.tensors.get(buffer)
        return t.dtype if t is not None and buffer in self.lo.used and buffer not in self.lo.written else None

    # ----------------------------------------------------------------------------------------------------------------- what there is

    def _bytes(self) -> dict[str, Byte]:
        """The names that are bytes. Those of a word have to come out of it by the same choices, else each is taken as it is."""
        out: dict[str, Byte] = {}
        inner: set[str] = set()
        for s in self.stmts:
            found = self._byte(s.name, s.value, out) if isinstance(s, form.Let) else None
            if found is not None and isinstance(s, form.Let):
                out[s.name] = found
                if isinstance(s.value, form.Choose):
                    inner.update(refs(s.value.then) + refs(s.value.other))
        ends: dict[str, set[str]] = {}
        for name, b in out.items():
            if b.at >= 0 and name not in inner:
                ends.setdefault(b.of, set()).add(str(b.chain))
        self.whole = {of for of, chains in ends.items() if len(chains) == 1}
        return {name: b if b.at >= 0 and b.of in self.whole else Byte(name, -1, b.tensor, b.signed) for name, b in out.items() if name not in inner}

    def _byte(self, name: str, x: form.Expr, known: Mapping[str, Byte]) -> Byte | None:
        if isinstance(x, form.Load):
            move = self.moves.get(x.buffer)
            if move is not None and isinstance(x.index, form.Const):
                return Byte(x.buffer, int(x.index.value), move.source, self._dtype(move.source) is I8)
            dtype = self._dtype(x.buffer)
            return Byte(name, -1, x.buffer, dtype is I8) if dtype in (I8, U8) else None
        if not isinstance(x, form.Choose) or x.dtype is not I32:
            return None
        for a, b, taken in ((x.then, x.other, True), (x.other, x.then, False)):
            inner = known.get(b.name) if isinstance(b, form.Ref) else None
            if isinstance(a, form.Const) and isinstance(b, form.Ref) and inner is not None:
                low, high = (-128, 127) if inner.signed else (0, 255)
                same = all(n == a.value for _, n, _ in inner.chain)
                if low <= a.value <= high and same and self.uses.get(b.name) == 1:
                    return Byte(inner.of, inner.at, inner.tensor, inner.signed, (*inner.chain, (x.cond, int(a.value), taken)))
        return None

    def _sums(self) -> list[Sum]:
        """The sums of enough products of two bytes each, one of each of two tensors."""
        inside = {a.name for x in self.lets.values() if _is(x, "+") and isinstance(x, form.Op) for a in x.args
                  if isinstance(a, form.Ref) and _is(self.lets.get(a.name), "+") and self.uses.get(a.name) == 1}
        out = []
        for name, x in self.lets.items():
            if name in inside or not _is(x, "+"):
                continue
            found = Sum(name)
            self._terms(x, found)
            tensors = {(self.bytes[a].tensor, self.bytes[b].tensor) for a, b in found.products}
            if len(found.products) >= LEAST and len(tensors) == 1 and len(set(next(iter(tensors)))) == 2:
                out.append(found)
        return out

    def _terms(self, x: form.Expr, out: Sum) -> None:
        assert isinstance(x, form.Op)
        for a in x.args:
            value = self.lets.get(a.name) if isinstance(a, form.Ref) and self.uses.get(a.name) == 1 else None
            if value is not None and _is(value, "+"):
                self._terms(value, out)
                continue
            if value is not None and _is(value, "*") and isinstance(value, form.Op):
                names = sorted((b.name for b in value.args if isinstance(b, form.Ref) and b.name in self.bytes), key=lambda n: self.bytes[n].tensor)
                if len(names) == 2 and names[0] != names[1]:
                    out.products.append((names[0], names[1]))
                    continue
            out.rest.append(a)

    # ------------------------------------------------------------------------------------------------------------------- rewriting

    def run(self) -> list[form.Stmt]:
        """The block."""
        many = [len({self.bytes[p[k]] for s in self.sums for p in s.products}) for k in (0, 1)]
        if many[1] > many[0]:
            for s in self.sums:
                s.products = [(b, a) for a, b in s.products]
        shared, digits, sums = self._shared(), self._digits(), {s.name: s for s in self.sums}
        taken = [s for of in self.moves if of in self.whole for s in self._taken(of)]
        early = needed(self.stmts, [x for s in taken for x in exprs(s)])
        if early is None:
            return self.stmts
        out: list[form.Stmt] = [*(self.stmts[k] for k in early), *taken]
        for k, old in enumerate(self.stmts):
            if k in early:
                continue
            if isinstance(old, form.Let) and old.name in sums:
                value = self._sum(sums[old.name], shared[old.name], old.name in digits)
                out += [*self.before, form.Let(old.name, value)]
                self.before = []
            elif isinstance(old, form.Let) and isinstance(old.value, form.Convert) and isinstance(old.value.arg, form.Ref) and old.value.arg.name in digits:
                out.append(form.Let(old.name, form.Op(form.DIGITS, (old.value.arg,), F32)))
            elif isinstance(old, form.Let) and (byte := self.bytes.get(old.name)) is not None and byte.at >= 0:
                word, at = self._source(byte)
                out += [*self.before, form.Let(old.name, form.Op(form.BYTE[byte.signed], (word, form.Const(at, I32)), I32))]
                self.before = []
            else:
                out.append(old)
        return out

    def _digits(self) -> set[str]:
        """The sums that only become floats, and small ones."""
        out = set()
        for s in self.sums:
            to = [x for x in self.lets.values() if isinstance(x, form.Convert) and isinstance(x.arg, form.Ref) and x.arg.name == s.name]
            most = sum((128 if self.bytes[a].signed else 255) * (128 if self.bytes[b].signed else 255) for a, b in s.products)
            if not s.rest and most < SMALL and len(to) == self.uses.get(s.name) == 1 and to[0].to is F32:
                out.add(s.name)
        return out

    def _taken(self, of: str) -> list[form.Stmt]:
        """The words of what was moved to a memory."""
        move = self.moves[of]
        chain = next(b.chain for b in self.bytes.values() if b.of == of)
        name = self.scratch[of] = self.e.memory(f"{of}_words")
        outside: form.Expr | None = None
        for cond, _, taken in chain:
            own = cond if taken else form.Op("not", (cond,), BOOL)
            outside = own if outside is None else form.Op("or", (outside, own), BOOL)
        word = (chain[0][1] & 255) * 0x01010101 if chain else 0
        other = word - (1 << 32) if word >= 1 << 31 else word
        return [form.Alloc(name, I32, i64(move.count // FOUR)), form.TakeWords(name, move.source, move.index, move.count, outside, other)]

    def _shared(self) -> dict[str, list[Part]]:
        """For each sum the stretches of at most four bytes that it is made of. Sums that are put together of some of the same bytes get one stretch, if it
        holds them all."""
        stretches: list[list[Byte]] = []
        of: dict[Byte, list[int]] = {}
        parts: dict[str, list[tuple[int, dict[Byte, str]]]] = {}

        def new(some: Iterable[Byte]) -> int:
            stretches.append(list(some))
            for b in stretches[-1]:
                of.setdefault(b, []).append(len(stretches) - 1)
            return len(stretches) - 1

        for s in self.sums:
            n, own = len(s.products), parts.setdefault(s.name, [])
            size = 3 if n % 3 == 0 and n % FOUR else FOUR
            for begin in range(0, n, size):
                products = s.products[begin:begin + size]
                some = {self.bytes[a]: b for a, b in products}
                if len(some) < len(products):
                    # A byte that is multiplied twice: each product is alone.
                    own += [(new([self.bytes[a]]), {self.bytes[a]: b}) for a, b in products]
                    continue
                # What another sum is to share has to be there before both.
                may = all(b.at >= 0 for b in some)
                at = next((k for b in some for k in of.get(b, ()) if len({*stretches[k], *some}) <= FOUR), None) if may else None
                if at is None:
                    at = new(some)
                for b in some:
                    if b not in stretches[at]:
                        stretches[at].append(b)
                        of.setdefault(b, []).append(at)
                own.append((at, some))
        return {name: [(tuple(stretches[k]), some) for k, some in found] for name, found in parts.items()}

    def _sum(self, s: Sum, parts: list[Part], digits: bool) -> form.Expr:
        dot = form.DOTS[self.bytes[s.products[0][0]].signed, self.bytes[s.products[0][1]].signed]
        acc: form.Expr = form.Const(form.MAGIC if digits else 0, I32)
        for k, x in enumerate(s.rest):
            acc = x if not k else self._bound("v", form.Op("+", (acc, x), I32))
        for n, (stretch, some) in enumerate(parts):
            left = self._word(stretch)
            right = self._word(tuple(self.bytes[some[x]] if x in some else None for x in stretch))
            value = form.Op(dot, (left, right, acc), I32)
            acc = value if n == len(parts) - 1 else self._bound("dot", value)
        return acc

    def _bound(self, hint: str, value: form.Expr) -> form.Ref:
        name = self.e.fresh(hint)
        self.before.append(form.Let(name, value))
        return form.Ref(name, value.dtype)

    def _word(self, places: tuple[Byte | None, ...]) -> form.Expr:
        """Up to four bytes as one word."""
        found = self.words.get(places)
        if found is None:
            args: list[form.Expr] = []
            at = 0
            for k in range(FOUR):
                b = places[k] if k < len(places) else None
                word, byte = (form.Const(0, I32), 0) if b is None else self._source(b)
                args.append(word)
                at |= byte << 4 * k
            whole = at == 0x3210 and all(x == args[0] for x in args)
            found = self.words[places] = args[0] if whole else self._bound("four", form.Op(form.FOUR, (*args, form.Const(at, I32)), I32))
        return found

    def _source(self, b: Byte) -> tuple[form.Expr, int]:
        """The word that has a byte, and which of its bytes that is."""
        if b.at < 0:
            return form.Ref(b.of, I32), 0
        key = b.of, b.at // FOUR
        if key not in self.loaded:
            self.loaded[key] = self._bound("word", form.Load(self.scratch[b.of], i64(b.at // FOUR), I32, I32))
        return self.loaded[key], b.at % FOUR


def _is(x: form.Expr | None, fn: str) -> bool:
    return isinstance(x, form.Op) and x.fn == fn and x.dtype is I32


def _count(stmts: Sequence[form.Stmt], out: dict[str, int]) -> None:
    for s in stmts:
        for x in exprs(s):
            for n in refs(x):
                out[n] = out.get(n, 0) + 1
        for b in blocks(s):
            _count(b, out)
