"""The ledger: everything that was inserted or declined on the user's behalf, with why, how many bytes, and the line it belongs to.

It is a view of the module: a node that a pass put in carries its `reason`, so a program that was dumped and resumed has the same ledger. What happens at a
call (a copy of an array that is not dense) makes entries of the same kind. `--explain` prints them, `--deny copy,cast` turns them into errors.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelink_ir.ir.diagnostics import Report, UsageError, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Device, IntLit, Module, Node, TensorType
from pipelink_ir.ir.shapes import dim_text
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.devices import declared_archs, device_text, folded, has

KINDS = {
    "copy": "bytes are copied: to another device, another layout, or so that an array is as contiguous as asked for",
    "cast": "values are converted to another dtype",
    "lowered": "an operator runs in another dtype, as its policy asks",
    "priced": "what policies were found to cost: a pipeline with and without them, and nodes that were weighed together",
    "quantize": "values are quantised or brought back",
    "sync": "somebody waits: an event, a device, a stream",
    "fallback": "something runs elsewhere or otherwise than the program asks",
    "materialise": "a value is stored that nobody asked to be stored",
    "fused": "several operators became one",
    "declined": "a change that was possible was not made, since it would not pay",
    "other": "anything else that a pass put in",
}
"""Kinds of entries, with what they say."""

OF_EDGES = ("fused", "declined", "priced")
"""Kinds that speak of edges, whose bytes are in their text."""
FIRST = "priced"
"""The kind that sums up others, and stands before them."""
_OF_OPERATOR = {"std.copy": "copy", "std.cast": "cast", "std.quantize": "quantize", "std.dequantize": "quantize"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    kind: str
    what: str
    reason: str
    bytes: str = ""
    """How many, as text: of symbolic sizes the expression."""
    span: Span | None = None

    def __str__(self) -> str:
        size = f", {self.bytes} bytes" if self.bytes else ""
        return f"{self.kind}: {self.what}{size}: {self.reason}"

    def text(self) -> str:
        """With the place it belongs to."""
        return f"{self.span}: {self}" if self.span is not None else str(self)


def ledger(module: Module, target: str | None = None, declined: Mapping[str, str] | None = None) -> tuple[Entry, ...]:
    """The entries of a module. With a `target`, also what the target cannot do as the program asks. `declined`: why a library does not compute operators
    that it was planned for, which is found out when it is loaded."""
    archs = declared_archs(module)
    out: list[Entry] = []
    for p in module.pipelines:
        out += [*_placed(p.device, f"'@{p.name}'", target, archs), *_nodes(p.nodes, target, archs)]
    for o in module.operators:
        out += _nodes(o.graph.nodes, target, archs) if o.graph is not None else ()
    return (*sorted(out, key=lambda e: e.kind != FIRST), *_products(module, target, declined or {}))


def _products(module: Module, target: str | None, declined: Mapping[str, str]) -> Iterator[Entry]:
    """Which kernels compute products of matrices on a GPU, and why."""
    from pipelink_ir.passes.scheduling.told import of_products
    for n, (kind, text) in of_products(module, target, declined):
        made = ", ".join(f"'%{r.name}'" for r in n.results)
        yield Entry(kind, f"{made} = '@{n.op}'", text, "", n.loc or n.op_span)


def _nodes(nodes: Iterable[object], target: str | None, archs: Mapping[str, Arch]) -> Iterator[Entry]:
    for n in nodes:
        if isinstance(n, Node):
            yield from _placed(n.device, f"'@{n.op}'", target, archs)
            if n.reason is not None:
                yield from _inserted(n, n.reason)


def _inserted(n: Node, reason: str) -> Iterator[Entry]:
    """What a pass says of a node. A reason may begin with its kind, `fallback: …`, and have several parts, `fallback: …; declined: …`."""
    made, op = ", ".join(f"'%{r.name}'" for r in n.results), re.sub(r"(\.\d+)+$", "", n.op)  # `std.cast.2` is a cast specialised to its call
    parts: list[tuple[str, str]] = []
    for text in reason.split("; "):
        head, colon, tail = text.partition(":")
        if colon and head.strip() in KINDS:
            parts.append((head.strip(), tail.strip()))
        elif parts:
            parts[-1] = parts[-1][0], f"{parts[-1][1]}; {text}"
        else:
            parts.append((_OF_OPERATOR.get(op, "other"), text))
    for kind, text in parts:
        if kind == FIRST:
            yield Entry(kind, *_summed(text), "", n.loc or n.op_span)
            continue
        yield Entry(kind, f"{made} = '@{op}'", text, "" if kind in OF_EDGES else _bytes(n.types), n.loc or n.op_span)


def _summed(text: str) -> tuple[str, str]:
    """What a sum speaks of, and the sum."""
    what, _, sums = text.partition(": ")
    return what, sums


def _bytes(types: Sequence[TensorType]) -> str:
    """Bytes of all results: a number, or an expression of the sizes."""
    total, parts = 0, []
    for t in types:
        dtype = DTYPES.get(t.dtype)
        if dtype is None:
            return ""
        number, names = dtype.bytes, []
        for d in t.dims:
            if isinstance(d, IntLit):
                number *= d.value
            else:
                names.append(dim_text(d))
        if names:
            parts.append("*".join([str(number), *names]))
        else:
            total += number
    return " + ".join([*parts, *([str(total)] if total or not parts else [])]) if types else ""


def _placed(device: Device | None, what: str, target: str | None, archs: Mapping[str, Arch]) -> Iterator[Entry]:
    if device is not None and target is not None and not has(target, device, archs):
        yield Entry("fallback", f"{what} on {device_text(device)}", folded(device, target), "", device.span)


def parse_kinds(texts: Iterable[str], flag: str) -> frozenset[str]:
    """The kinds in `copy,cast`; a `UsageError` for one that does not exist."""
    kinds = frozenset(k.strip() for text in texts for k in text.split(",") if k.strip())
    for kind in sorted(kinds):
        if kind not in KINDS:
            raise UsageError(f"{flag}: there is no kind of entry '{kind}'; {did_you_mean(kind, KINDS) or 'there are ' + ', '.join(KINDS)}")
    return kinds


def check_denied(entries: Iterable[Entry], denied: frozenset[str], report: Report, where: Span) -> None:
    """Report every entry of a kind that is denied; `where` is the place of entries that have none."""
    for e in entries:
        if e.kind in denied:
            size = f", {e.bytes} bytes" if e.bytes else ""
            report.error("ledger", e.span or where, f"{e.what}{size}: {e.reason}; '{e.kind}' is denied", (),
                         f"change the program or the arrays so that it is not needed, or do not deny '{e.kind}'")
