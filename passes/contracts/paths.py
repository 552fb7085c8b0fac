"""Downgrade policies of graphs, as seen by the nodes inside: which of them a policy around takes to which target.

    downgrade sm_75 { precision = mixed, ffn.up = i8 }      the node `up` of the graph that the node `ffn` calls
    downgrade sm_75 { dtype = i8 }                          every node inside
"""
from __future__ import annotations

from pipelink_ir.ir.nodes import Node, Operator
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.contracts.clause_words import ALL_KEYS

Paths = tuple[tuple[Arch, frozenset[str] | None], ...]
"""For each architecture the labels that a policy names, None for all nodes."""

NO_PATHS: Paths = ()


def leads(paths: Paths, arch: Arch, n: Node) -> bool:
    """Whether a policy around the node takes it to an architecture."""
    return any(a == arch and (labels is None or n.label in labels) for a, labels in paths)


def inside(op: Operator, n: Node, paths: Paths) -> Paths:
    """What the nodes of a graph are seen by: the policies around the node that calls it, and the graph's own."""
    if op.graph is None:
        return NO_PATHS
    out: list[tuple[Arch, frozenset[str] | None]] = []
    for arch, labels in paths:
        below = None if labels is None or n.label in labels else frozenset(x.partition(".")[2] for x in labels if x.partition(".")[0] == n.label)
        if below is None or below:
            out.append((arch, below))
    for d in op.downgrades:
        target = parse_arch(d.target)
        keys = {s.key for s in d.settings or ()}
        if target is not None and d.settings is not None:
            out.append((target, None if keys & {"dtype", "weights"} and "precision" not in keys else frozenset(keys) - frozenset(ALL_KEYS)))
    return tuple(out)
