"""One call: argument types against an operator's signature.

Symbols of the signature are bound to dimensions of the caller, type variables to dtypes, `...` to what is left. What cannot be decided (`?`, a `where` over
symbols) becomes a condition that is checked when the pipeline is called.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import BOOL, DTYPES
from pipelink_ir.ir.nodes import Apply, Dots, Dynamic, Expr, IntLit, Name, Operand, Operator, TensorType
from pipelink_ir.ir.prover import Facts, equal, solve
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.walk import names_in, substitute
from pipelink_ir.passes.infer.attributes import Values
from pipelink_ir.passes.infer.specialise import Packed, Part, closed, put_words
from pipelink_ir.passes.infer.text import show, show_type, written


@dataclass(frozen=True, slots=True)
class Argument:
    """An edge with its type, where it is made, and where it got this name if that is another place (an alias). An operand of a graph for which the call
    gives a pack has `parts`: stacked, or joined along `axis`."""

    name: str
    type: TensorType
    made: Span
    named: Span | None = None
    parts: tuple[Argument, ...] = ()
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What a node gives for one operand: one edge, or several that are packed, along a dimension by its name or by its number."""

    span: Span
    parts: tuple[Argument, ...]
    along: str | None = None
    pack: bool = False
    axis: int | None = None

    @property
    def stacks(self) -> bool:
        return self.along is None and self.axis is None

    @property
    def said(self) -> str:
        """The parts as a message names them between `'%` and `'`."""
        between = "' and '%" if len(self.parts) == 2 else "' to '%"
        return self.parts[0].name if len(self.parts) == 1 else between.join((self.parts[0].name, self.parts[-1].name))


def packed_type(parts: Sequence[Argument], axis: int | None) -> TensorType:
    """The type of parts that are joined along an axis, or stacked."""
    first = parts[0].type
    dims = list(first.dims)
    if axis is None:
        return replace(first, dims=(IntLit(len(parts)), *dims), layout=None)
    for p in parts[1:]:
        dims[axis] = Apply("+", (dims[axis], p.type.dims[axis]))
    dims[axis] = normal(dims[axis])
    return replace(first, dims=tuple(dims), layout=next((p.type.layout for p in parts if p.type.layout is not None), None))


@dataclass(slots=True)
class Match:
    """What one call binds."""

    dtypes: dict[str, str] = field(default_factory=dict)
    dots: tuple[Expr, ...] | None = None
    dims: dict[str, Expr] = field(default_factory=dict)
    packed: dict[str, Packed] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)
    layouts: list[tuple[TensorType, str | None]] = field(default_factory=list)
    ok: bool = True


class Matcher:
    """Matches one call; reports what does not fit."""

    def __init__(self, op: Operator, where: Span, facts: Facts, dynamic: set[str], report: Report) -> None:
        self.op, self.where, self.facts, self.dynamic, self.report = op, where, facts, dynamic, report
        self.match = Match()
        self.bound_by: dict[str, Argument] = {}
        self.dtype_by: dict[str, Argument] = {}
        self.name = written(op.name)
        self.declared = Note(f"'@{self.name}' is declared here", op.signature)

    def run(self, given: Sequence[Given], values: Values) -> Match | None:
        """Bind everything; None after an error."""
        self.match.dims.update(values.dims)
        self.match.dtypes.update(values.dtypes)
        pending: list[tuple[Operand, Given, Argument, int, Expr, Expr]] = []
        for operand, g in zip(self.op.operands, given, strict=True):
            argument = self._argument(operand, g)
            if argument is None:
                self.match.ok = False
                continue
            if not self._dtype(operand, argument, g) or not self._layout(operand, argument, g):
                self.match.ok = False
                continue
            pairs = self._pairs(operand, argument, g)
            if pairs is None:
                self.match.ok = False
                continue
            pending += [(operand, g, argument, k, p, a) for k, p, a in pairs]
        if not self.match.ok:
            return None
        return self.match if self._bind(pending) and self._where(values) else None

    def _error(self, field_name: str, span: Span, message: str, notes: list[Note], help: str | None) -> None:
        self.report.error(field_name, span, message, [*notes, self.declared], help)
        self.match.ok = False

    @staticmethod
    def _made(a: Argument) -> Note:
        return Note(f"'%{a.name}' is {show_type(a.type)}, made here", a.made)

    # -------------------------------------------------------------------------------------------------------- one operand

    def _argument(self, operand: Operand, g: Given) -> Argument | None:
        """The one type that an operand is given; packed parts are put together first."""
        first = g.parts[0]
        if not g.pack:
            return first
        if any(isinstance(d, Dots) for d in operand.type.dims) and not g.stacks:
            how = f"'along {g.along}' names a dimension" if g.along is not None else f"parts are joined along dimension {g.axis}"
            self._error("attribute", g.span, f"{how} of '%{operand.name}', which may not have '...' there", [], "write the dimensions of the operand out")
            return None
        for p in g.parts[1:]:
            if p.type.dtype != first.type.dtype:
                self._error("dtype", g.span, f"the parts differ: '%{first.name}' holds {first.type.dtype}, '%{p.name}' holds {p.type.dtype}",
                            [self._made(first), self._made(p)], "cast one with '@std.cast'")
                return None
            if len(p.type.dims) != len(first.type.dims):
                self._error("rank", g.span, f"the parts differ: '%{first.name}' has {len(first.type.dims)} dimensions, '%{p.name}' has {len(p.type.dims)}",
                            [self._made(first), self._made(p)], "give parts of one rank")
                return None
            have, want = p.type.layout, first.type.layout
            if have is not None and want is not None and have != want:
                self._error("layout", g.span, f"the parts differ: '%{first.name}' is {want}, '%{p.name}' is {have}", [self._made(first), self._made(p)],
                            _transposition(p.name, have, want))
                return None
        axis = self._pack_axis(operand, g)
        if axis is None:
            return None
        for p in g.parts[1:]:
            for k, (a, b) in enumerate(zip(first.type.dims, p.type.dims, strict=True)):
                if (g.stacks or k != axis) and not self._equal(a, b):
                    self._error("shape", g.span, f"the parts differ in dimension {k}: '%{first.name}' has {show(a)}, '%{p.name}' has {show(b)}",
                                [self._made(first), self._made(p)], "parts agree in all dimensions but the joined one")
                    return None
        self.match.packed[operand.name] = Packed(axis, g.stacks, tuple(Part(IntLit(1) if g.stacks else p.type.dims[axis]) for p in g.parts))
        return Argument(g.said, packed_type(g.parts, None if g.stacks else axis), first.made)

    def _pack_axis(self, operand: Operand, g: Given) -> int | None:
        if g.along is None:
            return g.axis or 0
        for k, d in enumerate(operand.type.dims):
            if isinstance(d, Name) and d.name == g.along:
                return k
        names = [d.name for d in operand.type.dims if isinstance(d, Name)]
        self._error("name", g.span, f"'%{operand.name}' of '@{self.name}' has no dimension '{g.along}'", [], f"its dimensions are {', '.join(names)}")
        return None

    def _dtype(self, operand: Operand, a: Argument, g: Given) -> bool:
        want = operand.type.dtype
        if want in DTYPES:
            if a.type.dtype == want:
                return True
            self._error("dtype", g.span, f"'%{a.name}' holds {a.type.dtype}, but '@{self.name}' takes {want} as '%{operand.name}'", [self._made(a)],
                        _cast(a, want))
            return False
        bound = self.match.dtypes.get(want)
        if bound is None:
            self.match.dtypes[want] = a.type.dtype
            self.dtype_by[want] = a
            return self._admitted(want, a, g)
        if bound != a.type.dtype:
            other = self.dtype_by.get(want)
            said = f"'%{other.name}' makes it {bound}" if other is not None else f"it is {bound}"
            self._error("dtype", g.span, f"'{want}' of '@{self.name}' is one dtype: {said}, '%{a.name}' holds {a.type.dtype}",
                        [*([self._made(other)] if other is not None else []), self._made(a)], _cast(a, bound))
            return False
        return True

    def _admitted(self, variable: str, a: Argument, g: Given) -> bool:
        allowed = contracts.dtypes(self.op)
        if allowed is None or a.type.dtype in contracts.words(allowed.value):
            return True
        names = contracts.words(allowed.value)
        self._error("dtype", g.span, f"'%{a.name}' holds {a.type.dtype}, but '@{self.name}' takes {', '.join(names)} as '{variable}'",
                    [self._made(a), Note("its dtypes", allowed.span)], _cast(a, "f32" if "f32" in names or not names else names[0]))
        return False

    def _layout(self, operand: Operand, a: Argument, g: Given) -> bool:
        want = operand.type.layout
        self.match.layouts.append((operand.type, a.type.layout))
        if want is None or a.type.layout is None or a.type.layout == want:
            return True
        self._error("layout", g.span, f"'%{a.name}' is {a.type.layout}, but '@{self.name}' takes {want} as '%{operand.name}'", [self._made(a)],
                    _transposition(a.name, a.type.layout, want))
        return False

    def _pairs(self, operand: Operand, a: Argument, g: Given) -> list[tuple[int, Expr, Expr]] | None:
        """(axis, pattern, dimension) for every axis; binds `...`."""
        pattern, actual = operand.type.dims, a.type.dims
        dots = [k for k, d in enumerate(pattern) if isinstance(d, Dots)]
        if not dots:
            if len(pattern) != len(actual):
                self._error("rank", g.span, f"'%{a.name}' has {_axes(len(actual))}, but '@{self.name}' takes {len(pattern)} as '%{operand.name}'",
                            [self._made(a)], self._rank_help(g, len(pattern), pattern))
                return None
            return [(k, p, d) for k, (p, d) in enumerate(zip(pattern, actual, strict=True))]
        at, rest = dots[0], len(pattern) - dots[0] - 1
        if len(actual) < len(pattern) - 1:
            self._error("rank", g.span,
                        f"'%{a.name}' has {_axes(len(actual))}, but '@{self.name}' takes at least {len(pattern) - 1} as '%{operand.name}'",
                        [self._made(a)], f"give a tensor of at least {len(pattern) - 1} dimensions")
            return None
        middle = actual[at:len(actual) - rest]
        if self.match.dots is None:
            self.match.dots = middle
            self.bound_by["..."] = a
        elif len(middle) != len(self.match.dots):
            other = self.bound_by["..."]
            self._error("rank", g.span, f"'...' of '@{self.name}' stands for {len(self.match.dots)} dimensions in '%{other.name}' and for "
                        f"{len(middle)} in '%{a.name}'", [self._made(other), self._made(a)], "give tensors of one rank; there is no implicit broadcasting")
            return None
        else:
            other = self.bound_by["..."]
            for k, (x, y) in enumerate(zip(self.match.dots, middle, strict=True)):
                if not self._equal(x, y):
                    self._mismatch(operand, a, g, at + k, y, x, other)
                    return None
        return [(k, p, d) for k, p, d in zip(range(at), pattern[:at], actual[:at], strict=True)] + [
            (len(actual) - rest + k, p, d) for k, (p, d) in enumerate(zip(pattern[at + 1:], actual[len(actual) - rest:], strict=True))]

    @staticmethod
    def _rank_help(g: Given, wanted: int, pattern: Sequence[Expr]) -> str:
        if g.pack and g.stacks and len(g.parts[0].type.dims) == wanted:
            names = [d.name for d in pattern if isinstance(d, Name)]
            return f"a list without 'along' is stacked along a new dimension; join its parts along one there is, '[…] along {names[-1] if names else 'C'}'"
        return "give a number, a tensor of no dimensions" if wanted == 0 else f"give a tensor of {_axes(wanted)}; there is no implicit broadcasting"

    # -------------------------------------------------------------------------------------------------------- dimensions

    def _equal(self, a: Expr, b: Expr) -> bool:
        """Whether two dimensions of the caller agree; one that was written `?` is checked at the call."""
        if a is b or a == b or equal(a, b, self.facts):
            return True
        if (names_in(a) | names_in(b)) & self.dynamic:
            self.match.conditions.append(Apply("==", (normal(a), normal(b)), span=self.where, dtype=BOOL))
            return True
        return False

    def _mismatch(self, operand: Operand, a: Argument, g: Given, axis: int, found: Expr, expected: Expr, other: Argument | None) -> None:
        pattern, value = self._pattern(operand, axis, a), show(expected)
        said = f", which '%{other.name}' makes {value}" if other is not None and other is not a else "" if pattern == f"'{value}'" else f", {value}"
        turned = next((k for k, d in enumerate(a.type.dims) if k != axis and (d == expected or equal(d, expected, self.facts))), None)
        if turned is not None:
            help = f"its dimension {turned} is {value}: transpose '%{a.name}', or declare it the other way round"
        elif names_in(found) | names_in(expected):
            help = f"give tensors whose shapes agree for every size, or state it in a 'where': where {show(found)} == {value}"
        elif isinstance(found, IntLit) and found.value == 1:
            help = "a dimension of 1 is not stretched: an operator that takes it so says so in its signature"
        else:
            help = "give tensors whose shapes agree"
        self._error("shape", g.span, f"dimension {axis} of '%{a.name}' is {show(found)}, but '@{self.name}' takes that of '%{operand.name}' to be "
                    f"{pattern}{said}", [self._made(a), *([self._made(other)] if other is not None and other is not a else [])], help)

    @staticmethod
    def _pattern(operand: Operand, axis: int, a: Argument) -> str:
        dims = operand.type.dims
        at = next((k for k, d in enumerate(dims) if isinstance(d, Dots)), None)
        if at is None or axis < at:
            return f"'{show(dims[axis])}'"
        back = len(a.type.dims) - axis
        return f"'{show(dims[-back])}'" if back < len(dims) - at else "'...'"

    def _bind(self, pending: list[tuple[Operand, Given, Argument, int, Expr, Expr]]) -> bool:
        dims = self.match.dims
        while pending:
            rest: list[tuple[Operand, Given, Argument, int, Expr, Expr]] = []
            for item in pending:
                operand, g, a, axis, pattern, actual = item
                if isinstance(pattern, Dynamic):
                    continue
                unbound = names_in(pattern) - set(dims)
                if not unbound:
                    expected = normal(substitute(pattern, dims))
                    if not self._equal(actual, expected):
                        by = next((self.bound_by[n] for n in sorted(names_in(pattern)) if n in self.bound_by), None)
                        self._mismatch(operand, a, g, axis, actual, expected, by)
                        return False
                    continue
                if isinstance(pattern, Name):
                    dims[pattern.name] = actual
                    self.bound_by[pattern.name] = a
                    continue
                found = solve(substitute(pattern, dims), actual, next(iter(unbound))) if len(unbound) == 1 else None
                if found is not None:
                    dims[next(iter(unbound))] = found
                    self.bound_by[next(iter(unbound))] = a
                    continue
                rest.append(item)
            if len(rest) == len(pending):
                operand, g, a, axis, pattern, actual = rest[0]
                self._error("shape", g.span, f"dimension {axis} of '%{a.name}' is {show(actual)}, which does not fit {self._pattern(operand, axis, a)} of "
                            f"'%{operand.name}' for any size", [self._made(a)], "give a tensor whose size divides, or pass the dimension as a 'dim' attribute")
                return False
            pending = rest
        return True

    def _where(self, values: Values) -> bool:
        """Each condition of the operator: proven, an error, or left to the call."""
        names = {**self.match.dims, **values.scalars}
        ok = True
        for w in self.op.where:
            condition = substitute(put_words(w, self.match.dtypes, values.words), names)
            holds = closed(condition)
            if holds or self.facts.prove(condition):
                continue
            if holds is False or (self.facts.refuted(condition) and not self.facts.contradictory()):
                got = ", ".join(f"{n} = {show(names[n])}" for n in sorted(names_in(w)) if n in names and show(names[n]) != n)
                self.report.error("shape", self.where, f"'@{self.name}' asks for '{show(w)}'" + (f", but here {got}" if got else ""),
                                  [Note("it asks for it here", w.span), *(self._made(self.bound_by[n]) for n in sorted(names_in(w)) if n in self.bound_by)],
                                  "change the shape or the attribute so that the condition holds")
                ok = False
            else:
                self.match.conditions.append(replace(condition, span=w.span))
        return ok


def _transposition(name: str, layout: str, want: str) -> str:
    """How a tensor gets from one layout to another."""
    if {layout, want} == {"NHWC", "NCHW"}:
        return f"insert a transposition, '%t = @{layout.lower()}_to_{want.lower()}(%{name})' of std.image"
    if sorted(layout) == sorted(want):
        have, need = (", ".join(w.lower()) for w in (layout, want))
        return f"transpose '%{name}' first, by an operator that says '%y[{need}] = %x[{have}]'"
    return f"transpose '%{name}' to {want} first"


def _cast(a: Argument, to: str) -> str:
    """How an edge gets another dtype."""
    pixels = ", or '@u8_to_unit' of std.image, which scales pixels to [0, 1]" if a.type.dtype == "u8" and DTYPES[to].is_float else ""
    return f"insert '%t = @std.cast(%{a.name}) {{U = {to}}}'{pixels}"


def _axes(n: int) -> str:
    return f"{n} dimension{'s' if n != 1 else ''}"


def result_type(r: Operand, match: Match) -> TensorType:
    """The type of a result in the caller's symbols. Without a layout of its own it has that of an operand of the same shape."""
    dims: list[Expr] = []
    for d in r.type.dims:
        dims += match.dots or () if isinstance(d, Dots) else (normal(substitute(d, match.dims)),)
    layout = r.type.layout
    if layout is None:
        layout = next((given for pattern, given in match.layouts if pattern.layout is None and pattern.dims == r.type.dims), None)
    return TensorType(tuple(dims), match.dtypes.get(r.type.dtype, r.type.dtype), layout, span=r.type.span)
