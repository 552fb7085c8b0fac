"""What is said of a compiled pipeline: its ledger, and its memory for given shapes or as far as it is known without them."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pipelink_ir.ir.nodes import Pipeline
from pipelink_ir.passes.aliasing.report import Memory, lines
from pipelink_ir.passes.ledger import Entry
from pipelink_ir.runtime.targets import Target


class Planned(Protocol):
    """A compiled pipeline, as far as its memory goes."""

    pipeline: Pipeline
    target: Target

    @property
    def executable(self) -> Any: ...

    @property
    def ledger(self) -> tuple[Entry, ...]: ...


_OF_ITS_OWN = "memory: this target keeps every edge in memory of its own"


def explained(compiled: Planned, given: Mapping[str, Any]) -> str:
    """The ledger, then the memory."""
    entries = [e.text() for e in compiled.ledger] or ["ledger: nothing was inserted, copied or declined"]
    return "\n".join([*entries, *memory_lines(compiled, given)])


def memory_of(compiled: Planned, given: Mapping[str, Any]) -> Memory | None:
    """Who lies where in a call with inputs of these shapes, or with these arrays; None for a target that has no arena."""
    from pipelink_ir.runtime.arena import shapes_of
    ask = getattr(compiled.executable, "memory", None)
    found: Memory | None = ask(shapes_of(compiled.pipeline, given)) if ask is not None else None
    return found


def memory_lines(compiled: Planned, given: Mapping[str, Any]) -> Iterator[str]:
    """For people. Without shapes what the text of the plan says, which is all where sizes are not symbolic."""
    if given:
        found = memory_of(compiled, given)
        yield from found.lines() if found is not None else [_OF_ITS_OWN]
    elif compiled.target.name == "reference":
        yield _OF_ITS_OWN
    else:
        yield from lines(compiled.pipeline, "cpu" if compiled.target.name == "cpu" else "")
