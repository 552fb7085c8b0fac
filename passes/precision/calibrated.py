"""What was measured of a pipeline's edges: ranges to quantise with, and errors of whole plans. `pipelinkc calibrate` writes it beside the program
(`calibration_file.py` reads and writes the text), `lower-precision` reads it.

Edges go by their names in the flattened pipeline. Two digests say whether what was measured still speaks of this program: `program` covers what the
operators compute and how they are connected, so that it changes with whatever may change a range; `policies` covers the downgrade clauses for one target
without their budgets, for an error that was measured under one policy says nothing of another.
"""
from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.diagnostics import Report, did_you_mean
from pipelink_ir.ir.nodes import Alias, Module, Node, Operand, Operator, Pipeline
from pipelink_ir.ir.source import NOWHERE, Span
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.aliasing.order import arguments
from pipelink_ir.passes.precision.policy import clause_of

METHODS = ("minmax", "percentile", "mse", "entropy")
"""How the kept part of a range is chosen."""

LARGEST: Mapping[str, float] = {"i8": 127.0, "i4": 7.0, "f8e4m3": 448.0, "f8e5m2": 57344.0}
"""What the largest magnitude becomes where codes are symmetric."""

SMALLEST_SCALE = 2.0 ** -126
"""Below it a scale would be subnormal in f32, which GPUs may flush to zero."""
LARGEST_SCALE = float(struct.unpack("<f", b"\xff\xff\x7f\x7f")[0])


@dataclass(frozen=True, slots=True)
class EdgeRange:
    """What was seen on an edge: extremes and root mean square of its finite values, the part `low` to `high` that is worth keeping, the share of values
    outside of that, and how many were NaN or infinite."""

    min: float
    max: float
    low: float
    high: float
    rms: float = 0.0
    clipped: float = 0.0
    nan: int = 0
    inf: int = 0
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A file. `errors` are, by architecture and edge, the largest error of a lowered plan over the largest magnitude of the edge."""

    pipeline: str
    method: str
    edges: Mapping[str, EdgeRange]
    errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    samples: int = 0
    random: bool = False
    program: str = ""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Digests by architecture."""
    declined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By architecture, edges of nodes whose clause was not carried out when errors were measured."""
    ranges: str = ""
    """A digest of the ranges with which errors were measured, for files are edited; none says nothing."""
    path: str = field(default="", compare=False)
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)
    """Where keys of the file have their values."""

    def measured(self, module: Module, pipeline: str, arch: str, lowered: Collection[str] = ()) -> Mapping[str, float]:
        """The errors that were measured on an architecture (those of sm_90 count for sm_90a), none where program, policies or ranges have changed since, or
        where one of the nodes that are lowered now was not then: what pays is the compiler's decision, and another version may decide otherwise."""
        known = arch if arch in self.errors else arch.rstrip("af")
        if pipeline != self.pipeline or known not in self.errors:
            return {}
        if self.policies.get(known) != policies_digest(module, pipeline, arch) or self.program != program_digest(module, pipeline):
            return {}
        if self.ranges and self.ranges != ranges_digest(self.edges):
            return {}
        return {} if set(self.declined.get(known, ())).intersection(lowered) else self.errors[known]


# -------------------------------------------------------------------------------------------------------------------------- scales


def scale_of(seen: EdgeRange, dtype: str, scheme: str = "symmetric") -> tuple[float, int]:
    """Scale (a value of f32) and zero point by which the codes of a dtype (`i8`, `u8`, `i4`, `f8e4m3`, `f8e5m2`) cover the kept part of a range.

    0.0 has a code of its own, exactly, for zero points are integers within the codes: a range that leaves 0 out is stretched to it. `symmetric` has the zero
    point 0 (128 for `u8` where there are negative values), `affine` puts the ends of the range on the ends of the codes. A range of zeros has the scale 1."""
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    if scheme == "affine" and dtype in ("i8", "u8"):
        first = -128 if dtype == "i8" else 0
        scale = _scale(high / 255 - low / 255)
        return scale, max(first, min(first + 255, first + round(-low / scale)))
    if dtype == "u8":
        return (_scale(high / 255), 0) if low == 0.0 else (_scale(max(high, -low) / 127), 128)
    return _scale(max(high, -low) / LARGEST[dtype]), 0


def _scale(value: float) -> float:
    """A scale as f32 holds it: rounded up, so that the ends of the range stay within the codes; 1 for 0."""
    if value == 0.0:
        return 1.0
    value = max(SMALLEST_SCALE, min(LARGEST_SCALE, value))
    near = float(struct.unpack("<f", struct.pack("<f", value))[0])
    if near < value:
        near = float(struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", near))[0] + 1))[0])
    return min(near, LARGEST_SCALE)


# ------------------------------------------------------------------------------------------------------------------------- digests


def program_digest(module: Module, pipeline: str) -> str:
    """A digest of a flattened pipeline: its inputs, its edges, what each node computes. Names of operators, policies, placing and copies are no part of it."""
    p = _pipeline(module, pipeline)
    bodies, texts = {o.name: o for o in module.operators}, dict[str, str]()
    copies, lines = dict[str, str](), [f"{o.name}: {_type(o)}" for o in p.inputs]
    for n in p.nodes:
        if isinstance(n, Alias):
            copies[n.name.name] = _through(n.of.name, copies)
        elif n.op == "std.copy" or n.op.startswith("std.copy."):
            copies[n.results[0].name] = _through(arguments(n)[0].name, copies)
        else:
            if n.op not in texts:
                texts[n.op] = _computes(bodies[n.op]) if n.op in bodies else n.op
            lines.append(f"{[e.name for e in n.results]} {texts[n.op]} {[_through(e.name, copies) for e in arguments(n)]} {_attributes(n)}")
    lines += [f"-> {o.name}: {_through(o.name, copies)}" for o in p.results]
    return _digest(lines)


def policies_digest(module: Module, pipeline: str, arch: str) -> str:
    """A digest of the clauses for a target that a flattened pipeline's nodes have, after `push-policies`; budgets are left out."""
    from pipelink_ir.grammar.printer import print_expr
    target = parse_arch(arch)
    p, bodies = _pipeline(module, pipeline), {o.name: o for o in module.operators}
    lines = []
    for n in p.nodes:
        clause = clause_of(bodies[n.op], target) if isinstance(n, Node) and n.op in bodies and target is not None else None
        if clause is not None and isinstance(n, Node):
            said = sorted(f"{s.key} = {print_expr(s.value)}" for s in clause.settings or () if s.key != "budget")
            lines.append(f"{[e.name for e in n.results]} {said}")
    return _digest(lines)


def ranges_digest(edges: Mapping[str, EdgeRange]) -> str:
    """A digest of what is kept of each range, with the digits that a file has."""
    return _digest([f"{name} {e.low:.9g} {e.high:.9g}" for name, e in edges.items()])


def _pipeline(module: Module, name: str) -> Pipeline:
    return next(p for p in module.pipelines if p.name == name)


def _through(name: str, copies: Mapping[str, str]) -> str:
    return copies.get(name, name)


def _type(o: Operand) -> str:
    from pipelink_ir.grammar.printer import print_type
    return print_type(o.type)


def _attributes(n: Node) -> list[str]:
    from pipelink_ir.grammar.printer import print_expr
    return [f"{s.key} = {print_expr(s.value)}" for s in n.attrs]


def _computes(op: Operator) -> str:
    """An operator without its name and without what cannot change a value."""
    from pipelink_ir.grammar.printer import print_operator
    kept = tuple(s for s in op.sections if s.name in ("memory", "semantic"))
    return print_operator(replace(op, name="op", doc=None, downgrades=(), sections=kept, gradient=None))


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


# -------------------------------------------------------------------------------------------------------------------------- checks


AGAIN = "calibrate again: pipelinkc calibrate FILE --data …"


def edge_names(module: Module, pipeline: str) -> tuple[str, ...]:
    """The names of a pipeline's edges: inputs, then what its nodes make."""
    p = _pipeline(module, pipeline)
    made = [e.name for n in p.nodes for e in (n.results if isinstance(n, Node) else (n.name,))]
    return tuple(dict.fromkeys([*(o.name for o in p.inputs), *made]))


def check_calibration(found: Calibration, module: Module, report: Report) -> bool:
    """Whether a file speaks of a pipeline of this flattened module. Another pipeline's, or an edge that is not there though the program is the same, is an
    error (PL9104) in the file; a program that has changed since is a warning."""
    names = [p.name for p in module.pipelines]
    if found.pipeline not in names:
        near = did_you_mean(found.pipeline, names, "@")
        report.error("calibration", found.spans.get("pipeline", found.span), f"this was measured on '@{found.pipeline}', which the program does not have",
                     (), f"{near + ' ' if near else ''}the program has {', '.join('@' + n for n in names)}; {AGAIN}")
        return False
    if found.program and found.program != program_digest(module, found.pipeline):
        report.warning("calibration", found.spans.get("program", found.span), f"'@{found.pipeline}' has changed since this was measured: its ranges may be "
                       "those of other values", (), AGAIN)
        return True
    known = edge_names(module, found.pipeline)
    for name, seen in found.edges.items():
        if name not in known:
            report.error("calibration", seen.span, f"'@{found.pipeline}' has no edge '%{name}'", (), did_you_mean(name, known, "%") or AGAIN)
    return not report.failed
