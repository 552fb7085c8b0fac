"""Integer polynomials over atoms: the canonical form in which the prover compares and combines integer expressions.

An atom is a name, a value read from a tensor, or a function that is not polynomial (`floordiv`, `mod`, `min`, `max`, `select`) of polynomials. The
constructors below fold what holds for all integers: the language's floor semantics, with `x floordiv 0 = x mod 0 = 0`. Equal polynomials
have equal keys, and render to the same expression.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd
from weakref import WeakValueDictionary

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Name, Read


class Atom:
    """One variable of a polynomial. Atoms of one key are one object, so they compare by identity."""

    __slots__ = ("__weakref__", "args", "expr", "key", "kind", "names")

    def __init__(self, key: str, kind: str, args: tuple[Poly, ...], expr: Expr | None, names: frozenset[str] | None) -> None:
        self.key = key
        self.kind = kind
        """`name`, `floordiv`, `mod`, `min`, `max`, `select`, `read` or `opaque`."""
        self.args = args
        self.expr = expr
        """The expression of a name, a read or an opaque value; the condition of a `select`."""
        self.names = names
        """The names that its value depends on; None where it depends on data."""

    def __repr__(self) -> str:
        return f"Atom({self.key})"


_ATOMS: WeakValueDictionary[str, Atom] = WeakValueDictionary()

Mono = tuple[Atom, ...]
"""A product of atoms, sorted by key; the empty one is the constant 1."""


def _atom(key: str, kind: str, args: tuple[Poly, ...] = (), expr: Expr | None = None, names: frozenset[str] | None = None) -> Atom:
    found = _ATOMS.get(key)
    return found if found is not None else _ATOMS.setdefault(key, Atom(key, kind, args, expr, names))


def name_atom(name: str) -> Atom:
    """The atom of a name."""
    return _ATOMS.get(name) or _atom(name, "name", (), Name(name), frozenset((name,)))


def value_atom(expr: Expr) -> Atom:
    """A value that nothing is known of but that equal expressions give equal values."""
    return _atom(f"?{expr!r}", "read" if isinstance(expr, Read) else "opaque", (), expr)


class Poly:
    """A polynomial with integer coefficients; immutable. `terms` holds no zeros."""

    __slots__ = ("_key", "terms")

    def __init__(self, terms: dict[Mono, int]) -> None:
        self.terms = terms
        self._key: str | None = None

    @property
    def key(self) -> str:
        """A text that equal polynomials share."""
        if self._key is None:
            self._key = "+".join(f"{c}*{'*'.join(a.key for a in m)}" for m, c in sorted(self.terms.items(), key=_order)) or "0"
        return self._key

    @property
    def constant(self) -> int | None:
        """The value of a constant polynomial."""
        if not self.terms:
            return 0
        return self.terms.get((), None) if len(self.terms) == 1 else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __add__(self, other: Poly) -> Poly:
        return self.plus(other, 1)

    def __sub__(self, other: Poly) -> Poly:
        return self.plus(other, -1)

    def __neg__(self) -> Poly:
        return self.times(-1)

    def plus(self, other: Poly, factor: int = 1) -> Poly:
        """self + factor * other."""
        out = dict(self.terms)
        for m, c in other.terms.items():
            if total := out.get(m, 0) + factor * c:
                out[m] = total
            else:
                out.pop(m, None)
        return Poly(out)

    def shift(self, by: int) -> Poly:
        """self + by."""
        out = dict(self.terms)
        if total := out.get((), 0) + by:
            out[()] = total
        else:
            out.pop((), None)
        return Poly(out)

    def times(self, factor: int) -> Poly:
        """self * factor."""
        return Poly({m: c * factor for m, c in self.terms.items()}) if factor else ZERO

    def __mul__(self, other: Poly) -> Poly:
        if (c := other.constant) is not None:
            return self.times(c)
        if (c := self.constant) is not None:
            return other.times(c)
        out: dict[Mono, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                k = product(m, n)
                out[k] = out.get(k, 0) + c * d
        return Poly({m: c for m, c in out.items() if c})

    def atoms(self) -> set[Atom]:
        """The atoms that stand in it, not those inside their arguments."""
        return {a for m in self.terms for a in m}

    def __repr__(self) -> str:
        return f"Poly({self.key})"


def _order(term: tuple[Mono, int]) -> tuple[int, tuple[str, ...]]:
    return -len(term[0]), tuple(a.key for a in term[0])


def product(m: Mono, n: Mono) -> Mono:
    """The product of two monomials."""
    if not m or not n:
        return m or n
    return tuple(sorted(m + n, key=lambda a: a.key))


ZERO = Poly({})
ONE = Poly({(): 1})


def const(value: int) -> Poly:
    """A constant."""
    return Poly({(): value}) if value else ZERO


def of_atom(atom: Atom) -> Poly:
    """The polynomial that is one atom."""
    return Poly({(atom,): 1})


def divide(a: Poly, b: Poly) -> tuple[Poly, Poly]:
    """(q, r) with a = b * q + r, where q takes every term that the leading term of b divides."""
    if not b.terms:
        return ZERO, a
    lead, by = min(b.terms.items(), key=_order)
    quotient, rest, kept = ZERO, a, ZERO
    for _ in range(64):
        if not rest.terms:
            break
        m, c = min(rest.terms.items(), key=_order)
        left = without(m, lead)
        if left is None or c % by:
            kept, rest = kept + Poly({m: c}), rest - Poly({m: c})
            continue
        step = Poly({left: c // by})
        quotient, rest = quotient + step, rest - step * b
    return quotient, kept + rest


def without(m: Mono, n: Mono) -> Mono | None:
    """m / n, None if n does not divide m."""
    left = list(m)
    for a in n:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


# -------------------------------------------------------------------------------------------------- functions that are not polynomial


def floordiv(a: Poly, b: Poly, nonzero: bool = False) -> Poly:
    """a floordiv b. `nonzero`: b is known not to be 0, so that (b * q) floordiv b is q."""
    if (d := b.constant) is not None:
        return _floordiv(-a, -d) if d < 0 else _floordiv(a, d)
    if not a.terms:
        return ZERO
    whole = ZERO
    if nonzero:
        whole, a = divide(a, b)
        if not a.terms:
            return whole
    return whole + of_atom(_atom(f"floordiv({a.key},{b.key})", "floordiv", (a, b), None, _names((a, b))))


def _floordiv(a: Poly, d: int) -> Poly:
    """a floordiv d for a constant d >= 0: what d divides is taken out, the rest has coefficients of at most d / 2, the first of them positive."""
    if d == 0 or not a.terms:
        return ZERO
    if d == 1:
        return a
    whole: dict[Mono, int] = {}
    rest: dict[Mono, int] = {}
    for m, c in a.terms.items():
        q, r = divmod(c, d)
        if m and 2 * r > d:
            q, r = q + 1, r - d
        if q:
            whole[m] = q
        if r:
            rest[m] = r
    if not any(rest):
        return Poly(whole)
    return Poly(whole) + _floordiv_rest(rest, d)


def _floordiv_rest(rest: dict[Mono, int], d: int) -> Poly:
    g = gcd(d, *(c for m, c in rest.items() if m))
    if g > 1:
        return _floordiv(Poly({m: c // g for m, c in rest.items() if c // g}), d // g)
    lead = min(((m, c) for m, c in rest.items() if m), key=_order)
    if lead[1] < 0:
        return -_floordiv(Poly(rest).times(-1).shift(d - 1), d)
    inner = lead[0][0]
    # (x floordiv e + c) floordiv d = (x + c * e) floordiv (d * e)
    if len(rest) - (() in rest) == 1 and lead[1] == 1 and len(lead[0]) == 1 and inner.kind == "floordiv" and (e := inner.args[1].constant):
        return _floordiv(inner.args[0].shift(rest.get((), 0) * e), d * e)
    a, b = Poly(rest), const(d)
    return of_atom(_atom(f"floordiv({a.key},{d})", "floordiv", (a, b), None, _names((a,))))


def mod(a: Poly, b: Poly, nonzero: bool = False) -> Poly:
    """a mod b, written with a floordiv where b is known not to be 0."""
    if (d := b.constant) is not None:
        return a - floordiv(a, b).times(d) if d else ZERO
    a = divide(a, b)[1]
    if not a.terms:
        return ZERO
    if nonzero:
        return a - floordiv(a, b, True) * b
    return of_atom(_atom(f"mod({a.key},{b.key})", "mod", (a, b), None, _names((a, b))))


def extremum(kind: str, args: Iterable[Poly]) -> Poly:
    """`min` or `max` of several; of two that differ by a constant one is dropped."""
    kept: list[Poly] = []
    sign = 1 if kind == "min" else -1
    for p in _flat(kind, args):
        for i, q in enumerate(kept):
            if (difference := (p - q).constant) is not None:
                if difference * sign < 0:
                    kept[i] = p
                break
        else:
            kept.append(p)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=lambda p: p.key)
    return of_atom(_atom(f"{kind}({','.join(p.key for p in kept)})", kind, tuple(kept), None, _names(kept)))


def _flat(kind: str, args: Iterable[Poly]) -> Iterable[Poly]:
    for p in args:
        if len(p.terms) == 1:
            (m, c), = p.terms.items()
            if c == 1 and len(m) == 1 and m[0].kind == kind:
                yield from m[0].args
                continue
        yield p


def select(condition: Expr, a: Poly, b: Poly) -> Poly:
    """select(condition, a, b)."""
    if a == b:
        return a
    return of_atom(_atom(f"select({condition!r},{a.key},{b.key})", "select", (a, b), condition))


def _names(args: Iterable[Poly]) -> frozenset[str] | None:
    out: frozenset[str] = frozenset()
    for p in args:
        for a in p.atoms():
            if a.names is None:
                return None
            out |= a.names
    return out


def substitute(p: Poly, values: Mapping[Atom, Poly]) -> Poly:
    """p with atoms replaced, also inside products, but not inside the arguments of other atoms."""
    if not any(a in values for m in p.terms for a in m):
        return p
    out = ZERO
    for m, c in p.terms.items():
        term = const(c)
        for a in m:
            term = term * values.get(a, Poly({(a,): 1}))
        out = out + term
    return out


# ------------------------------------------------------------------------------------------------------------------- back to expressions


def render(p: Poly, dtype: DType | None = None, sources: Mapping[Atom, Expr] | None = None) -> Expr:
    """The expression of a polynomial: positive terms first, constant last, `x mod d` where it was folded into a floordiv. Nodes get `dtype`;
    `sources` gives the expressions that values stand for, where not any equal one will do."""
    terms = sorted(_with_mods(p), key=_order_rendered)
    out: Expr | None = None
    for factors, c in terms:
        coefficient = c if out is None else abs(c)
        term = _product([_factor(f, dtype, sources or {}) for f in factors], coefficient, dtype)
        out = term if out is None else Apply("+" if c > 0 else "-", (out, term), dtype=dtype)
    return out if out is not None else IntLit(0, dtype=dtype)


Factor = Atom | tuple[Poly, int]
"""An atom, or (a, d) for a mod d."""


def _order_rendered(term: tuple[tuple[Factor, ...], int]) -> tuple[int, int, int, tuple[str, ...]]:
    factors, c = term
    keys = tuple(f.key if isinstance(f, Atom) else f"mod({f[0].key},{f[1]})" for f in factors)
    return (0 if c > 0 and factors else 1 if c > 0 else 2), 0 if factors else 1, -len(factors), keys


def _with_mods(p: Poly) -> list[tuple[tuple[Factor, ...], int]]:
    out: list[tuple[tuple[Factor, ...], int]] = []
    for m in sorted(p.terms, key=lambda m: tuple(a.key for a in m)):
        c = p.terms.get(m)
        if c is None or len(m) != 1 or m[0].kind != "floordiv" or not (d := m[0].args[1].constant) or c % d:
            continue
        a, k = m[0].args[0], -c // d
        shorter = p - (a - Poly({m: d})).times(k)
        if len(shorter.terms) < len(p.terms) - 1 or (len(shorter.terms) == len(p.terms) - 1 and k > 0):
            p = shorter
            out.append((((a, d),), k))
    return out + [(m, c) for m, c in p.terms.items()]


def _product(factors: list[Expr], coefficient: int, dtype: DType | None) -> Expr:
    if not factors:
        return IntLit(coefficient, dtype=dtype)
    out = factors[0]
    if coefficient == -1:
        out = Apply("neg", (out,), dtype=dtype)
    elif coefficient != 1:
        out = Apply("*", (IntLit(coefficient, dtype=dtype), out), dtype=dtype)
    for f in factors[1:]:
        out = Apply("*", (out, f), dtype=dtype)
    return out


def _factor(atom: Factor, dtype: DType | None, sources: Mapping[Atom, Expr]) -> Expr:
    if not isinstance(atom, Atom):
        return Apply("mod", (render(atom[0], dtype, sources), IntLit(atom[1], dtype=dtype)), dtype=dtype)
    if atom.kind == "name" and atom not in sources:
        return Name(atom.key, dtype=dtype)
    expr = sources.get(atom, atom.expr)
    if expr is not None and atom.kind != "select":
        return expr if dtype is None or expr.dtype is None or expr.dtype is dtype else Cast(dtype.name, expr, implicit=True, dtype=dtype)
    args = [render(p, dtype, sources) for p in atom.args]
    if atom.kind == "select":
        assert expr is not None
        return Apply("select", (expr, *args), dtype=dtype)
    out = args[0]
    for a in args[1:]:
        out = Apply(atom.kind, (out, a), dtype=dtype)
    return out
