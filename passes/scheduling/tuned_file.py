"""Files of tuned schedules (`edge.tuned.yaml`): reading, with every fault at its line and column (PL9103), and the text that is written.

    tuned: 1
    entries:
    - operator: 5f0c…                  # what the operator is, by `identity.py`
      name: sobel.gamma                # what it was called; for people
      shapes: 16x1080x1920x3
      arch: sm_90a
      compiler: 0.1.0
      device: NVIDIA H200
      sizes: N=16, H=1080, W=1920
      default_ms: 0.1675
      ms: 0.1402
      schedule:
        r0: {map: grid, threads: 128}
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.yaml_text import YamlReader, read_file, source_of, stretch
from pipelink_ir.passes.scheduling.tuned import KEYS, Entry, value_of

VERSION = 1
"""Of the format of files."""
HELP = "correct it, or delete the file and tune again"
WHAT = "a file of tuned schedules"
_TEXTS = ("operator", "shapes", "arch", "compiler", "name", "sizes", "device")
_NEEDED = ("operator", "shapes", "arch", "compiler", "schedule")
_TIMES = ("default_ms", "ms")

_read: dict[str, tuple[tuple[int, int], tuple[Entry, ...]]] = {}


def read_tuned(path: str) -> tuple[Entry, ...]:
    """The entries of a file. Raises `ProgramError`: PL9101 where it cannot be read, PL9103 with everything that is wrong in it."""
    return read_file(path, parse_tuned, _read)


def parse_tuned(data: bytes, path: str) -> tuple[Entry, ...]:
    """The entries of a text."""
    report = Report()
    return _Reader(source_of(data, path, "tuned", report, HELP), report).read()


class _Reader(YamlReader):
    """Reads one text."""

    __slots__ = ()
    FIELD, HELP = "tuned", HELP

    def read(self) -> tuple[Entry, ...]:
        root = self._top(WHAT)
        out: list[Entry] = []
        seen: set[str] = set()
        for key, value in self._entries(root, ("tuned", "entries"), WHAT) if root is not None else ():
            seen.add(key)
            if key == "tuned" and getattr(value, "value", None) != str(VERSION):
                self._fault(value, f"the version of the format is {VERSION}", "delete the file and tune again: another version of the compiler wrote it")
            elif key == "entries" and self._is(value, "sequence", "'entries'"):
                out = [e for e in map(self._entry, value.value) if e is not None]
        for key in ("tuned", "entries") if root is not None else ():
            if key not in seen:
                self._fault(root, f"'{key}' is missing")
        self.report.stop_if_failed()
        return tuple(out)

    def _entry(self, node: Any) -> Entry | None:
        if not self._is(node, "mapping", "an entry"):
            return None
        values: dict[str, Any] = {}
        for key, value in self._entries(node, (*_TEXTS, *_TIMES, "schedule"), "an entry"):
            if key == "schedule":
                values[key] = self._schedule(value)
            elif self._is(value, "scalar", f"'{key}'"):
                values[key] = self._number(value, f"'{key}', in milliseconds,", signed=False) or 0.0 if key in _TIMES else str(value.value)
        for key in _NEEDED:
            if key not in values:
                self._fault(node, f"an entry without '{key}'", "take the entry out, or delete the file and tune again")
        return Entry(**values, span=stretch(self.source, node.start_mark, node.start_mark)) if all(k in values for k in _NEEDED) else None

    def _schedule(self, node: Any) -> dict[str, dict[str, str]]:
        out: dict[str, dict[str, str]] = {}
        if not self._is(node, "mapping", "'schedule'"):
            return out
        for label, settings in self._entries(node, None, "'schedule'"):
            if self._is(settings, "mapping", "what is said of a definition"):
                out[label] = {}
                for key, value in self._entries(settings, KEYS, "a definition"):
                    if not self._is(value, "scalar", f"'{key}'"):
                        continue
                    if value_of(str(value.value)) is None:
                        self._fault(value, f"'{value.value}' is no value of '{key}'")
                    out[label][key] = str(value.value)
        return out


def tuned_text(entries: Iterable[Entry]) -> str:
    """The text of a file with these entries."""
    import yaml
    lines = ["# Schedules that were measured by `pipelinkc … --tune`. It may be shipped beside the program, and edited: none of it changes a result.",
             f"tuned: {VERSION}", "entries:" if (held := list(entries)) else "entries: []"]
    for e in held:
        body = {"operator": e.operator, "name": e.name, "shapes": e.shapes, "arch": e.arch, "compiler": e.compiler, "device": e.device, "sizes": e.sizes,
                "default_ms": round(e.default_ms, 6), "ms": round(e.ms, 6)}
        text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=1000).splitlines()
        lines += [("- " if k == 0 else "  ") + line for k, line in enumerate(text)]
        lines.append("  schedule:" if e.schedule else "  schedule: {}")
        for label, settings in e.schedule.items():
            # Flow style, each value quoted where YAML needs it.
            inner = yaml.safe_dump(dict(settings), sort_keys=False, default_flow_style=True, width=1000).strip()
            lines.append(f"    {label}: {inner}")
    return "\n".join(lines) + "\n"
