"""YAML files as trees whose nodes know where they stand, so that what is wrong with one can be shown at its line."""
from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pipelink_ir.ir.diagnostics import Diagnostic, Note, ProgramError, Report, UsageError, did_you_mean
from pipelink_ir.ir.source import Source, Span, elsewhere

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")

NESTED = 500
"""So many brackets may be open at once."""


def read_file(path: str, parse: Callable[[bytes, str], T], kept: dict[str, tuple[tuple[int, int], T]]) -> T:
    """What a file says. `kept` has what was read before, with the time and the size of the file then. `ProgramError` PL9101 where it cannot be read."""
    try:
        state = os.stat(path)
        key = (state.st_mtime_ns, state.st_size)
        if path not in kept or kept[path][0] != key:
            with open(path, "rb") as file:
                data = file.read()
            kept[path] = key, parse(data, path)
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise ProgramError([Diagnostic("PL9101", "error", f"cannot be read: {why}", elsewhere(path, 1, 1), (), None)]) from None
    return kept[path][1]


def source_of(data: bytes, path: str, field: str, report: Report, help: str) -> Source:
    """The text of a file. `ProgramError` with a fault of this field, where the text ends to be UTF-8."""
    try:
        return Source(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        source = Source(path, data[:error.start].decode("utf-8", "replace"))
        report.error(field, Span(source, len(source.text or ""), len(source.text or "")), "this is not UTF-8", (), help)
        raise ProgramError(report.diagnostics) from None


def compose(source: Source, fault: Callable[[Span, str], None]) -> yaml.Node | None:
    """The tree of a text; None where it is empty, or where it is none: `fault` is told then. UsageError without PyYAML."""
    try:
        import yaml
    except ImportError:
        raise UsageError(f"'{source.path}' cannot be read: the package PyYAML is not installed") from None
    if (deep := _too_deep(source.text or "")) is not None:
        fault(Span(source, deep, deep + 1), "this is nested too deeply")
        return None
    try:
        node: yaml.Node | None = yaml.compose(source.text or "", Loader=yaml.SafeLoader)
        return node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        fault(stretch(source, mark, mark), f"this is not YAML: {error.problem or error}")
    except yaml.YAMLError as error:
        fault(Span(source, 0, 0), f"this is not YAML: {' '.join(str(error).split())}")
    except RecursionError:
        fault(Span(source, 0, 0), "this is nested too deeply")
    return None


def _too_deep(text: str) -> int | None:
    """Where more brackets are open than anybody writes: PyYAML's time grows with the square of their number, and more than that where recursion may go deep."""
    level = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        level = level + 1 if bracket[0] in "[{" else max(level - 1, 0)
        if level > NESTED:
            return bracket.start()
    return None


def stretch(source: Source, start: Any, end: Any) -> Span:
    """What lies between two marks; YAML counts lines from 0, and knows more ends of lines than we do."""
    starts, end_of_text = source.starts(), len(source.text or "")

    def offset(mark: Any) -> int:
        return min(starts[min(int(mark.line), len(starts) - 1)] + int(mark.column), end_of_text)
    return Span(source, offset(start), max(offset(start), offset(end)))


@dataclass(slots=True)
class YamlReader:
    """What readers of files have in common: pieces of the tree, and what is wrong with them. Faults are collected, each at its place."""

    source: Source
    report: Report

    FIELD: ClassVar[str]
    """Of the diagnostics."""
    HELP: ClassVar[str | None] = None
    """Of faults that say nothing better."""

    def _top(self, what: str, *, empty: bool = False) -> yaml.Node | None:
        """The table that a file is; None where it is none, which is told. A file without anything in it may be right: `empty`."""
        root = compose(self.source, self._fault)
        if root is None or _nothing(root):
            if not empty and not self.report.failed:
                self._fault(Span(self.source, 0, 0), "the file is empty")
            return None
        return root if self._is(root, "mapping", what) else None

    def _span(self, node: Any) -> Span:
        """Where a piece stands; of one that goes on over several lines, where it begins."""
        return stretch(self.source, node.start_mark, node.end_mark if node.end_mark.line == node.start_mark.line else node.start_mark)

    def _fault(self, where: Any, message: str, help: str | None = None, notes: Sequence[Note] = ()) -> None:
        """Something is wrong with a piece, or at a place."""
        self.report.error(self.FIELD, where if isinstance(where, Span) else self._span(where), message, notes, help or self.HELP)

    def _is(self, node: Any, kind: str, what: str) -> bool:
        if node.id == kind:
            return True
        names = {"mapping": "a table ('key: value')", "sequence": "a list ('[a, b]')", "scalar": "one value"}
        self._fault(node, f"{what} is {names[kind]}, not {names[node.id]}")
        return False

    def _entries(self, node: Any, known: Sequence[str] | None, what: str) -> Iterator[tuple[str, Any]]:
        """Keys and values of a table; a key that is unknown or written twice is a fault."""
        seen: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if key.id == "scalar" else ""
            if not name:
                self._fault(key, "a key is a word")
            elif name in seen:
                self._fault(key, f"'{name}' is written twice", "keep one", [Note("first here", self._span(seen[name]))])
            elif known is not None and name not in known:
                self._fault(key, f"{what} has no key '{name}'", did_you_mean(name, known) or f"its keys are {', '.join(known)}")
            else:
                seen[name] = key
                yield name, value

    def _text(self, node: Any, what: str) -> str | None:
        """One value as it is written; None where there is none, which is told."""
        if not self._is(node, "scalar", what):
            return None
        if not node.value or _nothing(node):
            self._fault(node, f"{what} is empty")
            return None
        return str(node.value)

    def _number(self, node: Any, what: str, *, signed: bool = True) -> float | None:
        """A finite number; None where it is none, which is told."""
        if not self._is(node, "scalar", what):
            return None
        try:
            value = float(node.value)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self._fault(node, f"{what} is a finite number, not '{node.value}'")
        elif value < 0 and not signed:
            self._fault(node, f"{what} is {value:g}, and cannot be negative")
        else:
            return value
        return None


def _nothing(node: Any) -> bool:
    """Whether a value is left out, or a null that is not quoted."""
    return bool(node.id == "scalar" and node.tag.endswith(":null") and not node.style)
