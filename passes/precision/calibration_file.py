"""Files of calibration (`edge.calibration.yaml`): reading, with every fault at its line and column (PL9104), and the text that is written.

    calibration: 1
    pipeline: net
    program: 5f0c…                     # a digest of the pipeline; another one: the program has changed since
    method: percentile 99.99
    samples: 32
    edges:
      x: {min: -2.1, max: 3.75, low: -2.0, high: 3.5, rms: 0.9}
      y.h: {min: 0.0, max: 12.5, low: 0.0, high: 11.0, rms: 1.4, clipped: 0.0001}
    policies:
      sm_75: 91be…                     # a digest of the clauses for this target, for its errors
    declined:
      sm_75: [y.h]                     # what was left as it is when these were measured
    errors:
      sm_75: {y: 0.0031}
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelink_ir.ir.diagnostics import Report, did_you_mean
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import known_archs, parse_arch
from pipelink_ir.ir.yaml_text import YamlReader, read_file, source_of
from pipelink_ir.passes.precision.calibrated import AGAIN, METHODS, Calibration, EdgeRange

VERSION = 1
"""Of the format of files."""
HELP = f"correct it, or {AGAIN}"
WHAT = "a calibration file"
KEYS = ("calibration", "pipeline", "program", "method", "samples", "random", "edges", "ranges", "policies", "declined", "errors")
_NEEDED = ("calibration", "pipeline", "method", "edges")
EDGE_KEYS = ("min", "max", "low", "high", "rms", "clipped", "nan", "inf")
_EDGE_NEEDED = ("min", "max", "low", "high")

_read: dict[str, tuple[tuple[int, int], Calibration]] = {}


def read_calibration(path: str) -> Calibration:
    """A file. Raises `ProgramError`: PL9101 where it cannot be read, PL9104 with everything that is wrong in it."""
    return read_file(path, parse_calibration, _read)


def parse_calibration(data: bytes, path: str) -> Calibration:
    """What a text says."""
    report = Report()
    return _Reader(source_of(data, path, "calibration", report, HELP), report).read()


@dataclass(slots=True)
class _Reader(YamlReader):
    """Reads one text."""

    spans: dict[str, Span] = field(default_factory=dict)

    FIELD, HELP = "calibration", HELP

    def read(self) -> Calibration:
        root = self._top(WHAT)
        values: dict[str, Any] = {}
        kinds: dict[str, Callable[[Any, str], Any]] = {
            "calibration": self._version, "pipeline": self._text, "program": self._text, "ranges": self._text, "policies": self._digests,
            "method": self._method, "samples": self._count, "random": self._flag, "edges": self._edges, "declined": self._declined, "errors": self._errors}
        for key, node in self._entries(root, KEYS, WHAT) if root is not None else ():
            values[key] = kinds[key](node, f"'{key}'")
            self.spans[key] = self._span(node)
        for key in _NEEDED if root is not None else ():
            if key not in values:
                self._fault(root, f"'{key}' is missing")
        self.report.stop_if_failed()
        del values["calibration"]
        return Calibration(**{k: v for k, v in values.items() if v is not None}, path=self.source.path, span=self._span(root), spans=self.spans)

    # --------------------------------------------------------------------------------------------------------------------- values

    def _version(self, node: Any, what: str) -> int:
        if getattr(node, "value", None) != str(VERSION):
            self._fault(node, f"the version of the format is {VERSION}", f"another version of the compiler wrote this; {AGAIN}")
        return VERSION

    def _method(self, node: Any, what: str) -> str | None:
        text = self._text(node, what)
        if text and text.split()[0] not in METHODS:
            self._fault(node, f"there is no method '{text.split()[0]}'", did_you_mean(text, METHODS) or f"methods are {', '.join(METHODS)}")
        return text

    def _count(self, node: Any, what: str) -> int:
        if self._is(node, "scalar", what):
            if node.value.isascii() and node.value.isdigit() and len(node.value) < 19:
                return int(node.value)
            self._fault(node, f"{what} is a number that is not negative, not '{node.value}'")
        return 0

    def _flag(self, node: Any, what: str) -> bool:
        if self._is(node, "scalar", what) and node.value not in ("true", "false"):
            self._fault(node, f"{what} is true or false, not '{node.value}'")
        return bool(node.value == "true")

    def _edges(self, node: Any, what: str) -> dict[str, EdgeRange]:
        out: dict[str, EdgeRange] = {}
        if self._is(node, "mapping", what):
            for name, value in self._entries(node, None, what):
                seen = self._edge(name, value) if self._is(value, "mapping", f"what is said of '%{name}'") else None
                if seen is not None:
                    out[name] = seen
        return out

    def _edge(self, name: str, node: Any) -> EdgeRange | None:
        values: dict[str, Any] = {}
        for key, value in self._entries(node, EDGE_KEYS, "an edge"):
            values[key] = self._count(value, f"'{key}'") if key in ("nan", "inf") else self._number(value, f"'{key}' of '%{name}'", signed=key in _EDGE_NEEDED)
        for key in _EDGE_NEEDED:
            if key not in values:
                self._fault(node, f"'%{name}' has no '{key}'")
                values[key] = None
        if any(v is None for v in values.values()):
            return None
        for a, b in (("min", "max"), ("low", "high")):
            if values[a] > values[b]:
                self._fault(node, f"'{a}' of '%{name}' is {values[a]:g}, which is above its '{b}', {values[b]:g}")
                return None
        return EdgeRange(**values, span=self._span(node))

    def _of_targets(self, node: Any, what: str) -> Iterator[tuple[str, Any]]:
        if self._is(node, "mapping", what):
            for arch, value in self._entries(node, None, what):
                if parse_arch(arch) is None:
                    self._fault(value, f"{what} is by target, and there is no target '{arch}'", did_you_mean(arch, known_archs()) or None)
                else:
                    yield arch, value

    def _digests(self, node: Any, what: str) -> dict[str, str]:
        return {arch: self._text(value, f"the digest of {arch}") or "" for arch, value in self._of_targets(node, what)}

    def _declined(self, node: Any, what: str) -> dict[str, tuple[str, ...]]:
        return {arch: tuple(self._text(edge, f"an edge that {arch} leaves as it is") or "" for edge in names.value)
                for arch, names in self._of_targets(node, what) if self._is(names, "sequence", f"what {arch} leaves as it is")}

    def _errors(self, node: Any, what: str) -> dict[str, dict[str, float]]:
        return {arch: {name: self._error(name, value) for name, value in self._entries(table, None, arch)}
                for arch, table in self._of_targets(node, what) if self._is(table, "mapping", f"what is said of {arch}")}

    def _error(self, name: str, node: Any) -> float:
        """An error that was measured; infinite where values were lost to NaN or infinities."""
        if getattr(node, "value", None) == ".inf":
            return math.inf
        return self._number(node, f"the error of '%{name}'", signed=False) or 0.0


def calibration_text(c: Calibration) -> str:
    """The text of a file. Equal contents give equal texts."""
    lines = ["# Ranges of values, measured by `pipelinkc calibrate`; the compiler quantises by `low` and `high` of an edge. It may be edited and is shipped",
             "# beside the program."]
    if c.random:
        lines.append("# WARNING: measured on random numbers, not on data. Ranges, and whatever is quantised by them, are worthless for real inputs.")
    head = {"calibration": VERSION, "pipeline": c.pipeline, "program": c.program, "method": c.method, "samples": c.samples,
            "random": c.random}
    lines += [f"{key}: {_scalar(value)}" for key, value in head.items() if value not in ("", False)]
    lines.append("edges:" if c.edges else "edges: {}")
    for name, e in c.edges.items():
        values = {k: _number(v, 9) for k, v in (("min", e.min), ("max", e.max), ("low", e.low), ("high", e.high))} | {"rms": _number(e.rms, 4)}
        values |= {k: v for k, v in (("clipped", _number(e.clipped, 4)), ("nan", str(e.nan)), ("inf", str(e.inf))) if v not in ("0.0", "0")}
        lines.append(f"  {_scalar(name)}: {{{', '.join(f'{k}: {v}' for k, v in values.items())}}}")
    if c.ranges:
        lines.append(f"ranges: {_scalar(c.ranges)}")
    if c.policies:
        lines += ["policies:", *(f"  {arch}: {_scalar(digest)}" for arch, digest in c.policies.items())]
    if any(c.declined.values()):
        lines += ["declined:", *(f"  {arch}: [{', '.join(map(_scalar, edges))}]" for arch, edges in c.declined.items() if edges)]
    if c.errors:
        lines.append("errors:")
        for arch, table in c.errors.items():
            lines.append(f"  {arch}:" if table else f"  {arch}: {{}}")
            lines += [f"    {_scalar(name)}: {_number(value, 6)}" for name, value in table.items()]
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    """A value as YAML reads it back: words that mean something there (`y`, `no`, `1e3`) are quoted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    import yaml
    text: str = yaml.safe_dump(str(value), width=1 << 20, allow_unicode=True).removesuffix("...\n").strip()
    return text


def _number(value: float, digits: int) -> str:
    """A float with so many digits, 9 of which say every f32 exactly, in a form that YAML takes for a float."""
    if value == math.inf:
        return ".inf"
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent
