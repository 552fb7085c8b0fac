"""Tidy text for `pipelinkc fmt`: spaces and indentation are set, words and line breaks are the user's.

It works on tokens and comments, none of which is ever lost, changed or moved to another line. What it decides:

- *Blank lines*: at most one in a row, none at the ends of the file.
- *Indentation*: two spaces for each open brace. A line that continues a statement keeps its place under a token of the lines above if it has one;
  otherwise it goes behind the bracket that it is in, or four spaces further in than its statement.
- *Spaces*: one around operators, inside the braces of sections and after commas; `+ - * / **` may be written tight, and a comma may be followed by more
  spaces where that puts a token under another.
- *Columns*: the `=` of neighbouring definitions, the `{` of neighbouring sections, and neighbouring comments are aligned; a line that juts out beyond others
  that are aligned stays so.
"""
from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pipelink_ir.grammar.parser import parse
from pipelink_ir.grammar.tokens import Token, Tokens, tokenize
from pipelink_ir.ir import nodes
from pipelink_ir.ir.diagnostics import internal_error
from pipelink_ir.ir.functions import RESERVED
from pipelink_ir.ir.source import Span

_TAB = 8
_CONTINUED = 4
_WIDEST = 12
"""Left sides that differ by more than this are not aligned, unless the user did."""
_SPARE = 8
"""How much further to the right than needed an aligned column may be."""
_TIGHT = frozenset({"+", "-", "*", "/", "**"})
_INFIX = frozenset({"=", "==", "!=", "<", "<=", ">", ">=", "->", *_TIGHT, "floordiv", "ceildiv", "mod", "and", "or", "not", "in", "where", "let", "..", ",",
                    "(", "[", "{", ":"})
"""After one of these a minus has no left side."""
_CALLS = frozenset({"select", "floordiv", "ceildiv", "mod"})


def format_text(text: str | bytes, path: str) -> str:
    """`text` with tidy spaces; the same module, the same comments. Formatting the result changes nothing. Raises `ProgramError` if it does not parse."""
    module = parse(text, path)
    source = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    cut = tokenize(source, {})
    marks = _marks(module, cut)
    for _ in range(8):
        tidy = _Formatter(cut, marks).run()
        if tidy == cut.text:
            break
        again = tokenize(tidy, {})
        _compare(cut, again)
        cut = again
    return cut.text


def _compare(before: Tokens, after: Tokens) -> None:
    """Whether every token and comment is still there."""
    if [t.value for t in before.tokens] != [t.value for t in after.tokens]:
        internal_error("formatting has changed a token")
    if [before.text[s:e].rstrip() for s, e in before.comments] != [after.text[s:e] for s, e in after.comments]:
        internal_error("formatting has changed a comment")


_Marks = dict[int, tuple[str, int]]
"""Where statements begin: of a token's index the kind of statement and the index behind its last token."""


def _marks(module: nodes.Module, cut: Tokens) -> _Marks:
    index = {t.start_pos: i for i, t in enumerate(cut.tokens)}
    ends = {t.end_pos: i + 1 for i, t in enumerate(cut.tokens)}
    return {index[span.start]: (kind, ends[span.end]) for kind, span in _statements(module)}


@dataclass(slots=True)
class _Line:
    """One line of the text. `old` and `new` are the columns of its tokens, `new` counted from the first token until the line is indented."""

    first: int = 0
    """The index of its first token among all."""
    tokens: list[Token] = field(default_factory=list)
    comment: str = ""
    blank: bool = False
    """Whether a blank line stands before it."""
    old: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    old_comment: int = 0
    comment_at: int = 0
    indent: int = 0

    def end(self) -> int:
        return self.new[-1] + len(self.tokens[-1].value) if self.tokens else 0

    def shift(self, index: int, by: int) -> None:
        """Move the tokens from `index` on."""
        self.new[index:] = [c + by for c in self.new[index:]]

    def text(self) -> str:
        out, at = [], 0
        for token, column in zip(self.tokens, self.new, strict=True):
            out.append(" " * (column - at) + token.value)
            at = column + len(token.value)
        if self.comment:
            out.append(" " * (self.comment_at - at) + self.comment)
        return "".join(out)


@dataclass(slots=True)
class _Column:
    """A place that may be aligned with those of the statements around it: the token `index` of `line`."""

    line: int
    index: int
    kind: str

    def place(self, line: _Line) -> tuple[int, int]:
        """Its old column, and the least that it can have now, both from the beginning of the line."""
        before = line.new[self.index - 1] + len(line.tokens[self.index - 1].value)
        return line.old[self.index] - line.old[0], before + 1


class _Formatter:
    """Formats one text once."""

    def __init__(self, cut: Tokens, marks: _Marks) -> None:
        self.tokens, self.marks = cut.tokens, marks
        self.lines = _lines(cut)

    def run(self) -> str:
        if not self.lines:
            return ""
        self.space()
        self.align()
        self.indent()
        self.align_comments()
        return "".join(("\n" if line.blank else "") + line.text() + "\n" for line in self.lines)

    # ---------------------------------------------------------------------------------------------------------------- spaces

    def space(self) -> None:
        """Columns within each line, from the tokens alone."""
        braces: list[bool] = []        # of each open brace: whether it holds the attributes of a node
        shapes = 0                     # 1 within the angle brackets of a type, counting parentheses inside
        previous: tuple[Token, Token] = (Token("", "", 0, 0), Token("", "", 0, 0))
        for number, line in enumerate(self.lines):
            at = 0
            for i, token in enumerate(line.tokens):
                value, before = token.value, previous[1]
                if value == "{":
                    braces.append(before.value == ")" and bool(braces))
                gap = self.gap(previous, token, shapes, bool(braces) and braces[-1]) if i else 0
                if i and before.value == "," and self.kept(number, i):
                    gap = line.old[i] - line.old[i - 1] - 1
                line.new.append(at + gap)
                at += gap + len(value)
                if value == "}":
                    braces.pop()
                if value == "<" and before.value == "tensor" and previous[0].value == ":":
                    shapes = 1
                elif shapes == 1 and value == ">":
                    shapes = 0
                elif shapes:
                    shapes += 1 if value == "(" else -1 if value == ")" else 0
                previous = (before, token)

    def gap(self, previous: tuple[Token, Token], token: Token, shapes: int, attributes: bool) -> int:
        """How many spaces stand between two tokens of one line."""
        left, right = previous[1].value, token.value
        if right in (",", ")", "]") or left in ("(", "[") or ".." in (left, right):
            return 0
        if left == "{" or right == "}":
            return 0 if attributes else 1
        if shapes == 1 or (left == "tensor" and right == "<" and previous[0].value == ":"):
            return 1 if left == "," else 0
        if right == "<" or left == ",":
            return 1
        if ":" in (left, right):
            return 0 if right == ":" or token.value.isdigit() else 1
        if right in ("(", "["):
            return 0 if self.applies(previous, right) else 1
        if left == "-" and self.prefix(previous[0]):
            return 0
        if left in _TIGHT or right in _TIGHT:
            return self.operator_gap(previous, token)
        return 1

    def applies(self, previous: tuple[Token, Token], bracket: str) -> bool:
        """Whether a bracket belongs to the name before it, as in a call or a read, and is not an operand of its own."""
        last = previous[1]
        if last.value in _CALLS:
            return bracket == "(" and _infix_after(previous[0])
        if last.value == "-" and self.prefix(previous[0]):
            return True
        return last.type in ("NAME", "DTYPE", "VALUE", "SYMBOL") or (last.value == "]" and bracket == "(")

    def prefix(self, before: Token) -> bool:
        """Whether a minus after this token has no left side."""
        return _infix_after(before)

    def operator_gap(self, previous: tuple[Token, Token], token: Token) -> int:
        """The space on one side of an operator: none if the user wrote none on both of its sides."""
        operator = token if token.value in _TIGHT and not (token.value == "-" and self.prefix(previous[1])) else previous[1]
        if operator.value not in _TIGHT:
            return 1
        at = bisect_right(self.tokens, operator.start_pos, key=lambda t: t.start_pos) - 1
        tight = self.tokens[at - 1].end_pos == operator.start_pos and operator.end_pos == self.tokens[at + 1].start_pos
        return 0 if tight else 1

    def kept(self, number: int, index: int) -> bool:
        """Whether the spaces before a token put it under, or over, a token of the line next to it."""
        line = self.lines[number]
        if line.old[index] - line.old[index - 1] < 3:
            return False
        around = self.lines[max(0, number - 1):number] + self.lines[number + 1:number + 2]
        return any(line.old[index] in other.old for other in around)

    # ------------------------------------------------------------------------------------------------------------- alignment

    def align(self) -> None:
        """The `=` of neighbouring definitions and the `{` of neighbouring sections."""
        run: list[_Column] = []
        last = -1
        for column, ends in [*self.columns(), (None, 0)]:
            line = self.lines[column.line] if column else None
            if run and (column is None or line is None or line.blank or column.kind != run[-1].kind or column.line != last + 1):
                self.align_run(run)
                run = []
            if column is not None:
                run.append(column)
            last = ends

    def columns(self) -> Iterator[tuple[_Column, int]]:
        """What may be aligned, in order, each with the last line of its statement."""
        for number, line in enumerate(self.lines):
            mark = self.marks.get(line.first) if line.tokens else None
            if mark is None:
                continue
            kind, end = mark
            ends = number
            while ends + 1 < len(self.lines) and self.lines[ends + 1].tokens and self.lines[ends + 1].first < end:
                ends += 1
            index = _aligned_token(line, kind, ends == number)
            if index:
                yield _Column(number, index, kind), ends

    def align_run(self, run: Sequence[_Column]) -> None:
        """Those that were in one column stay so; one beside them that is shorter joins; if none were, all are aligned."""
        places = [c.place(self.lines[c.line]) for c in run]
        groups: list[list[int]] = []
        for i, (old, _) in enumerate(places):
            if groups and places[groups[-1][-1]][0] == old:
                groups[-1].append(i)
            else:
                groups.append([i])
        groups_kept = any(len(g) > 1 for g in groups)
        if not groups_kept:
            least = [p for _, p in places]
            groups = [list(range(len(run)))] if max(least) - min(least) <= _WIDEST else groups
        columns = [max(places[i][1] for i in g) for g in groups]
        for at, group in enumerate(groups):
            around = [columns[k] for k in (at - 1, at + 1) if 0 <= k < len(groups) and len(groups[k]) > 1]
            old = places[group[0]][0]
            if len(group) > 1:
                wanted = old if groups_kept and 0 <= old - columns[at] <= _SPARE else columns[at]
            else:
                wanted = next((c for c in around if 0 <= c - columns[at] <= _WIDEST), columns[at])
            for i in group:
                column, line = run[i], self.lines[run[i].line]
                line.shift(column.index, wanted - line.new[column.index])

    def align_comments(self) -> None:
        """Comments behind code: those on neighbouring lines of one indentation in one column, where they were if there is room."""
        run: list[_Line] = []
        for line in [*self.lines, _Line(blank=True)]:
            if run and (line.blank or not line.comment or not line.tokens or line.indent != run[-1].indent):
                ends = [r.end() for r in run]
                old = {r.old_comment for r in run}
                wanted = old.pop() if len(old) == 1 else 0
                if wanted < max(ends) + 2:
                    wanted = max(ends) + 2
                for r in run:
                    r.comment_at = wanted
                run = []
            if line.comment and line.tokens:
                run.append(line)
        for above, line in pairwise(self.lines):
            if line.comment and not line.tokens and above.comment and line.old_comment == above.old_comment and above.comment_at > line.comment_at:
                line.comment_at = above.comment_at

    # ----------------------------------------------------------------------------------------------------------- indentation

    def indent(self) -> None:
        """Where each line begins."""
        brackets: list[tuple[str, int, int]] = []      # the open brackets: text, line, index
        first = 0                                      # the line on which the statement began
        for number, line in enumerate(self.lines):
            braces = sum(b == "{" for b, _, _ in brackets)
            lead = line.tokens[0] if line.tokens else None
            if lead is None:
                line.indent = line.comment_at = self.continued(number, first, brackets) if brackets and brackets[-1][0] != "{" else 2 * braces
                continue
            if lead.value == "}":
                line.indent = 2 * (braces - 1)
            elif line.first in self.marks or (lead.value == "where" and (not brackets or brackets[-1][0] == "{")):
                first, line.indent = number, 2 * braces
            else:
                line.indent = self.continued(number, first, brackets)
            line.shift(0, line.indent)
            for i, token in enumerate(line.tokens):
                if token.value in ("(", "[", "{"):
                    brackets.append((token.value, number, i))
                elif token.value in (")", "]", "}") and brackets:
                    brackets.pop()

    def continued(self, number: int, first: int, brackets: Sequence[tuple[str, int, int]]) -> int:
        """The indentation of a line in the middle of a statement."""
        line = self.lines[number]
        column = line.old[0] if line.tokens else line.old_comment
        base = self.lines[first].indent
        for above in reversed(self.lines[first:number]) if column > self.lines[first].old[0] else ():
            index = above.old.index(column) if column in above.old else -1
            if index > 0 and (_infix_after(above.tokens[index - 1]) or _operator(above.tokens[index])):
                return above.new[index]
            if index == 0 and above is not self.lines[first]:
                return above.new[0]
        if not brackets or brackets[-1][0] == "{":
            return base + _CONTINUED
        _, at, index = brackets[-1]
        if line.tokens and line.tokens[0].value in (")", "]"):
            return self.lines[at].indent
        if index + 1 < len(self.lines[at].tokens):
            return self.lines[at].new[index + 1]
        return self.lines[at].indent + _CONTINUED


def _infix_after(before: Token) -> bool:
    """Whether what follows this token is an operand, and no operator."""
    return not before.value or before.value in _INFIX or (before.value in RESERVED and before.type != "NAME")


def _operator(token: Token) -> bool:
    """Whether it stands between two operands, or two sides: what a line may be aligned with."""
    return token.value in _INFIX and token.value not in (",", "(", "[", "{", ":", "..")


def _aligned_token(line: _Line, kind: str, whole: bool) -> int:
    """The token of a statement's first line that is aligned with its neighbours', 0 if none is."""
    if kind in ("define", "let", "node"):
        depth = 0
        for i, token in enumerate(line.tokens):
            depth += (token.value in ("(", "[")) - (token.value in (")", "]"))
            if token.value == "=" and depth == 0:
                return i
        return 0
    if not whole or kind not in ("section", "target"):
        return 0
    return 1 if kind == "section" else next((i for i, t in enumerate(line.tokens) if t.value == "{"), 0)


def _lines(cut: Tokens) -> list[_Line]:
    """Tokens and comments by line."""
    text, count = cut.text, 0
    breaks = [mo.start() for mo in re.finditer("\n", text)]
    parts: list[tuple[int, Token | str]] = [(t.start_pos, t) for t in cut.tokens]
    parts += [(start, text[start:end].rstrip()) for start, end in cut.comments]
    parts.sort(key=lambda p: p[0])
    out: list[_Line] = []
    last = -1
    for start, part in parts:
        number = bisect_right(breaks, start - 1)
        if number != last:
            out.append(_Line(count, blank=bool(out) and number > last + 1))
            last = number
        begin = breaks[number - 1] + 1 if number else 0
        column = len(text[begin:start].expandtabs(_TAB)) if "\t" in text[begin:start] else start - begin
        if isinstance(part, Token):
            out[-1].tokens.append(part)
            out[-1].old.append(column)
            count += 1
        else:
            out[-1].comment, out[-1].old_comment = part, column
    return out


def _statements(module: nodes.Module) -> Iterator[tuple[str, Span]]:
    """Every statement: its kind and where it is."""
    for item in module.items:
        yield "target" if isinstance(item, nodes.Target) else "item", item.span
        if isinstance(item, nodes.Target):
            yield from _settings(item.settings)
        elif isinstance(item, nodes.Pipeline):
            yield from _nodes(item.nodes)
        elif isinstance(item, nodes.Operator):
            yield from _sections(item)


def _sections(op: nodes.Operator) -> Iterator[tuple[str, Span]]:
    for section in op.sections:
        yield "section", section.span
        yield from _settings(section.entries)
    for downgrade in op.downgrades:
        yield "section", downgrade.span
        yield from _settings(downgrade.settings or ())
    if op.kernel is not None:
        yield "kernel", op.kernel.span
        yield from _settings(op.kernel.settings)
    if op.graph is not None:
        yield "section", op.graph.span
        yield from _nodes(op.graph.nodes)
    for compute in (op.compute, op.gradient):
        if compute is not None:
            yield "section", compute.span
            for definition in compute.body:
                yield "let" if isinstance(definition, nodes.Let) else "define", definition.span


def _settings(entries: Sequence[nodes.Setting | nodes.Scoped]) -> Iterator[tuple[str, Span]]:
    for entry in entries:
        yield "setting", entry.span
        if isinstance(entry, nodes.Scoped):
            yield from _settings(entry.settings)


def _nodes(body: Sequence[nodes.Node | nodes.Alias]) -> Iterator[tuple[str, Span]]:
    for node in body:
        yield "node", node.span
        if isinstance(node, nodes.Node):
            yield from _settings(node.attrs)
            yield from _settings(node.plan.entries if node.plan else ())
