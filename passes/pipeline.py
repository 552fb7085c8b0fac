"""What runs, in which order. The one page to read about the shape of the compiler.

A pass is a file of this folder, named as on the command line (`infer-types` is `passes/infer_types.py`), and is imported when it is asked for.
Passes of later parts are not listed before they exist; the comments say where they go.
"""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """Passes that belong together, in the order in which they run."""

    title: str
    passes: tuple[str, ...]


SECTIONS: tuple[Section, ...] = (
    Section("frontend", (
        # First: from here on every name of an operator is a full name that the module itself defines.
        "resolve",
        # Needs full names. Everything below relies on operators that are specialised to their call and on `Node.types`.
        "infer-types",
        # Reports to the user, so it must see the nodes as they were written, before any is moved or merged.
        "check-contracts",
    )),
    Section("placing", (
        # Before anything merges nodes: those of different devices stay apart, and one device is one device from here on.
        "place-devices",
    )),
    Section("precision", (
        # Before flatten: a policy of a graph names nodes inside it by label. From here on every operator has a clause of its own.
        "push-policies",
        # Before simplify and lower-precision, which look at the nodes of pipelines only.
        "flatten",
        # After flatten: an edge is an edge then, whatever graph it comes from, so that two lowered operators meet without a cast, and ranges are known by
        # the names of edges. Before simplify, which removes pairs of casts that users and policies make together, and merges what was put in twice.
        "lower-precision",
    )),
    Section("optimisation", (
        # After flatten; before fuse, which would have to move dead and repeated work about.
        "simplify",
        # After simplify: what is dead or repeated would be fused as well.
        "fuse",
        # After fuse, which says who reads what; before derive and schedule, which look at one operator.
        "lay-out",
        # After fuse: what is derived depends on what an operator reads and where.
        "derive",
        # After derive, whose new definitions need places too.
        "schedule",
    )),
    Section("planning", (
        # Last among those that move nodes: it writes the order in which they are launched.
        "assign-streams",
        # Needs to know what runs concurrently.
        "alias-buffers",
        # Last: it proves right what stands before it, from the text alone.
        "verify-plan",
    )),
)
"""Every pass."""

ALIASES: dict[str, str] = {
    "none": "",
    # What a program has to pass to be a right program.
    "frontend": "resolve,infer-types,check-contracts",
    "validate": "resolve,infer-types,check-contracts",
    # The oracle runs what was written, graphs included: a fault of any later pass shows in a comparison with it.
    "reference": "resolve,infer-types,check-contracts",
    "cpu": "resolve,infer-types,check-contracts,place-devices,push-policies{arch=cpu},flatten,lower-precision{arch=cpu},simplify,fuse{device=cpu},"
           "derive{device=cpu},schedule{device=cpu},assign-streams{max_streams=1},alias-buffers{device=cpu},verify-plan",
    "cuda": "resolve,infer-types,check-contracts,place-devices,push-policies,flatten,lower-precision,simplify,fuse,lay-out,"
            "derive,schedule,assign-streams,alias-buffers,verify-plan",
}
"""Names for whole pipelines, usable in `--passes` wherever a pass is; the text is what `--passes` accepts."""

PASSES: tuple[str, ...] = tuple(name for section in SECTIONS for name in section.passes)
"""The names of all passes, in order."""


def module_of(name: str) -> str:
    """The Python module that holds a pass."""
    return "pipelink_ir.passes." + name.replace("-", "_")
