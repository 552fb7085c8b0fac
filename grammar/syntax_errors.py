"""What is said about a token that cannot stand where it stands.

`explain` gets the tokens of one item, the place where parsing stopped and what the parser would have taken there. The general message lists that in
the words of users; slips that many make have their own, each a small function in `_SLIPS`.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pipelink_ir.grammar.tokens import Fault, Token
from pipelink_ir.ir.diagnostics import Diagnostic, Note
from pipelink_ir.ir.functions import RESERVED
from pipelink_ir.ir.source import Source, Span

_CLOSER = {"(": ")", "[": "]", "{": "}"}
_OPENER = {")": "(", "]": "[", "}": "{"}
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_INFIX = frozenset({"+", "-", "*", "/", "**", "floordiv", "ceildiv", "mod", "and", "or", *_COMPARISONS})
_STARTS = frozenset({"INT", "FLOAT", "NAME", "DTYPE", "VALUE", "select", "floordiv", "ceildiv", "mod", "(", "-", "not"})
_SECTIONS = ("where", "memory", "execution", "semantic", "compile", "downgrade", "schedule", "kernel", "compute", "graph", "gradient")
_CLAUSES = ("on", "as", "after", "plan", "reason", "loc")
_ITEMS = ("import", "target", "op", "pipeline")
_KINDS = {"NAME": "a name", "DTYPE": "a dtype", "VALUE": "'%name'", "SYMBOL": "'@name'", "INT": "an integer", "FLOAT": "a number",
          "STRING": "a string", "X": "'x' and a dimension or the dtype", "$END": "the end of the file"}


@dataclass(frozen=True, slots=True)
class Stop:
    """Where parsing stopped: at `tokens[index]`, or, where that is the end of the item, at `beyond`, the first token of the next (None: no more)."""

    source: Source
    tokens: Sequence[Token]
    index: int
    beyond: Token | None
    expected: frozenset[str]
    """What could have come: terminals by their text, `->`, or by their kind, `NAME`."""
    fault: Fault | None
    comments: Sequence[tuple[int, int]]

    @property
    def token(self) -> Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else self.beyond

    @property
    def text(self) -> str:
        return self.token.value if self.token else ""

    def back(self, n: int = 1) -> Token:
        """The token `n` before the one where parsing stopped; an empty one before the first."""
        at = self.index - n
        return self.tokens[at] if at >= 0 else Token("", "", 0, 0)

    def ahead(self, n: int = 1) -> Token:
        at = self.index + n
        return self.tokens[at] if at < len(self.tokens) else Token("", "", 0, 0)

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start_pos, token.end_pos)

    def place(self) -> Span:
        """Where the message points: the token, or right behind the last one."""
        if self.token is not None:
            return self.span(self.token)
        end = self.back().end_pos
        return Span(self.source, end, end)

    def open_bracket(self) -> Token | None:
        """The innermost bracket that is open here."""
        stack: list[Token] = []
        for token in self.tokens[:self.index]:
            if token.value in _CLOSER:
                stack.append(token)
            elif token.value in _OPENER and stack and stack[-1].value == _OPENER[token.value]:
                stack.pop()
        return stack[-1] if stack else None

    def new_line(self) -> bool:
        """Whether the token is the first on its line."""
        token = self.token
        return token is not None and "\n" in (self.source.text or "")[self.back().end_pos:token.start_pos]


@dataclass(frozen=True, slots=True)
class Said:
    """A message of its own for a slip; without `message` the general one stands and only the help is added."""

    message: str | None = None
    help: str | None = None
    at: Span | None = None


def explain(stop: Stop) -> Diagnostic:
    """The message for one stop."""
    if stop.fault is not None:
        place = Span(stop.source, stop.fault.start, stop.fault.end)
        return Diagnostic("PL1001", "error", stop.fault.message, place, help=stop.fault.help)
    said = next((s for slip in _SLIPS if (s := slip(stop)) is not None), Said())
    bracket = stop.open_bracket()
    if stop.token is None and bracket is not None:
        note = Note(f"the file ends here: {_sentence(stop)}", stop.place())
        return Diagnostic("PL1001", "error", f"'{bracket.value}' is never closed", stop.span(bracket), (note,), said.help)
    notes = (Note(f"'{bracket.value}' is opened here", stop.span(bracket)),) if bracket is not None and _unclosed(stop, bracket) else ()
    return Diagnostic("PL1001", "error", said.message or _sentence(stop), said.at or stop.place(), notes, said.help)


def _unclosed(stop: Stop, bracket: Token) -> bool:
    """Whether the bracket is likely the mistake: its closing could come here, and what came instead begins something new or closes another."""
    if stop.index >= len(stop.tokens):
        return True
    if stop.text in _OPENER:
        return bracket.value != _OPENER[stop.text]
    return bracket.value != "{" and stop.new_line() and _CLOSER[bracket.value] in stop.expected


# ------------------------------------------------------------------------------------------------------------ the general message


def _sentence(stop: Stop) -> str:
    return f"expected {_either(_wanted(stop.expected))}, found {_found(stop)}"


def _found(stop: Stop) -> str:
    token = stop.token
    if token is None:
        return "the end of the file"
    value = token.value if len(token.value) <= 40 else token.value[:37] + "…"
    if value in RESERVED:
        return f"the reserved word '{value}'"
    return f"the dtype '{value}'" if token.type == "DTYPE" else f"the string {value}" if token.type == "STRING" else f"'{value}'"


def _wanted(expected: frozenset[str]) -> list[str]:
    """What could have come, in groups that have a name."""
    left, out = set(expected), []

    def group(members: Collection[str], least: int, name: str) -> None:
        if len(left & set(members)) >= least:
            left.difference_update(members)
            out.append(name)

    group(_STARTS, 9, "an expression")
    group({*_INFIX, "(", "["}, 4, "an operator")
    group(_SECTIONS, 5, "a section ('where', 'memory', 'compute', …)")
    group(_ITEMS, 3, "'op', 'pipeline', 'target' or 'import'")
    group(_CLAUSES, 4, "a clause of the node ('on', 'as', 'after', …)")
    if "NAME" in left:
        left.discard("DTYPE")
    kinds = [_KINDS[k] for k in _KINDS if k in left and not (k == "$END" and len(expected) > 1)]
    marks = [f"'{t}'" for t in sorted(left - set(_KINDS), key=_by_kind)]
    return [*out, *kinds, *marks]


def _by_kind(text: str) -> tuple[int, str]:
    """Words, then marks, closing brackets last."""
    return (2 if text in _OPENER or text == ">" else 0 if text.isalpha() else 1, text)


def _either(words: Sequence[str]) -> str:
    if not words:
        return "nothing more"
    shown = list(words[:6]) + (["…"] if len(words) > 6 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


# -------------------------------------------------------------------------------------------------------------------- slips


def _comma(stop: Stop) -> Said | None:
    before = stop.back().value
    if stop.text == "," and (before == "," or before in _CLOSER):
        return Said("a comma too many", "remove it, or write what is missing before it")
    if (stop.text in _OPENER or stop.text == "where") and before == ",":
        return Said(f"a comma right before '{stop.text}'", "remove the comma, or write what is missing after it")
    if stop.text == "{" and before in _SECTIONS and stop.back(2).value == ",":
        return Said(f"a comma right before '{before}'", "remove the comma, or write what is missing after it", stop.span(stop.back()))
    return None


def _outside(stop: Stop) -> Said | None:
    if stop.text in _SECTIONS and "{" in stop.expected and stop.back().value == ")" and "(" not in stop.expected:
        return Said(f"'{stop.text}' stands inside the braces", f"write '{{' before it: '… ) {{ {stop.text} …'")
    return None


def _reserved(stop: Stop) -> Said | None:
    token = stop.token
    before = stop.back()
    if stop.expected == {"("} and before.value in RESERVED:
        return Said(f"'{before.value}' is a reserved word and cannot be a name", f"choose another name; as a function it is '{before.value}(a, b)'",
                    stop.span(before))
    if token is None or "NAME" not in stop.expected or ("INT" in stop.expected and stop.new_line()):
        return None
    if token.value == "param":
        return Said("'param' marks inputs of a pipeline; an operator has operands only", "remove 'param'")
    if token.value in RESERVED:
        return Said(f"'{token.value}' is a reserved word and cannot be a name", f"choose another name, '{token.value}_' for example")
    if token.type == "DTYPE":
        return Said(f"'{token.value}' is a dtype and cannot be a name", f"choose another name, '{token.value}_' for example")
    return None


def _equals(stop: Stop) -> Said | None:
    if stop.text == "=" and "==" in stop.expected:
        return Said("a comparison is written '=='", "write '==' instead of '='")
    if stop.text == "==" and "=" in stop.expected:
        return Said("a value is given with '='", "write '=' instead of '=='")
    if stop.text == ":" and "=" in stop.expected:
        return Said(None, "a value is given with '='")
    return None


def _arrow(stop: Stop) -> Said | None:
    if "->" in stop.expected:
        return Said("'->' is missing between the operands and the results", "write 'op @name(…) -> (…) { … }'")
    return None


def _chain(stop: Stop) -> Said | None:
    if stop.text in _COMPARISONS and stop.text not in stop.expected and "and" in stop.expected:
        return Said("comparisons do not chain", "write 'a < b and b < c'")
    return None


def _sigil(stop: Stop) -> Said | None:
    """A `%` or `@` that is missing."""
    token = stop.token
    if token is None:
        return None
    if token.value == "tensor" and stop.back().value == ":" and stop.back(2).type == "NAME":
        name = stop.back(2)
        return Said(f"a tensor's name begins with '%': '%{name.value}'", f"write '%{name.value}: tensor<…>'")
    if token.type != "NAME" or _misspelt(stop):
        return None
    if stop.expected == {"SYMBOL"} or ("SYMBOL" in stop.expected and stop.ahead().value == "("):
        return Said(f"the name of an operator, a pipeline or a target begins with '@': '@{token.value}'", f"write '@{token.value}'")
    # Where a statement may begin as well, the word is taken for a name only if it goes on like one.
    statement = "}" in stop.expected and stop.ahead().value not in ("=", "[", ",")
    if "VALUE" in stop.expected and "NAME" not in stop.expected and not statement:
        return Said(f"a tensor's name begins with '%': '%{token.value}'", f"write '%{token.value}'")
    return None


def _read(stop: Stop) -> Said | None:
    """`x[i, j]` without a percent sign, which begins like `sum[i < I](…)`."""
    inside = stop.expected == {"<", "in"} and stop.back(2).value == "[" and stop.back(3).type == "NAME"
    first = stop.expected == {"NAME", "..."} and stop.back().value == "[" and stop.back(2).type == "NAME"
    if not inside and not first:
        return None
    name = stop.back(3 if inside else 2).value
    return Said(None, f"an element of a tensor is written '%{name}[…]', a reduction '{name}[k < K](…)'")


def _shape(stop: Stop) -> Said | None:
    if "X" in stop.expected and stop.text in (",", ">"):
        return Said("a shape ends with the dtype", "write tensor<NxHxWx3xf32>")
    if "X" in stop.expected and stop.text in _INFIX:
        return Said("a dimension that is an expression stands in parentheses", "write '(H + 1)'")
    if stop.expected == {">"} and stop.text == ",":
        return Said("dimensions are separated by 'x'", "write tensor<NxHxWx3xf32, NHWC>: dimensions and dtype, then at most a layout")
    return None


def _misspelt(stop: Stop) -> str | None:
    """The keyword that is meant by a word at the beginning of something."""
    if stop.token is None or stop.token.type != "NAME":
        return None
    words = [w for w in (*_SECTIONS, *_ITEMS, *_CLAUSES, "unsupported", "along") if w in stop.expected]
    near = get_close_matches(stop.token.value, words, n=1, cutoff=0.7)
    return near[0] if near else None


def _keyword(stop: Stop) -> Said | None:
    near = _misspelt(stop)
    return Said(None, f"did you mean '{near}'?") if near else None


def _item_inside(stop: Stop) -> Said | None:
    bracket = stop.open_bracket()
    if stop.index >= len(stop.tokens) and stop.beyond is not None and bracket is not None:
        return Said(f"'{stop.beyond.value}' cannot begin here: '{bracket.value}' is not closed", f"a '{_CLOSER[bracket.value]}' is missing before it")
    return None


def _closing(stop: Stop) -> Said | None:
    bracket = stop.open_bracket()
    if stop.text in _OPENER and bracket is None:
        return Said(f"a '{stop.text}' too many", "remove it, or open the bracket that it closes")
    if stop.text in _OPENER and bracket is not None and bracket.value != _OPENER[stop.text] and _CLOSER[bracket.value] in stop.expected:
        return Said(f"'{stop.text}' cannot close '{bracket.value}'", f"a '{_CLOSER[bracket.value]}' is missing")
    return None


def _plus(stop: Stop) -> Said | None:
    if stop.text == "+" and {"INT", "-"} <= stop.expected:
        return Said("a number has no leading '+'", "remove the '+'")
    return None


def _comment(stop: Stop) -> Said | None:
    """A quotient written `//`, which begins a comment that swallows the rest of the line."""
    text, last, bracket = stop.source.text or "", stop.back(), stop.open_bracket()
    if bracket is None or (stop.token is not None and not stop.new_line()):
        return None
    line = text.rfind("\n", 0, last.end_pos)
    end = text.find("\n", last.end_pos)
    for start, _ in stop.comments:
        if last.end_pos <= start and (end < 0 or start < end) and bracket.start_pos > line:
            return Said(None, "'//' begins a comment; the integer quotient is written 'floordiv'")
    return None


def _missing_comma(stop: Stop) -> Said | None:
    token = stop.token
    if token is None or "," not in stop.expected or stop.open_bracket() is None :
        return None
    if stop.new_line() and stop.ahead().value != "=":
        return None
    if token.type in ("NAME", "VALUE", "INT", "FLOAT", "DTYPE", "STRING"):
        return Said(None, "is a ',' or an operator missing before it?")
    return None


def _colon(stop: Stop) -> Said | None:
    if stop.text == ":" and ".." in stop.expected:
        return Said(None, "a range is written 'a..b', without b itself")
    return None


def _conditional(stop: Stop) -> Said | None:
    if stop.text in ("if", "else") and "*" in stop.expected:
        return Said(None, "a choice is written 'select(condition, a, b)'")
    return None


_SLIPS: tuple[Callable[[Stop], Said | None], ...] = (
    _item_inside, _outside, _comma, _equals, _arrow, _chain, _shape, _conditional, _sigil, _read, _plus, _comment, _closing, _reserved, _keyword, _colon,
    _missing_comma)
"""The first that knows the slip speaks."""
