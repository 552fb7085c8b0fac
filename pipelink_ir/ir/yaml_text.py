"""YAML files as trees whose nodes know where they stand, so that what is wrong with one can be shown at its line."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError, Report, UsageError
from pipelink_ir.ir.source import Source, Span, elsewhere

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")


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


def stretch(source: Source, start: Any, end: Any) -> Span:
    """What lies between two marks; YAML counts lines from 0, and knows more ends of lines than we do."""
    starts, end_of_text = source.starts(), len(source.text or "")

    def offset(mark: Any) -> int:
        return min(starts[min(int(mark.line), len(starts) - 1)] + int(mark.column), end_of_text)
    return Span(source, offset(start), max(offset(start), offset(end)))
