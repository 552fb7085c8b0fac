"""YAML files as trees whose nodes know where they stand, so that what is wrong with one can be shown at its line."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.source import Source, Span

if TYPE_CHECKING:
    import yaml


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
