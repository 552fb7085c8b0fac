"""What each rule of `plir.lark` builds: nodes of the IR, while lark parses.

Every method is named after a rule or alias, takes the rule's children, tokens included, and returns a node; spans come from the first and the last
child. Mistakes that a grammar cannot say (a cast of two values, `compute` twice) go into the report, and building goes on.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pipelink_ir.grammar.tokens import MAX_INT, Token, Tokens, unescape
from pipelink_ir.ir import nodes
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import CONSTANTS, REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Axis, Const, Expr, IntLit, Name, Operand, Range, Read, Reduce, Section, Setting, Text
from pipelink_ir.ir.source import Source, Span, elsewhere

MAX_LEVELS = 1000
"""How deep an expression may be as a tree, so that whatever walks it may recurse."""

_SYMBOL = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[0-9]+)*")
_SATURATING = {f"sat_{d.name}": d.name for d in DTYPES.values() if d.is_int}
_CONSTANTS = frozenset(CONSTANTS)
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})

Children = list[Any]


@dataclass(frozen=True, slots=True)
class _Where:
    """The conditions of one `where` line."""

    conditions: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Clause:
    """One trailing clause of a node."""

    name: str
    value: Any
    span: Span


class Builder:
    """The transformer that lark calls. One text at a time: `begin` gives it the text, `finish` ends it."""

    def __init__(self) -> None:
        self.begin(Source("<nothing>", ""), Tokens(""), Report())

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_builder, ()

    def begin(self, source: Source, tokens: Tokens, report: Report) -> None:
        self.source, self.tokens, self.report = source, tokens, report
        self.chars = tokens.text
        self.too_big: list[IntLit] = []
        self.type_end: Any = None
        """The last token of the attribute type just read."""

    def finish(self) -> None:
        """What is known only at the end: 2**63 is an integer after a minus alone."""
        for literal in self.too_big:
            self.error(literal.span, "an integer beyond 64 bits", help="the largest is 9223372036854775807")
        self.too_big.clear()

    def error(self, span: Span, message: str, notes: Sequence[Note] = (), help: str | None = None, code: str = "PL1001") -> None:
        self.report.error(code, span, message, notes, help)

    # ---------------------------------------------------------------------------------------------------------------- helpers

    def at(self, token: Token) -> Span:
        return Span(self.source, token.start_pos, token.end_pos)

    def between(self, first: Any, last: Any) -> Span:
        """From the beginning of one child to the end of another, tokens or nodes."""
        start = first.start_pos if isinstance(first, Token) else first.span.start
        end = last.end_pos if isinstance(last, Token) else last.span.end
        return Span(self.source, start, end)

    def binding(self, token: Token) -> str:
        """A name that is given to something: constants cannot be named anew."""
        if token.value in _CONSTANTS:
            self.error(self.at(token), f"'{token.value}' is a constant and cannot be a name", help="choose another name")
        return token.value

    def checked(self, value: Any) -> Any:
        """A whole expression, after a look at how deep it is. Each level takes a character at least, so most need no look."""
        if isinstance(value, Expr) and value.span.end - value.span.start > MAX_LEVELS and _levels(value) > MAX_LEVELS:
            self.error(value.span, f"the expression is more than {MAX_LEVELS:,} levels deep",
                       help="split it with local definitions: '%part[i] = …', or 'let part = …'")
            return IntLit(0, span=value.span)
        return value

    # ------------------------------------------------------------------------------------------------------------ expressions

    def integer(self, c: Children) -> IntLit:
        token = c[0]
        literal = IntLit(int(token.value), span=Span(self.source, token.start_pos, token.end_pos))
        if literal.value > MAX_INT:
            self.too_big.append(literal)
        return literal

    def floating(self, c: Children) -> nodes.FloatLit:
        return nodes.FloatLit(float(c[0].value), span=self.at(c[0]))

    def name(self, c: Children) -> Expr:
        token = c[0]
        span = Span(self.source, token.start_pos, token.end_pos)
        return Const(token.value, span=span) if token.value in _CONSTANTS else Name(token.value, span=span)

    def read(self, c: Children) -> Read:
        return Read(c[0].value[1:], tuple(c[2:-1:2]), span=self.between(c[0], c[-1]))

    def dots(self, c: Children) -> nodes.Dots:
        return nodes.Dots(span=self.at(c[0]))

    def dynamic(self, c: Children) -> nodes.Dynamic:
        return nodes.Dynamic(span=self.at(c[0]))

    def paren(self, c: Children) -> Expr:
        """The expression itself; its place includes the parentheses, so that what begins with it begins there."""
        object.__setattr__(c[1], "span", self.between(c[0], c[2]))
        return cast(Expr, c[1])

    def binary(self, c: Children) -> Apply:
        left, op, right = c
        return Apply(op.value, (left, right), span=Span(self.source, left.span.start, right.span.end))

    def negation(self, c: Children) -> Apply:
        return Apply("not", (c[1],), span=self.between(c[0], c[1]))

    def minus(self, c: Children) -> Expr:
        """A minus right before a literal is part of it."""
        operand, span = c[1], self.between(c[0], c[1])
        if isinstance(operand, (IntLit, nodes.FloatLit)) and self.chars[operand.span.start].isdigit():
            if isinstance(operand, IntLit):
                self.too_big = [t for t in self.too_big if t is not operand]
            return type(operand)(-operand.value, span=span)     # type: ignore[arg-type]
        return Apply("neg", (operand,), span=span)

    def arguments(self, c: Children) -> tuple[Expr, ...]:
        return tuple(c[::2])

    def call(self, c: Children) -> Expr:
        name, args, span = c[0].value, c[2], self.between(c[0], c[3])
        if name in DTYPES or name in _SATURATING or _SYMBOL.fullmatch(name):
            if len(args) == 1:
                return nodes.Cast(_SATURATING.get(name, name), args[0], name in _SATURATING, span=span)
            self.error(span, f"a cast takes one value, '{name}(…)' is given {len(args)}",
                       help=None if name in DTYPES else f"'{name}' is the name of a dtype here; functions are written in lower case")
        return Apply(name, args, span=span)

    def range_below(self, c: Children) -> Range:
        return Range(self.binding(c[0]), None, c[2], span=self.between(c[0], c[2]))

    def range_in(self, c: Children) -> Range:
        return Range(self.binding(c[0]), c[2], c[4], span=self.between(c[0], c[4]))

    def reduction(self, c: Children) -> Reduce:
        name, args, span = c[0], c[-2], self.between(c[0], c[-1])
        filtered = isinstance(c[-6], Token) and c[-6].type == "WHERE"
        ranges = c[2:-6:2] if filtered else c[2:-4:2]
        row = REDUCTIONS.get(name.value)
        wanted = 2 if row and row.ranked else 1
        if len(args) != wanted and (row or not 1 <= len(args) <= 2):
            text = f"'{name.value}' is of one expression and a rank, '{name.value}[…](e, r)'" if wanted == 2 else f"'{name.value}' is of one expression"
            self.error(args[wanted].span if len(args) > wanted else span, f"{text}, not of {len(args)}")
        body = args[0] if args else IntLit(0, span=span)
        return Reduce(name.value, tuple(ranges), c[-5] if filtered else None, body, args[1] if len(args) > 1 else None, span=span)

    # ----------------------------------------------------------------------------------------------------------------- values

    def string(self, c: Children) -> Text:
        return Text(unescape(c[0].value), span=self.at(c[0]))

    def items(self, c: Children) -> nodes.Items:
        return nodes.Items(tuple(self.checked(v) for v in c[1:-1:2]), span=self.between(c[0], c[-1]))

    def setting(self, c: Children) -> Setting:
        key, _, value = c
        key_span = Span(self.source, key.start_pos, key.end_pos)
        return Setting(key.value, self.checked(value), span=Span(self.source, key.start_pos, value.span.end), key_span=key_span)

    def settings(self, c: Children) -> tuple[Setting, ...]:
        return tuple(c[::2])

    entries = settings

    def scoped(self, c: Children) -> nodes.Scoped:
        return nodes.Scoped(c[0].value[1:], c[2], span=self.between(c[0], c[3]))

    def block(self, c: Children) -> Section:
        return Section(c[0].value, c[2], span=self.between(c[0], c[3]))

    # ------------------------------------------------------------------------------------------------------------------ types

    def type(self, c: Children) -> nodes.TensorType:
        dims, dtype = c[2]
        return nodes.TensorType(dims, dtype, c[4].value if len(c) == 6 else None, span=self.between(c[0], c[-1]))

    def shape(self, c: Children) -> tuple[tuple[Expr, ...], str]:
        *dims, dtype = c
        word = dtype.value
        parts = word.split("x")
        if dtype.type == "NAME" and len(parts) > 1 and all(parts) and (parts[-1] in DTYPES or _SYMBOL.fullmatch(parts[-1])):
            upper = "x".join([*(p.upper() for p in parts[:-1]), parts[-1]])
            self.error(self.at(dtype), f"'{word}' is no shape: symbolic dimensions are upper case", help=f"write '{upper}'")
        return tuple(self.checked(d) for d in dims[::2]), word

    def operand(self, c: Children) -> Operand:
        return Operand(c[0].value[1:], c[2], span=self.between(c[0], c[2]))

    def parameter(self, c: Children) -> Operand:
        return Operand(c[1].value[1:], c[3], param=True, span=self.between(c[1], c[3]))

    def attribute(self, c: Children) -> nodes.Attribute:
        name, (type_name, words) = self.binding(c[0]), c[2]
        if type_name == "dim" and not _SYMBOL.fullmatch(name):
            self.error(self.at(c[0]), f"the dimension '{name}' is not upper case", help=f"write '{name.upper()}', which a shape can name")
        default = self.checked(c[4]) if len(c) == 5 else None
        last = default if default is not None else self.type_end
        return nodes.Attribute(name, type_name, words, default, span=self.between(c[0], last))

    def attribute_type(self, c: Children) -> tuple[str, tuple[str, ...]]:
        self.type_end = c[0]
        return c[0].value, ()

    def word_type(self, c: Children) -> tuple[str, tuple[str, ...]]:
        self.type_end = c[-1]
        return "word", tuple(t.value for t in c[3:-1:2])

    def op_params(self, c: Children) -> tuple[Any, ...]:
        return tuple(c[::2])

    pipeline_params = results = op_params

    # ------------------------------------------------------------------------------------------------------------ definitions

    def let(self, c: Children) -> nodes.Let:
        return nodes.Let(self.binding(c[1]), self.checked(c[3]), span=self.between(c[0], c[3]))

    def define(self, c: Children) -> nodes.Define:
        axes = tuple(c[2:-3:2])
        target = self.between(c[0], c[-3])
        return nodes.Define(c[0].value[1:], axes, self.checked(c[-1]), span=self.between(c[0], c[-1]), target=target)

    def axis(self, c: Children) -> Axis:
        return Axis(self.binding(c[0]), span=self.at(c[0]))

    def axis_below(self, c: Children) -> Axis:
        return Axis(self.binding(c[0]), None, self.checked(c[2]), span=self.between(c[0], c[2]))

    def axis_in(self, c: Children) -> Axis:
        return Axis(self.binding(c[0]), self.checked(c[2]), self.checked(c[4]), span=self.between(c[0], c[4]))

    def position(self, c: Children) -> nodes.Position:
        value = int(c[0].value)
        if value > MAX_INT:
            self.error(self.at(c[0]), "an integer beyond 64 bits")
        return nodes.Position(value, span=self.at(c[0]))

    # -------------------------------------------------------------------------------------------------------------- operators

    def where(self, c: Children) -> _Where:
        return _Where(tuple(self.checked(e) for e in c[1::2]))

    def downgrade(self, c: Children) -> nodes.Downgrade:
        return nodes.Downgrade(c[1].value, c[3], span=self.between(c[0], c[4]))

    def unsupported(self, c: Children) -> nodes.Downgrade:
        return nodes.Downgrade(c[1].value, None, span=self.between(c[0], c[2]))

    def compute(self, c: Children) -> _Clause:
        body = nodes.Compute(tuple(c[2:-1]), span=self.between(c[0], c[-1]))
        return _Clause(c[0].value, body, self.at(c[0]))

    def graph(self, c: Children) -> _Clause:
        return _Clause("graph", nodes.Graph(tuple(c[2:-1]), span=self.between(c[0], c[-1])), self.at(c[0]))

    def kernel(self, c: Children) -> _Clause:
        kernel = nodes.Kernel(c[1].value, unescape(c[2].value), c[4], span=self.between(c[0], c[5]))
        return _Clause("kernel", kernel, self.at(c[0]))

    def once(self, clauses: Sequence[_Clause]) -> dict[str, Any]:
        """Clauses by name; of two that are equal the second is an error."""
        found: dict[str, _Clause] = {}
        for clause in clauses:
            first = found.setdefault(clause.name, clause)
            if first is not clause:
                self.error(clause.span, f"'{clause.name}' is given twice", [Note("given here first", first.span)], "remove one of them", "duplicate")
        return {name: clause.value for name, clause in found.items()}

    def op(self, c: Children) -> nodes.Operator:
        sections = c[10:-1]
        meaning = self.once([s for s in sections if isinstance(s, _Clause)])
        return nodes.Operator(
            c[1].value[1:], c[3], c[7], self.tokens.docs.get(c[0].start_pos),
            where=_conditions(sections),
            sections=tuple(s for s in sections if isinstance(s, Section)),
            downgrades=tuple(s for s in sections if isinstance(s, nodes.Downgrade)),
            compute=meaning.get("compute"), graph=meaning.get("graph"), kernel=meaning.get("kernel"), gradient=meaning.get("gradient"),
            span=self.between(c[0], c[-1]), name_span=self.at(c[1]), signature=self.between(c[0], c[8]))

    # -------------------------------------------------------------------------------------------------------------- pipelines

    def edge(self, c: Children) -> nodes.Edge:
        token = c[0]
        return nodes.Edge(token.value[1:], span=Span(self.source, token.start_pos, token.end_pos))

    def edges(self, c: Children) -> tuple[nodes.Edge, ...]:
        return tuple(c[::2])

    node_arguments = edges

    def pack(self, c: Children) -> nodes.Pack:
        return nodes.Pack(c[1], c[4].value if len(c) == 5 else None, span=self.between(c[0], c[-1]))

    def device(self, c: Children) -> nodes.Device:
        span = self.between(c[0], c[-1])
        if c[0].type == "SYMBOL":
            return nodes.Device("target", 0, c[0].value[1:], span=span)
        return nodes.Device(c[0].value, int(c[2].value) if len(c) == 3 else 0, span=span)

    def on(self, c: Children) -> _Clause:
        return _Clause("on", c[1], self.between(c[0], c[1]))

    def label(self, c: Children) -> _Clause:
        return _Clause("as", c[1].value, self.between(c[0], c[1]))

    def after(self, c: Children) -> _Clause:
        return _Clause("after", c[1], self.between(c[0], c[1][-1]))

    def plan(self, c: Children) -> _Clause:
        section = self.block(c)
        return _Clause("plan", section, section.span)

    def reason(self, c: Children) -> _Clause:
        return _Clause("reason", unescape(c[2].value), self.between(c[0], c[2]))

    def loc(self, c: Children) -> _Clause:
        return _Clause("loc", elsewhere(unescape(c[2].value), int(c[4].value), int(c[6].value)), self.between(c[0], c[7]))

    def node(self, c: Children) -> nodes.Node:
        attributed = len(c) > 6 and isinstance(c[6], Token)
        attrs = c[7] if attributed else ()
        clauses = c[9 if attributed else 6:]
        if clauses:
            more = self.once(clauses)
            span = Span(self.source, c[0][0].span.start, clauses[-1].span.end)
            return nodes.Node(c[0], c[2].value[1:], c[4], attrs, more.get("on"), more.get("as"), more.get("after", ()), more.get("plan"),
                              more.get("reason"), more.get("loc"), span=span, op_span=self.at(c[2]),
                              label_span=next((clause.span for clause in clauses if clause.name == "as"), None))
        return nodes.Node(c[0], c[2].value[1:], c[4], attrs, span=Span(self.source, c[0][0].span.start, c[-1].end_pos), op_span=self.at(c[2]))

    def alias(self, c: Children) -> nodes.Alias:
        names, _, of = c
        if len(names) > 1:
            self.error(of.span, f"{len(names)} edges on the left, one on the right", help="write an alias for each: '%b = %a'")
        return nodes.Alias(names[0], of, span=self.between(names[0], of))

    def pipeline(self, c: Children) -> nodes.Pipeline:
        placed = c[9].type == "ON"
        body = c[12 if placed else 10:-1]
        return nodes.Pipeline(
            c[1].value[1:], c[3], c[7], tuple(s for s in body if not isinstance(s, _Where)), self.tokens.docs.get(c[0].start_pos),
            where=_conditions(body), device=c[10] if placed else None,
            span=self.between(c[0], c[-1]), name_span=self.at(c[1]), signature=self.between(c[0], c[8]))

    # ----------------------------------------------------------------------------------------------------------------- module

    def import_module(self, c: Children) -> nodes.Import:
        return nodes.Import(module=c[1].value, span=self.between(c[0], c[1]))

    def import_file(self, c: Children) -> nodes.Import:
        return nodes.Import(file=unescape(c[1].value), span=self.between(c[0], c[1]))

    def target(self, c: Children) -> nodes.Target:
        return nodes.Target(c[1].value[1:], c[3], span=self.between(c[0], c[4]), name_span=self.at(c[1]))

    def module(self, c: Children) -> nodes.Module:
        return nodes.Module(tuple(c), self.source.path)


def _conditions(body: Sequence[Any]) -> tuple[Expr, ...]:
    return tuple(e for s in body if isinstance(s, _Where) for e in s.conditions)


def _levels(expr: Expr) -> int:
    """How many nodes lie on the longest way down, found without recursion; beyond `MAX_LEVELS` it is not followed."""
    deepest, left = 0, [(expr, 1)]
    while left and deepest <= MAX_LEVELS:
        e, level = left.pop()
        deepest = max(deepest, level)
        left += [(child, level + 1) for child in _children(e)]
    return deepest


def _children(e: Expr) -> Sequence[Expr]:
    if isinstance(e, Apply):
        return e.args
    if isinstance(e, Read):
        return e.indices
    if isinstance(e, nodes.Cast):
        return (e.arg,)
    if isinstance(e, Range):
        return (e.hi,) if e.lo is None else (e.lo, e.hi)
    if isinstance(e, Reduce):
        return (*e.ranges, e.body, *(x for x in (e.where, e.rank) if x is not None))
    return ()


_SHARED = Builder()


def shared_builder() -> Builder:
    """The one builder of this process. lark keeps it by this function's name when its tables are stored."""
    return _SHARED
