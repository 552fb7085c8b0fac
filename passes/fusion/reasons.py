"""What the ledger is told: what became one operator and what that saves, and for each edge between two nodes why it stays one."""
from __future__ import annotations

import re

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.passes.fusion.compose import edges_free
from pipelink_ir.passes.fusion.cost import Sums, compare
from pipelink_ir.passes.fusion.groups import Graph, Group
from pipelink_ir.passes.fusion.weigh import guess_text, stem

_EDGE = re.compile(r"declined: '%.*' \(.* bytes\) into '@")
"""What is said again each time."""
SHOWN = 8
"""So many names a text spells out."""


def fused(g: Graph, group: Group) -> list[str]:
    """The parts of a group and the sums of both choices, then the edges that it swallowed and what was gained by what else it holds."""
    apart = tuple(Sums(float(sum(g.bytes[e] for e in {*c.args, *c.results})), c.sums.work, len({g.box[e] for e in c.results}),
                       float(sum(g.bytes[e] for e in {*c.args, *c.results} if e in group.made and not g.outside[e] and g.bytes[e] <= group.device.cache)))
                  for c in group.calls)
    _, sums = compare(apart, group.sums(), group.device, any(c.facts.recurrent for c in group.calls))
    out = [f"fused: {_listed([stem(c.op.name) for c in group.calls])}: {sums}{guess_text(g, list(group.made))}"]
    modes: dict[str, list[str]] = {}
    for text, edges in group.notes:
        if not edges:
            out.append(f"fused: {text}")
        for e in edges:
            modes.setdefault(e, []).extend([text] if text else [])
    alike: dict[str, list[str]] = {}
    for e, texts in modes.items():
        inside = e in group.clones or not g.outside[e]
        readers = sum(e in c.args for c in group.calls)
        saved = "" if e in group.clones else f": {g.bytes[e] * (readers + inside)} bytes fewer to move"
        if e in group.stored:
            saved = ", and is stored all the same: no bytes fewer to move"
        text = ", ".join(dict.fromkeys(texts))
        alike.setdefault(("stays inside" if inside else "is read where it is made") + saved + (f", {text}" if text and saved else f": {text}" if text else ""),
                         []).append(e)
    free = [e for c in group.calls if edges_free(c.op) for e in c.results if not g.outside[e] and _narrow(str(g.types[e].dtype))]
    if free:
        out.append(f"fused: {_edges(free)} may keep more than the dtype of the edge: what makes it says 'edges = free'")
    return [*out, *(f"fused: {_edges(edges)} {'each ' if len(edges) > 1 else ''}{text}" for text, edges in alike.items())]


def declined(g: Graph, group: Group) -> list[str]:
    """Why edges that the group reads are still edges."""
    texts: dict[tuple[str, str], list[str]] = {}
    for call in group.calls:
        for e in dict.fromkeys(call.args):
            why = g.declined.get((e, call.number))
            if why is not None and e in group.reads:
                found = texts.setdefault((stem(call.op.name), why), [])
                if e not in found:
                    found.append(e)
    return [f"declined: {_edges(edges)} ({' + '.join(str(g.bytes[e]) for e in edges)} bytes) into '@{name}': {why}"
            for (name, why), edges in texts.items()]


def told_before(reason: str | None) -> list[str]:
    """The parts of what passes said of a node, without what fusion said of its edges."""
    return [] if reason is None else [part for part in reason.split("; ") if not _EDGE.match(part)]


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= SHOWN else f"{', '.join(names[:SHOWN - 1])} and {len(names) - SHOWN + 1} more"


def _narrow(dtype: str) -> bool:
    return DTYPES[dtype].is_float and DTYPES[dtype].compute is not DTYPES[dtype]


def _edges(edges: list[str]) -> str:
    return ", ".join(f"'%{e}'" for e in edges)
