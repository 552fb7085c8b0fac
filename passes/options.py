"""The text of pipelines: `a,b{key=value,list=[1,2],path="a,b"}`, and values from text by the type of the field they are for."""
from __future__ import annotations

import dataclasses
import re
import types
import typing
from dataclasses import dataclass
from typing import Any

from pipelink_ir.ir.diagnostics import UsageError

_WORD = re.compile(r"[^\s,{}=\[\]\"]+")


@dataclass(frozen=True, slots=True)
class OptionText:
    """`key=value` as written: one text, or several in brackets. `place` is the beginning of a message about it."""

    key: str
    value: str | tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class EntryText:
    """A pass as written."""

    name: str
    options: tuple[OptionText, ...]
    place: str


class Scanner:
    """Reads one pipeline text from left to right."""

    def __init__(self, text: str, flag: str = "--passes") -> None:
        self.text, self.at, self.flag = text, 0, flag

    def pipeline(self) -> list[EntryText]:
        """All entries; an empty text has none."""
        out: list[EntryText] = []
        if not self._peek():
            return out
        while True:
            place = self._place()
            out.append(EntryText(self._word("the name of a pass"), tuple(self._options()), place))
            if not self._take(","):
                break
        if self._peek():
            raise UsageError(f"{self._place()}expected ',' or the end, found '{self._peek()}'")
        return out

    def _options(self) -> list[OptionText]:
        out: list[OptionText] = []
        if not self._take("{") or self._take("}"):
            return out
        while True:
            place = self._place()
            key = self._word("the name of an option")
            self._expect("=")
            out.append(OptionText(key, self._list() if self._take("[") else self._value(), place))
            if self._take("}"):
                return out
            self._expect(",", " or '}'")

    def _list(self) -> tuple[str, ...]:
        out: list[str] = []
        while not self._take("]"):
            if out:
                self._expect(",", " or ']'")
            out.append(self._value())
        return tuple(out)

    def _value(self) -> str:
        if self._take('"'):
            end = self.text.find('"', self.at)
            if end < 0:
                raise UsageError(f"{self._place()}the string is not closed")
            value, self.at = self.text[self.at:end], end + 1
            return value
        return self._word("a value")

    def _word(self, what: str) -> str:
        self._peek()
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise UsageError(f"{self._place()}expected {what}, found {self._found()}")
        self.at = found.end()
        return found[0]

    def _peek(self) -> str:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at:self.at + 1]

    def _take(self, char: str) -> bool:
        if self._peek() != char:
            return False
        self.at += 1
        return True

    def _expect(self, char: str, more: str = "") -> None:
        if not self._take(char):
            raise UsageError(f"{self._place()}expected '{char}'{more}, found {self._found()}")

    def _found(self) -> str:
        return f"'{self._peek()}'" if self._peek() else "the end"

    def _place(self) -> str:
        self._peek()
        return f"{self.flag}: '{self.text}', column {self.at + 1}: "


def convert(option: OptionText, wanted: Any) -> Any:
    """The value of an option as the type of its field says: bool, int, float, str, a choice (`Literal`), a tuple of one of these, or None beside it."""
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        inner = [t for t in typing.get_args(wanted) if t is not type(None)]
        return None if option.value == "none" else convert(option, inner[0])
    if typing.get_origin(wanted) is tuple:
        items = (option.value,) if isinstance(option.value, str) else option.value
        return tuple(_scalar(option, item, typing.get_args(wanted)[0]) for item in items)
    if not isinstance(option.value, str):
        raise UsageError(f"{option.place}the option '{option.key}' takes one value, not a list")
    return _scalar(option, option.value, wanted)


def _scalar(option: OptionText, text: str, wanted: Any) -> Any:
    if typing.get_origin(wanted) is typing.Literal:
        choices = typing.get_args(wanted)
        if text not in choices:
            raise UsageError(f"{option.place}the option '{option.key}' is one of {', '.join(choices)}, not '{text}'")
        return text
    if wanted is bool:
        if text not in ("true", "false"):
            raise UsageError(f"{option.place}the option '{option.key}' is true or false, not '{text}'")
        return text == "true"
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            kind = "an integer" if wanted is int else "a number"
            raise UsageError(f"{option.place}the option '{option.key}' is {kind}, not '{text}'") from None
    return text


def write_option(value: Any) -> str:
    """Text that `convert` reads back."""
    if isinstance(value, tuple):
        return "[" + ",".join(map(write_option, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    text = str(value)
    return text if _WORD.fullmatch(text) else f'"{text}"'


def explain_options(options: type[Any]) -> list[tuple[str, str, str]]:
    """Of every option: its name, its default as text, and the docstring below its field."""
    import ast
    import inspect
    tree = ast.parse(inspect.getsource(options)).body[0]
    assert isinstance(tree, ast.ClassDef)
    said: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            said[field.target.id] = inspect.cleandoc(str(below.value.value))
    default = options()
    return [(f.name, write_option(getattr(default, f.name)), said.get(f.name, "")) for f in dataclasses.fields(options)]
