"""Text into tokens: what names, numbers, strings and comments look like.

Parser and formatter share this one table. A text is cut into tokens completely before it is parsed; what is no token (`2.2.1`, an open string, `ä` in a
name, the 257th open bracket) becomes a token of type `BAD` with a `Fault` that says why, and is an error if the parser gets that far.

Only the shapes of types are read in another way: in `tensor<NxHx(W + 1)xf32>` an `x` separates dimensions. They begin at a `tensor` after a colon,
since types stand nowhere else.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import RESERVED

MAX_DEPTH = 256
"""How deep brackets may nest."""
MAX_INT = (1 << 63) - 1
"""The largest integer; 2**63 is let through, because a minus may stand before it."""


class _TokenFields(NamedTuple):
    type: str
    value: str
    start_pos: int
    end_pos: int


class Token(_TokenFields):
    """One token: `type` is a terminal of the grammar, `value` its text, the rest its place. The names are those that lark asks for."""

    __slots__ = ()
    line: ClassVar[None] = None     # lines are counted only where a message is made
    column = end_line = end_column = line


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a piece of text is no token; `start` and `end` are the place to report."""

    message: str
    start: int
    end: int
    help: str | None = None


@dataclass(slots=True)
class Tokens:
    """A text cut into tokens. `docs` and `faults` go by the start of the token that they belong to."""

    text: str
    tokens: list[Token] = field(default_factory=list)
    comments: list[tuple[int, int]] = field(default_factory=list)
    docs: dict[int, str] = field(default_factory=dict)
    faults: dict[int, Fault] = field(default_factory=dict)


_NAME = r"[A-Za-z_]\w*(?:\.\w+)*"
_TOKEN = re.compile(rf"""[ \t\r\n\f\v]*(?:
    (?P<VALUE>%{_NAME}) | (?P<SYMBOL>@{_NAME}) | (?P<WORD>{_NAME})
  | (?P<NUMBER>\.?\d(?:(?<=[eE])[+-]|\w|\.(?!\.))*)
  | (?P<COMMENT>//[^\n]*)
  | (?P<BLOCK>/\*|\*/)
  | (?P<PUNCT>\.\.\.|\.\.|->|\*\*|==|!=|<=|>=|[-+*/<>=(){{}}\[\],:?])
  | (?P<STRING>"(?:[^"\\\n]|\\[^\n])*")
  | (?P<OPEN>"(?:[^"\\\n]|\\[^\n])*\\?)
  | (?P<END>\Z)
  | (?P<BAD>&&|\|\||[%@][^\s(){{}}\[\],]*|.)
)""", re.ASCII | re.VERBOSE | re.DOTALL)
_INT = re.compile(r"[0-9]+")
_FLOAT = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SKIP = re.compile(r"[ \t\r\n\f\v]*(?P<COMMENT>//[^\n]*)?")
_SHAPE_ITEM = re.compile(r"(?P<SYMBOL>[A-Z][A-Z0-9_]*(?:\.[0-9]+)*)|(?P<INT>[0-9]+)|(?P<PUNCT>\.\.\.|\?|\()|(?P<WORD>[a-z_]\w*)", re.ASCII)
_SHAPE_NEXT = re.compile(r"(?P<X>x)|(?P<WORD>\w+)", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_ITEM_WORDS = frozenset({"op", "pipeline", "target"})
_SYMBOL_AHEAD = re.compile(r"[ \t\r\n\f\v]*@")


def tokenize(text: str, types: Mapping[str, str]) -> Tokens:
    """Cut `text` into tokens. `types` gives the terminal of each punctuation mark and keyword by its text."""
    return _Scanner(text, types).run()


def unescape(raw: str) -> str:
    """The value of a string as written, quotes and escapes included."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES[m[2]], raw[1:-1])


class _Scanner:
    """One pass over a text. Brackets are counted here, so that nothing behind this file meets a nesting that it cannot take."""

    def __init__(self, text: str, types: Mapping[str, str]) -> None:
        self.text, self.out = text, Tokens(text)
        self.types = types
        self.words = {word: types.get(word, word.upper()) for word in RESERVED} | dict.fromkeys(DTYPES, "DTYPE")
        self.brackets: list[bool] = []
        """Of each open bracket, whether it holds a dimension of a shape."""
        self.doc: list[str] = []

    def run(self) -> Tokens:
        text, tokens, match, words, types = self.text, self.out.tokens, _TOKEN.match, self.words, self.types
        append, at, previous = tokens.append, 0, ""
        while True:
            mo = match(text, at)
            assert mo is not None
            kind = mo.lastgroup or ""
            start, at = mo.span(kind)
            if kind == "COMMENT":
                self.comment(start, at)
                continue
            if kind == "END":
                return self.out
            if self.doc:
                self.out.docs[start] = "\n".join(self.doc)
                self.doc = []
            value = text[start:at]
            if kind == "PUNCT":
                append(Token(types.get(value, kind), value, start, at))
                if value in "([{":
                    self.open(start, at, dimension=False)
                elif value in ")]}" and self.brackets and self.brackets.pop():
                    at = self.shape(at, inside=False)
            elif kind == "WORD":
                append(Token(words.get(value, "NAME"), value, start, at))
                if value == "tensor" and previous == ":":
                    at = self.type(start, at)
                elif value in _ITEM_WORDS:
                    self.item(start, at)
            elif kind == "VALUE" or kind == "SYMBOL":
                append(Token(kind, value, start, at))
            elif kind == "NUMBER":
                self.number(value, start, at)
            elif kind == "STRING":
                self.string(value, start, at)
            else:
                self.bad(kind, value, start, at)
            previous = value

    def comment(self, start: int, end: int) -> None:
        self.out.comments.append((start, end))
        if self.text.startswith("///", start) and not self.text.startswith("////", start):
            line = self.text[start + 3:end].rstrip()
            self.doc.append(line[1:] if line.startswith(" ") else line)

    def open(self, start: int, end: int, dimension: bool) -> None:
        self.brackets.append(dimension)
        if len(self.brackets) > MAX_DEPTH:
            self.out.tokens.pop()
            self.fault(start, end, f"brackets nest more than {MAX_DEPTH} deep", "split the expression with local definitions")

    def item(self, start: int, end: int) -> None:
        """A new item at the beginning of a line: what is still open belongs to the one before."""
        if self.brackets and (start == 0 or self.text[start - 1] == "\n") and _SYMBOL_AHEAD.match(self.text, end):
            self.brackets.clear()

    def fault(self, start: int, end: int, message: str, help: str | None = None, first: int | None = None) -> None:
        """A BAD token, reported from `first` on where that is not its own start."""
        self.out.tokens.append(Token("BAD", self.text[start:end], start, end))
        self.out.faults[start] = Fault(message, start if first is None else first, end, help)

    # ---------------------------------------------------------------------------------------------------------------- shapes

    def type(self, start: int, at: int) -> int:
        """`tensor` and the shape after it; where the ordinary tokens go on."""
        tokens = self.out.tokens
        tokens[-1] = Token(self.types.get("tensor", "NAME"), "tensor", start, at)
        begin = self.skip(at)
        if not self.text.startswith("<", begin):
            return at
        tokens.append(Token(self.types.get("<", "PUNCT"), "<", begin, begin + 1))
        return self.shape(begin + 1, inside=True)

    def shape(self, at: int, inside: bool) -> int:
        """Dimensions and the dtype, up to a parenthesis, or to what is no part of a shape. `inside` is whether a dimension comes next, or an `x`."""
        append = self.out.tokens.append
        while True:
            at = self.skip(at)
            mo = (_SHAPE_ITEM if inside else _SHAPE_NEXT).match(self.text, at)
            if mo is None:
                return at
            kind, value, start, at = mo.lastgroup, mo[0], mo.start(), mo.end()
            if not inside and kind == "X":
                append(Token("X", value, start, at))
            elif not inside:
                self.no_x(value, start, at)
                return at
            elif kind == "WORD":
                append(Token(self.words.get(value, "NAME"), value, start, at))
                return at
            else:
                append(Token({"SYMBOL": "NAME", "INT": "INT"}.get(kind or "", self.types.get(value, "PUNCT")), value, start, at))
                if value == "(":
                    self.open(start, at, dimension=True)
                    return at
            inside = not inside

    def no_x(self, value: str, start: int, end: int) -> None:
        """A word right after a dimension, where an `x` is due: `Nhx3xf32`."""
        last = self.out.tokens[-1]
        first = last.start_pos if last.end_pos == start else start
        word = self.text[first:end]
        if last.type == "NAME" and last.end_pos == start:
            self.fault(start, end, f"'{word}' is no shape: symbolic dimensions are upper case", "write a shape as tensor<NxHxWx3xf32>", first)
        else:
            self.fault(start, end, "an 'x' is missing between two dimensions", "write a shape as tensor<NxHxWx3xf32>", first)

    def skip(self, at: int) -> int:
        """Past white space and comments."""
        while True:
            mo = _SKIP.match(self.text, at)
            assert mo is not None
            at = mo.end()
            if mo["COMMENT"] is None:
                return at
            self.comment(*mo.span("COMMENT"))

    # -------------------------------------------------------------------------------------------------------- numbers, strings

    def number(self, value: str, start: int, end: int) -> None:
        if _INT.fullmatch(value):
            if (len(value) > 19 and len(value.lstrip("0")) > 19) or int(value) > MAX_INT + 1:
                self.fault(start, end, "an integer beyond 64 bits", "write a float, 1e20, or a smaller integer")
            else:
                self.out.tokens.append(Token("INT", value, start, end))
        elif not _FLOAT.fullmatch(value):
            self.fault(start, end, *_no_number(value))
        elif _beyond_f64(value):
            self.fault(start, end, f"{value} is beyond the range of f64", "write inf, or a number between 5e-324 and 1.797e308")
        else:
            self.out.tokens.append(Token("FLOAT", value, start, end))

    def string(self, value: str, start: int, end: int) -> None:
        for mo in _ESCAPE.finditer(value) if "\\" in value else ():
            code = int(mo[1], 16) if mo[1] else 0
            if (mo[2] is not None and mo[2] not in _ESCAPES) or code > 0x10FFFF or 0xD800 <= code < 0xE000:
                self.fault(start, end, f"'{mo[0]}' is no escape in a string", r'write \", \\, \n, \t or \u{1F600}', start + mo.start())
                return
        self.out.tokens.append(Token("STRING", value, start, end))

    def bad(self, kind: str, value: str, start: int, end: int) -> None:
        if kind == "OPEN":
            end = start + len(value.rstrip())
            self.fault(start, end, "the string is not closed on its line", 'add the closing \'"\'; a line break within a string is written \\n')
        elif kind == "BLOCK":
            self.fault(start, end, "there are no block comments", "begin each line of the comment with //")
        elif len(value) > 1 and value[0] in "%@":
            self.fault(start, end, f"'{value}' is no name", f"after '{value[0]}' comes a letter or '_', then letters, digits, '_' and '.', all ASCII")
        elif value in _SLIPS:
            self.fault(start, end, *_SLIPS[value])
        elif value.isascii():
            self.fault(start, end, f"'{value}' has no meaning here" if value.isprintable() else f"a control character (U+{ord(value):04X})")
        elif value.isspace() or not value.isprintable():
            self.fault(start, end, f"U+{ord(value):04X} is not white space in PLIR", "replace it by an ordinary space")
        else:
            self.fault(start, end, f"'{value}' cannot stand here: names are ASCII", "other characters may stand in strings and comments")


_SLIPS: dict[str, tuple[str, str]] = {
    "!": ("'!' is no operator", "write 'not', or '!=' for a comparison"),
    "&&": ("'&&' is no operator", "write 'and'"),
    "&": ("'&' is no operator", "write 'and'"),
    "||": ("'||' is no operator", "write 'or'"),
    "|": ("'|' is no operator", "write 'or'"),
    "^": ("'^' is no operator", "write '**' for a power, '!=' for an exclusive or"),
    "%": ("'%' begins the name of a tensor", "write 'mod' for the remainder"),
    "@": ("'@' begins the name of an operator", "write the name right after it, '@relu'"),
    ";": ("';' is not needed: statements end by themselves", "remove it"),
    "'": ("strings stand in double quotes", "write \"…\""),
    "`": ("strings stand in double quotes", "write \"…\""),
    "#": ("'#' begins no comment", "write '//'"),
    "~": ("'~' is no operator", "write 'not'"),
    ".": ("a '.' cannot stand alone", "a range is written a..b, the rest of the dimensions ..."),
}


def _no_number(value: str) -> tuple[str, str]:
    """Why `value` is no number, and what to write."""
    if value[:2].lower() in ("0x", "0b", "0o"):
        return f"'{value}' is no number: only decimal numbers are known", "write it in decimal"
    if "_" in value and re.fullmatch(r"[\d_.eE+-]+", value, re.ASCII):
        return f"'{value}' is no number: digits are not grouped", f"write {value.replace('_', '')}"
    if value.count(".") > 1:
        return f"'{value}' is no number: it has two points", "write one decimal point; a range is written a..b"
    if re.fullmatch(r"\d*\.\d*(?:[eE][+-]?\d*)?", value, re.ASCII) and not re.match(r"\d+\.\d", value, re.ASCII):
        return f"'{value}' is no number: the point needs digits on both sides", "write 0.5, 5.0"
    if re.fullmatch(r"[\d.]+[eE][+-]?", value, re.ASCII):
        return f"'{value}' is no number: the exponent has no digits", "write 1e-5"
    mo = re.match(r"(\d+)([A-Za-z]\w*)$", value, re.ASCII)
    return f"'{value}' is no number", f"write {mo[1]} * {mo[2]} for a product; a name begins with a letter" if mo else "write 12, 0.5 or 1e-5"


def _beyond_f64(value: str) -> bool:
    number = float(value)
    return number == float("inf") or (number == 0 and re.match(r"[0.]*[1-9]", value) is not None)
