"""Random expressions as text, well typed by construction.

A `Writer` knows what can be read (`leaves`: texts by compute type) and writes an expression of a wanted kind: bool, i32, i64, f32 or f64. A *firm*
expression has that type by itself; another may be made of literals alone, which take the type of what they stand beside. Text is bracketed as little as
precedence allows, or by chance more.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import FUNCTIONS
from tests.fuzz.tape import Tape

Piece = tuple[str, int]
"""A text and how tightly it is bound: the precedence of its outermost operator, `ATOM` for the rest."""

ATOM = 9
NUMBERS = ("i32", "i64", "f32", "f64")
NARROW_INTS = ("u8", "i8", "u16", "i16")
NARROW_FLOATS = ("f16", "bf16", "f8e4m3", "f8e5m2")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_INT_LITERALS = ("0", "1", "2", "3", "7", "10", "100", "255", "32767", "-1", "-2", "-5", "-128")
_FLOAT_LITERALS = ("0.5", "1.0", "2.0", "0.1", "1.5", "2.5", "10.0", "0.001", "1e6", "-0.5", "-3.0", "-0.0", "pi")
_ODD_LITERALS = ("inf", "-inf", "nan", "1e30", "1e-40", "0.0")
_BESIDE = {"i32": ("i32",), "i64": ("i64", "i32"), "f32": ("f32", "i32", "i64"), "f64": ("f64", "f32", "i64", "i32")}
"""What may stand beside a firm value of a kind without changing it."""
_SHAPED = {
    "sqrt": ("sqrt(abs({}))", "sqrt({} ** 2 + 1)"), "rsqrt": ("rsqrt(abs({}) + 0.25)", "rsqrt({} ** 2 + 0.5)"), "log": ("log(abs({}) + 0.125)",),
    "log2": ("log2(abs({}) + 0.125)",), "log1p": ("log1p(abs({}))",), "exp": ("exp(clamp({}, -9, 9))", "exp(-abs({}))"), "exp2": ("exp2(clamp({}, -20, 20))",),
    "expm1": ("expm1(clamp({}, -9, 9))",), "sin": ("sin(clamp({}, -50, 50))",), "cos": ("cos(clamp({}, -50, 50))",), "tan": ("tan(clamp({}, -1.5, 1.5))",),
}
"""Calls that stay in the domain of a function, beside the plain one."""


def kind_of(dtype: str) -> str:
    """The compute type of a dtype."""
    return DTYPES[dtype].compute.name


class Writer:
    """Writes expressions over what can be read at one place."""

    def __init__(self, tape: Tape, leaves: Mapping[str, Sequence[str]], names: Iterator[int], narrow: Mapping[str, Sequence[str]] | None = None) -> None:
        self.tape, self.choose, self.chance = tape, tape.choose, tape.chance
        self.leaves: dict[str, list[str]] = {k: list(v) for k, v in leaves.items()}
        self.narrow = narrow or {}
        """Reads by dtype in memory, where that is a narrow integer."""
        self._names = names

    def fresh(self, stem: str) -> str:
        return f"{stem}{next(self._names)}"

    @contextmanager
    def reading(self, kind: str, *texts: str) -> Iterator[None]:
        """More that can be read, for a while."""
        before = list(self.leaves.get(kind, ()))
        self.leaves[kind] = [*before, *texts]
        try:
            yield
        finally:
            self.leaves[kind] = before

    # ------------------------------------------------------------------------------------------------------------ the doors

    def text(self, kind: str, depth: int = 3, firm: bool = False) -> str:
        """An expression of a kind."""
        return self._piece(kind, depth, firm)[0]

    def stored(self, dtype: str, depth: int = 3) -> str:
        """An expression that a tensor of a dtype takes."""
        d = DTYPES[dtype]
        if d.kind == "bool":
            return self.text("bool", depth)
        if dtype in NARROW_INTS:
            return self._narrow(dtype, depth)
        if d.is_int:
            if self.chance(3):
                return self._call(self.choose((dtype, f"sat_{dtype}")), self._piece(self.choose(NUMBERS), depth - 1, True))
            return self.text(self.choose(_BESIDE[dtype]), depth, firm=True)
        if dtype in NARROW_FLOATS and self.chance(3):
            return self.text(self.choose(("f64", "i32", "f32")), depth, firm=True)
        return self.text("f64" if dtype == "f64" else self.choose(("f32", "f32", "f32", "f64")), depth, firm=True)

    def _narrow(self, dtype: str, depth: int) -> str:
        reads = self.narrow.get(dtype, ())
        if reads and self.chance(3):
            a, b = self.choose(reads), self.choose(reads)
            return self.choose((a, f"min({a}, {b})", f"select({self.text('bool', 1)}, {a}, {b})", f"clamp({a}, 3, 40)"))
        to = self.choose((dtype, f"sat_{dtype}"))
        return self._call(to, self._piece(self.choose(NUMBERS), depth - 1, True))

    # ------------------------------------------------------------------------------------------------------------- grammar

    def _piece(self, kind: str, depth: int, firm: bool) -> Piece:
        if depth <= 0 or self.chance(6):
            return self._leaf(kind, firm)
        if kind == "bool":
            return self._bool(depth)
        makers = [self._arith, self._arith, self._order, self._select, self._cast, self._cast, self._minus]
        makers += [self._real, self._real, self._real, self._real, self._power, self._step] if kind[0] == "f" else [self._division, self._int_power, self._step]
        if self.chance(5):
            makers = [self._reduce]
        return self.choose(makers)(kind, depth - 1, firm)

    def _leaf(self, kind: str, firm: bool) -> Piece:
        reads = self.leaves.get(kind, ())
        if kind == "bool":
            if reads and not self.chance(4):
                return self.choose(reads), ATOM
            return (self.choose(("true", "false")), ATOM) if self.chance(6) or not self._any_read() else self._comparison(0)
        if reads and (firm or not self.chance(3)):
            return self.choose(reads), ATOM
        if firm or self.chance(4):
            return self._converted(kind)
        return self._literal(kind)

    def _any_read(self) -> list[tuple[str, str]]:
        return [(k, t) for k, texts in self.leaves.items() if k != "bool" for t in texts]

    def _converted(self, kind: str) -> Piece:
        """A read of another type, cast; without anything to read a literal, cast."""
        reads = self._any_read()
        if not reads:
            return self._call(kind, self._literal(kind)), ATOM
        _, text = self.choose(reads)
        return f"{kind}({text})", ATOM

    def _literal(self, kind: str) -> Piece:
        if kind[0] == "i":
            text = self.choose(_INT_LITERALS)
        else:
            text = self.choose(_ODD_LITERALS if self.chance(8) else (*_FLOAT_LITERALS, "2", "-3"))
        return text, 7 if text.startswith("-") else ATOM

    def _beside(self, kind: str, depth: int) -> Piece:
        """An argument that may stand beside a firm one."""
        return self._piece(kind if not self.chance(4) else self.choose(_BESIDE[kind]), depth, False)

    def bracket(self, piece: Piece, least: int) -> str:
        """The text, in brackets if it binds less tightly than `least`, or by chance."""
        text, level = piece
        return f"({text})" if level < least or (level < ATOM and self.chance(8)) else text

    def _infix(self, fn: str, left: Piece, right: Piece) -> Piece:
        level = FUNCTIONS[fn].infix
        if fn == "**":
            return f"{self.bracket(left, ATOM)} ** {self.bracket(right, 7)}", level
        chains = fn not in COMPARISONS
        return f"{self.bracket(left, level if chains else level + 1)} {fn} {self.bracket(right, level + 1)}", level

    def _call(self, fn: str, *args: Piece) -> str:
        return f"{fn}({', '.join(a[0] for a in args)})"

    # --------------------------------------------------------------------------------------------------------- expressions

    def _arith(self, kind: str, depth: int, firm: bool) -> Piece:
        a, b = self._piece(kind, depth, True), self._beside(kind, depth)
        fn = self.choose(("+", "-", "*", "*", "+") if kind[0] == "i" else ("+", "-", "*", "/"))
        return self._infix(fn, *((b, a) if self.chance(3) else (a, b)))

    def _division(self, kind: str, depth: int, firm: bool) -> Piece:
        a = self._piece(kind, depth, True)
        b = (self.choose(("2", "3", "7", "-3", "16", "10")), ATOM) if self.chance(2) else self._piece(kind, depth, True)
        b = (b[0], 7 if b[0].startswith("-") else b[1])
        fn = self.choose(("floordiv", "mod", "ceildiv"))
        return (self._call(fn, a, b), ATOM) if self.chance(3) else self._infix(fn, a, b)

    def _order(self, kind: str, depth: int, firm: bool) -> Piece:
        a, b = self._piece(kind, depth, True), self._beside(kind, depth)
        fn = self.choose(("min", "max", "fmin", "fmax", "abs", "sign", "clamp"))
        if fn in ("abs", "sign"):
            return self._call(fn, a), ATOM
        if fn == "clamp":
            low, high = self.choose((("-1", "1"), ("0", "255"), ("-7", "3"))) if self.chance(2) else (self.text(kind, 1, True), self.text(kind, 1, True))
            return f"clamp({a[0]}, {low}, {high})", ATOM
        return self._call(fn, *((b, a) if self.chance(2) else (a, b))), ATOM

    def _select(self, kind: str, depth: int, firm: bool) -> Piece:
        a, b = self._piece(kind, depth, True), self._beside(kind, depth)
        return self._call("select", self._piece("bool", depth, False), *((b, a) if self.chance(2) else (a, b))), ATOM

    def _cast(self, kind: str, depth: int, firm: bool) -> Piece:
        if kind == "i32":
            to = self.choose(("i32", "sat_i32", *NARROW_INTS, *(f"sat_{n}" for n in NARROW_INTS)))
        elif kind == "f32":
            to = self.choose(("f32", *NARROW_FLOATS, *NARROW_FLOATS, *NARROW_FLOATS))
        else:
            to = self.choose((kind, "sat_i64")) if kind == "i64" else kind
        source = self.choose((*NUMBERS, "bool"))
        return self._call(to, self._piece(source, depth, True)), ATOM

    def _minus(self, kind: str, depth: int, firm: bool) -> Piece:
        return f"-{self.bracket(self._piece(kind, depth, True), 7)}", 7

    def _step(self, kind: str, depth: int, firm: bool) -> Piece:
        """Rounding to integers, and the remainders of floats."""
        a = self._piece(kind, depth, True)
        if kind[0] == "f" and self.chance(2):
            b = self.choose(("2.0", "0.5", "3", "0.75", "-1.5")) if self.chance(2) else f"(abs({self.text(kind, 1, True)}) + 0.5)"
            return self._infix(self.choose(("floordiv", "mod", "ceildiv")), a, (b, 7 if b[0] == "-" else ATOM))
        return self._call(self.choose(("floor", "ceil", "round")), a), ATOM

    def _real(self, kind: str, depth: int, firm: bool) -> Piece:
        a = self._piece(kind if not self.chance(5) else {"f32": "i32", "f64": "i64"}[kind], depth, True)
        fn = self.choose([n for n, f in FUNCTIONS.items() if f.typing == "real" and f.infix == 0])
        if FUNCTIONS[fn].arity == 2:
            b = self._piece(kind, depth, True)
            return (f"pow(abs({a[0]}), clamp({b[0]}, -3, 3))" if fn == "pow" and self.chance(2) else self._call(fn, a, b)), ATOM
        if fn in _SHAPED and not self.chance(3):
            return self.choose(_SHAPED[fn]).format(a[0] if a[1] == ATOM else f"({a[0]})"), ATOM
        return self._call(fn, a), ATOM

    def _power(self, kind: str, depth: int, firm: bool) -> Piece:
        a = self._piece(kind, depth, True)
        how = self.choose(("literal", "literal", "real", "integer"))
        if how == "literal":
            b = self.choose(("2", "3", "4", "1", "0", "5", "-1", "-2", "0.5", "2.2", "-0.5", "1.0", "2.0"))
            return self._infix("**", a, (b, 7 if b[0] == "-" else ATOM))
        if how == "integer":
            return self._infix("**", a, (f"({self.text('i32', 1, True)} mod 6)", ATOM))
        return self._infix("**", (f"abs({a[0]})", ATOM), (f"clamp({self.text(kind, 1, True)}, -2, 3)", ATOM))

    def _int_power(self, kind: str, depth: int, firm: bool) -> Piece:
        b = self.choose(("2", "3", "4", "0", "1", "7", "31")) if not self.chance(3) else f"({self.text('i32', 1, True)} mod 5)"
        return self._infix("**", self._piece(kind, depth, True), (b, ATOM))

    def _reduce(self, kind: str, depth: int, firm: bool) -> Piece:
        """A reduction over a range of constant extent, of the index and of what does not depend on it."""
        k = self.fresh("k")
        extent = self.choose(("1", "2", "3", "5"))
        with self.reading("i64", k):
            body = self.text(kind, min(depth, 2), True)
            where = f" where {self.text('bool', 1)}" if self.chance(4) else ""
            over = f"[{k} < {extent}{where}]" if self.chance(2) else f"[{k} in 1..{extent} + 1{where}]"
        kinds = ["sum", "prod", "max", "min"] + (["mean"] if kind[0] == "f" else [])
        if not where:
            kinds += ["nth"] + (["argmax", "argmin", "argnth"] if kind == "i32" else [])
        fn = self.choose(kinds)
        rank = f", {self.choose(('0', '-1'))}" if fn in ("nth", "argnth") else ""
        return f"{fn}{over}({body}{rank})", ATOM

    # --------------------------------------------------------------------------------------------------------------- bools

    def _bool(self, depth: int) -> Piece:
        match self.choose(("compare", "compare", "join", "not", "test", "select", "quantifier", "cast")):
            case "compare":
                return self._comparison(depth - 1)
            case "join":
                return self._infix(self.choose(("and", "or")), self._piece("bool", depth - 1, False), self._piece("bool", depth - 1, False))
            case "not":
                return f"not {self.bracket(self._piece('bool', depth - 1, False), 3)}", 3
            case "test":
                kind = self.choose(("f32", "f64"))
                return self._call(self.choose(("isnan", "isinf")), self._piece(kind, depth - 1, True)), ATOM
            case "select":
                return self._call("select", *(self._piece("bool", depth - 1, False) for _ in range(3))), ATOM
            case "cast":
                return self._call("bool", self._piece(self.choose(("i32", "f32", "i64")), 0, True)), ATOM
        k = self.fresh("k")
        with self.reading("i64", k):
            return f"{self.choose(('any', 'all'))}[{k} < 3]({self.text('bool', depth - 1)})", ATOM

    def _comparison(self, depth: int) -> Piece:
        if self.leaves.get("bool") and self.chance(8):
            return self._infix(self.choose(("==", "!=")), (self.choose(self.leaves["bool"]), ATOM), self._piece("bool", 0, False))
        kind = self.choose(NUMBERS)
        return self._infix(self.choose(COMPARISONS), self._piece(kind, depth, True), self._beside(kind, depth))
