"""Diagnostics: located, coded messages about a user's program, and the one exception for faults of our own.

User errors are collected in a `Report` and reported together (`ProgramError`); an `InternalError` is a fault of this compiler. Which of the two a
check raises is chosen by name at the check. Codes and what they mean stand in `ir/codes.py`.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NoReturn

from pipelink_ir.ir.codes import CODES
from pipelink_ir.ir.source import Span


@dataclass(frozen=True, slots=True)
class Note:
    """A second place that belongs to a message: the producer, the declaration, the first definition."""

    message: str
    span: Span


@dataclass(frozen=True, slots=True)
class About:
    """A violated contract in parts, for tools and `ContractViolationError`: its field, who asks, of which value, what for, and what there is."""

    field: str
    operator: str | None = None
    edge: str | None = None
    expected: str = ""
    got: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message. `code` is a key of `CODES`, which gives its field and what `pipelinkc explain` says."""

    code: str
    severity: str
    message: str
    span: Span
    notes: tuple[Note, ...] = ()
    help: str | None = None
    about: About | None = None

    @property
    def field(self) -> str:
        """The contract that is violated, else what the code is about."""
        return self.about.field if self.about is not None else CODES[self.code].field

    def json(self) -> dict[str, Any]:
        """The object that `--format json` prints."""
        return {"code": self.code, "severity": self.severity, "field": self.field, "message": self.message, "file": self.span.source.path,
                "line": self.span.line, "column": self.span.column,
                "notes": [{"message": n.message, "file": n.span.source.path, "line": n.span.line, "column": n.span.column} for n in self.notes],
                "help": self.help}

    def text(self) -> str:
        """The message with its source line and a caret under the culprit, notes and help below."""
        out = [f"{self.span}: {self.severity}[{self.code}]: {self.field}: {self.message}", *_excerpt(self.span)]
        for note in self.notes:
            out += [f"{note.span}: note: {note.message}", *_excerpt(note.span)]
        if self.help:
            out.append(f"   = help: {self.help}")
        return "\n".join(out)


def _excerpt(span: Span) -> list[str]:
    line = span.source.line(span.line)
    if line is None:
        return []
    # A line of megabytes is shown around the culprit only.
    column, shown = span.column, line
    if len(line) > 240:
        first = max(0, column - 1 - 100)
        shown, column = ("…" if first else "") + line[first:first + 200] + "…", column - first + (1 if first else 0)
    width = max(1, min(span.end - span.start, len(shown) - column + 1))
    lead = "".join(c if c == "\t" else " " for c in shown[:column - 1])
    return [f"{span.line:>8} | {shown}", f"{'':>8} | {lead}^{'~' * (width - 1)}"]


class ProgramError(Exception):
    """The program is at fault. Holds every diagnostic that was collected, warnings included."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.text() for d in self.diagnostics))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.diagnostics,)


class ExecutionError(ProgramError):
    """A compiled program met data that it cannot be run on: a wrong input, an index outside at run time, a `where` that does not hold."""


CONTRACT_FIELDS = frozenset("""dtype rank shape layout align padding border bounds contiguity cross_device inplace range color finite arch library
downgrade budget streams batch device""".split())
"""Fields of errors that are violations of a contract."""


class ContractViolationError(ExecutionError):
    """A contract is violated: by an array at a call, or by the program itself when it is compiled.

    Speaks of the first error: `field` is the contract (`layout`, `contiguity`, …), `operator` who asks for it, `edge` the value that it is asked of, `expected`
    and `got` what was asked and what there is. `locations` are all places that belong to it, each with what is there: the use, the contract in the program, and
    the line of Python that made the array (or made the call). `diagnostics` has every message, also of further errors."""

    @property
    def first(self) -> Diagnostic:
        """The error that the other properties speak of."""
        return next((d for d in self.diagnostics if d.severity == "error" and contract_field(d)), self.diagnostics[0])

    @property
    def about(self) -> About:
        """The violation in parts."""
        return self.first.about or _about(self.first)

    @property
    def field(self) -> str:
        return self.about.field

    @property
    def operator(self) -> str | None:
        return self.about.operator

    @property
    def edge(self) -> str | None:
        return self.about.edge

    @property
    def expected(self) -> str:
        return self.about.expected

    @property
    def got(self) -> str:
        return self.about.got

    @property
    def locations(self) -> tuple[Note, ...]:
        """Every place that the error names, the primary one first."""
        return (Note(self.first.message, self.first.span), *self.first.notes)


def contract_field(d: Diagnostic) -> str | None:
    """The contract that an error is about, None if it is about something else."""
    return d.field if d.field in CONTRACT_FIELDS else None


def violation(error: ProgramError) -> ProgramError:
    """The error as a `ContractViolationError` if its first error is about a contract, else itself."""
    first = next((d for d in error.diagnostics if d.severity == "error"), None)
    if first is None or contract_field(first) is None or isinstance(error, ContractViolationError):
        return error
    return ContractViolationError(error.diagnostics)


def _about(d: Diagnostic) -> About:
    """The parts of a message that were not given: messages are written as "what there is, but what is asked for"."""
    operators, edges = re.findall(r"'@([^']+)'", d.message), re.findall(r"'%([^']+)'", d.message)
    got, _, expected = d.message.partition(", but ")
    return About(d.field, operators[0] if operators else None, edges[0] if edges else None, expected or d.message, got if expected else "")


class UsageError(Exception):
    """The command was used wrongly: an unknown pass or option, a folder that cannot be written. One line, exit code 2."""


class InternalError(Exception):
    """A fault of this compiler, never of the user's program."""


def internal_error(message: str) -> NoReturn:
    """Raise an `InternalError`."""
    raise InternalError(message)


@dataclass(slots=True)
class Report:
    """Collects diagnostics; a message about the same place and code is kept once."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    _seen: set[tuple[Any, ...]] = field(default_factory=set)

    def error(self, code: str, span: Span, message: str, notes: Iterable[Note] = (), help: str | None = None, about: About | None = None) -> None:
        """Record an error. `code` is a code (`PL3001`) or a field that has just one (`layout`)."""
        self._add(code, "error", span, message, notes, help, about)

    def warning(self, code: str, span: Span, message: str, notes: Iterable[Note] = (), help: str | None = None, about: About | None = None) -> None:
        """Record a warning: the program still compiles."""
        self._add(code, "warning", span, message, notes, help, about)

    def _add(self, code: str, severity: str, span: Span, message: str, notes: Iterable[Note], help: str | None, about: About | None) -> None:
        self.add(Diagnostic(code if code in CODES else code_of(code), severity, message, span, tuple(notes), help, about))

    def add(self, d: Diagnostic) -> None:
        """Record a diagnostic as it is. A warning does not stand for an error at the same place."""
        key = (d.code, id(d.span.source), d.span.start, d.span.end, d.span.known)
        if not {(*key, "error"), (*key, d.severity)} & self._seen:
            self._seen.add((*key, d.severity))
            self.diagnostics.append(d)

    @property
    def failed(self) -> bool:
        return any(d.severity == "error" for d in self.diagnostics)

    def stop_if_failed(self) -> None:
        """Raise `ProgramError` with everything collected so far if there is an error among it."""
        if self.failed:
            raise ProgramError(self.diagnostics)


def code_of(field_name: str) -> str:
    """The first code of a field, `PL3001` for `layout`."""
    for code, entry in CODES.items():
        if entry.field == field_name:
            return code
    internal_error(f"no diagnostic code has the field {field_name!r}")


def did_you_mean(name: str, known: Iterable[str], sigil: str = "") -> str | None:
    """A sentence that names the nearest known names, in whatever case, or None if none is near. At most 2,000 candidates are compared."""
    candidates: dict[str, str] = {}
    for k in known:
        candidates.setdefault(k.lower(), k)
        if len(candidates) >= 2000:
            break
    near = [candidates[n] for n in get_close_matches(name.lower(), candidates, n=3, cutoff=0.6)]
    if not near:
        return None
    return "did you mean " + " or ".join(f"'{sigil}{n}'" for n in near) + "?"
