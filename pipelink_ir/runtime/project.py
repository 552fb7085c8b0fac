"""`pipelink.yaml`: found by walking up from a program's folder, read, and checked; every fault is told at its line and column.

What is a word in the file is taken as it is written: YAML's `off`, `no` and `1e3` are no booleans and numbers unless the key asks for one.
"""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Setting
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import LIBRARIES, Arch, known_archs, parse_arch
from pipelink_ir.ir.yaml_text import YamlReader, source_of
from pipelink_ir.passes.contracts.clause_words import check_clause, check_dtype_word
from pipelink_ir.passes.precision.clause_text import read_clause
from pipelink_ir.passes.precision.policy import RANGES, SCHEMES, WEIGHTS
from pipelink_ir.runtime.project_keys import BUILD_KEYS, FILE, KEYS, POLICY_KEYS
from pipelink_ir.runtime.sources import STDIN_PATHS, read_bytes

if TYPE_CHECKING:

    from pipelink_ir.passes.manager import Step

_CUDA = re.compile(r"cuda(:\d+)?")
_EXAMPLES = {"budget": "write 'budget: 0.01'", "block": "write 'block: 128'", "granularity": "write 'granularity: channel'"}
_DEVICE = re.compile(r"cpu|cuda:\d+|@\w+")


@dataclass(frozen=True, slots=True)
class Build:
    """One entry of the build list."""

    program: str
    pipeline: str | None = None
    targets: tuple[str, ...] = ()
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """What a project file says. Paths are absolute. Without a file nothing is said."""

    path: str | None = None
    targets: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = ()
    device_map: Mapping[str, str] = field(default_factory=dict)
    precision: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Policies by target, with values as PLIR writes them."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where they stand, `pipelink.yaml:3:10`."""
    labels: Mapping[str, Mapping[str, Span]] = field(default_factory=dict, compare=False)
    """By target, the labels that a policy names, and where."""
    cache: str | None = None
    log_level: str | None = None
    copies: str | None = None
    build: tuple[Build, ...] = ()

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Inside, the project's cache and log level stand for variables that are not set."""
        values = {name: value for name, value in (("PIPELINK_CACHE_DIR", self.cache), ("PIPELINK_LOG_LEVEL", self.log_level)) if value is not None}
        with environment.defaults(values):
            yield

    def runs_on(self) -> str | None:
        """The first target that names where to run and is there; None if the project leaves that open."""
        from pipelink_ir.runtime.targets import best_target
        return next((t for t in self.targets if t in ("cpu", "reference") or (_CUDA.fullmatch(t) and best_target() == "cuda")), None)

    def archs(self) -> tuple[str, ...]:
        """The CUDA architectures among the targets."""
        return tuple(t for t in self.targets if (arch := parse_arch(t)) is not None and arch.kind == "cuda")

    def policies(self) -> tuple[str, ...]:
        """The policies as the pass `push-policies` takes them."""
        from pipelink_ir.passes.precision.clause_text import clause_text
        places = {target: place for target, place in self.places.items() if '"' not in place}
        return tuple(clause_text(target, tuple(said.items()), places.get(target, "")) for target, said in self.precision.items())

    def steps(self, steps: Sequence[Step], *, checked: bool) -> tuple[Step, ...]:
        """The passes with what the project says to them. `checked` says that command or program name the targets to check for themselves."""
        def one(s: Step) -> Step:
            more: dict[str, Any] = {}
            if s.name == "resolve" and self.search_paths and not s.options.search_paths:
                more["search_paths"] = self.search_paths
            if s.name == "check-contracts" and not checked and not s.options.targets and self.archs():
                more["targets"] = self.archs()
            if s.name == "place-devices" and self.device_map and not s.options.map:
                more["project_map"] = tuple(f"{asked}={given}" for asked, given in self.device_map.items())
            if s.name == "push-policies" and self.precision and not s.options.policies:
                more["policies"] = self.policies()
            return replace(s, options=replace(s.options, **more)) if more else s
        return tuple(map(one, steps))


def find_project(program: str) -> Project:
    """The project file in the folder of a program (of standard input: the current one) or in one above it, read. None of them: an empty `Project`."""
    folder = os.getcwd() if program in STDIN_PATHS else os.path.dirname(os.path.abspath(program))
    while True:
        path = os.path.join(folder, FILE)
        if os.path.isfile(path):
            return _cached(path)
        above = os.path.dirname(folder)
        if above == folder:
            return Project()
        folder = above


_read: dict[str, tuple[tuple[int, int], Project]] = {}


def _cached(path: str) -> Project:
    try:
        state = os.stat(path)
    except OSError:
        return read_project(path)
    key = (state.st_mtime_ns, state.st_size)
    if path not in _read or _read[path][0] != key:
        _read[path] = key, read_project(path)
    return _read[path][1]


def read_project(path: str) -> Project:
    """Read one file. Raises `ProgramError` with everything that is wrong in it (PL9102), or PL9101 where it cannot be read."""
    data = read_bytes(path)
    shown = os.path.relpath(path) if not os.path.relpath(path).startswith("..") else path
    report = Report()
    return _Reader(source_of(data, shown, "project", report, "save the file as UTF-8"), report, path).read()


@dataclass(slots=True)
class _Reader(YamlReader):
    """Reads one file."""

    path: str
    places: dict[str, str] = field(default_factory=dict)
    """Where the policies stand."""
    labels: dict[str, dict[str, Span]] = field(default_factory=dict)

    FIELD = "project"

    def read(self) -> Project:
        root = self._top("a project file", empty=True)
        kinds: dict[str, Callable[[Any], Any]] = {
            "targets": self._targets, "search_paths": self._folders, "device_map": self._device_map, "precision": self._precision,
            "cache": self._cache, "log_level": lambda n: self._one_of(n, environment.LOG_LEVELS), "copies": lambda n: self._one_of(n, ("allow", "refuse")),
            "build": self._builds}
        values = {key: kinds[key](node) for key, node in self._entries(root, [k.name for k in KEYS], "a project file")} if root is not None else {}
        self.report.stop_if_failed()
        if self.places:
            values |= {"places": self.places, "labels": self.labels}
        return Project(self.path, **{f.name: values[f.name] for f in fields(Project) if values.get(f.name) is not None})

    # -------------------------------------------------------------------------------------------------------------------- pieces

    def _list(self, node: Any, what: str, one: Callable[[Any], Any]) -> tuple[Any, ...]:
        if not self._is(node, "sequence", what):
            return ()
        found: dict[Any, Span] = {}
        for item in node.value:
            value = one(item)
            if value is None:
                continue
            if value in found:
                self._fault(item, f"'{item.value}' stands there twice" if item.id == "scalar" else "this stands there twice", "keep one",
                            [Note("first here", found[value])])
            found.setdefault(value, self._span(item))
        return tuple(found)

    def _one_of(self, node: Any, words: Sequence[str]) -> str | None:
        text = self._text(node, "this")
        if text is not None and text not in words:
            self._fault(node, f"'{text}' is none of {', '.join(words)}", did_you_mean(text, words) or f"write '{words[0]}'")
            return None
        return text

    # ---------------------------------------------------------------------------------------------------------------------- keys

    def _targets(self, node: Any) -> tuple[str, ...]:
        if node.id == "sequence" and not node.value:
            self._fault(node, "there is no target in the list", "write 'targets: [cpu]', or leave the key out")
        return self._list(node, "'targets'", self._target)

    def _target(self, node: Any) -> str | None:
        text = self._text(node, "a target")
        if text is None or parse_arch(text) is not None or _CUDA.fullmatch(text):
            return text
        known = ["cpu", "reference", "cuda", *known_archs()]
        self._fault(node, f"there is no target '{text}'", did_you_mean(text, known) or f"targets are {', '.join(dict.fromkeys(known))}")
        return None

    def _beside(self, text: str) -> str:
        """A path of the file, relative to its folder, as an absolute one."""
        return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(self.path)), os.path.expanduser(text)))

    def _folders(self, node: Any) -> tuple[str, ...]:
        return self._list(node, "'search_paths'", self._folder)

    def _folder(self, node: Any) -> str | None:
        text = self._text(node, "a search path")
        if text is not None and not os.path.isdir(self._beside(text)):
            self._fault(node, f"there is no folder '{text}' beside the project file")
            return None
        return self._beside(text) if text is not None else None

    def _device_map(self, node: Any) -> dict[str, str]:
        out: dict[str, str] = {}
        if self._is(node, "mapping", "'device_map'"):
            for key, value in self._entries(node, None, "'device_map'"):
                to = self._text(value, "a device")
                for text, place in ((key, value), (to, value)):
                    if text is not None and not _DEVICE.fullmatch(text):
                        self._fault(place, f"'{text}' is no device", "devices are cpu, cuda:N, and declared targets, \"@t4\"")
                        break
                else:
                    if to is not None:
                        out[key] = to
        return out

    def _precision(self, node: Any) -> dict[str, dict[str, str]]:
        out: dict[str, dict[str, str]] = {}
        if self._is(node, "mapping", "'precision'"):
            for key, value in self._entries(node, None, "'precision'"):
                arch = parse_arch(key)
                if arch is None or arch.kind == "reference":
                    said = "the reference computes what is written" if arch is not None else f"there is no target '{key}'"
                    self._fault(value, f"a policy is for a target, and {said}", did_you_mean(key, [a for a in known_archs() if a != "reference"]))
                elif self._is(value, "mapping", "a policy"):
                    out[key] = self._policy(value, arch)
                    self.places[key] = str(self._span(value))
                    self.labels[key] = {k.value: self._span(k) for k, _ in value.value if k.value not in POLICY_KEYS}
        return out

    def _policy(self, node: Any, arch: Arch) -> dict[str, str]:
        """One policy, key by key and then as a whole: what it says against itself is told as of a clause of a program."""
        mixed = any(k.value == "precision" and v.value == "mixed" for k, v in node.value)
        out: dict[str, str] = {}
        settings: list[Setting] = []
        good = True
        for key, value in self._entries(node, None if mixed else POLICY_KEYS, "a policy"):
            text = self._policy_value(key, value)
            clause = read_clause(f"{arch} {{ {key} = {text} }}") if text is not None else None
            if text is not None and (clause is None or not clause.settings):
                self._fault(value, f"'{text}' is no value of '{key}'", _EXAMPLES.get(key, f"write '{key}: i8'"))
            elif text is not None and clause is not None and clause.settings:
                out[key] = text
                settings.append(replace(clause.settings[0], span=self._span(value), key_span=self._span(value)))
                continue
            good = False
        if good:
            found = Report()
            for s in check_clause(settings, arch, found).dtypes:
                check_dtype_word(s, found)
            for d in found.diagnostics:
                if d.severity == "error":
                    # What follows from one key is told at its value: a value inside has no place of its own.
                    self._fault(d.span if d.span.source is self.source else node, d.message, d.help and d.help.replace(" = ", ": "))
        return out

    def _policy_value(self, key: str, node: Any) -> str | None:
        """What a key of a policy says, as PLIR writes it."""
        if key in ("block", "library") and node.id == "sequence":
            items = [self._policy_value(key, item) for item in node.value]
            return None if None in items else f"[{', '.join(str(i) for i in items)}]"
        text = self._text(node, f"'{key}'")
        fault = self._policy_fault(key, text) if text is not None else None
        if fault is not None:
            self._fault(node, *fault)
            return None
        return repr(float(text)) if text is not None and key == "budget" else text

    @staticmethod
    def _policy_fault(key: str, text: str) -> tuple[str, str] | None:
        if key in ("budget", "block"):
            try:
                good = float(text) > 0 if key == "budget" else int(text) > 0
            except ValueError:
                good = False
            return None if good else (f"'{key}' is a positive {'number' if key == 'budget' else 'integer'}, not '{text}'", _EXAMPLES[key])
        if key == "granularity":
            return None
        words: tuple[str, ...] = {
            "precision": ("mixed",), "library": tuple(LIBRARIES), "weights": WEIGHTS, "scheme": tuple(SCHEMES), "ranges": tuple(RANGES),
            "force": ("true", "false")}.get(key, (*DTYPES, "i4"))
        return None if text in words else (f"'{text}' is none of {', '.join(words)}", did_you_mean(text, words) or f"write '{key}: {words[0]}'")

    def _cache(self, node: Any) -> str | None:
        text = self._text(node, "'cache'")
        return text if text is None or text == "off" else self._beside(text)

    def _builds(self, node: Any) -> tuple[Build, ...]:
        return self._list(node, "'build'", self._build)

    def _build(self, node: Any) -> Build | None:
        if not self._is(node, "mapping", "an entry of 'build'"):
            return None
        values: dict[str, Any] = {}
        for key, value in self._entries(node, BUILD_KEYS, "an entry of 'build'"):
            values[key] = self._targets(value) if key == "targets" else self._text(value, f"'{key}'")
            if key == "program" and values[key] is not None and not os.path.isfile(self._beside(values[key])):
                self._fault(value, f"there is no file '{values[key]}' beside the project file")
        if "program" not in values:
            self._fault(node, "an entry of 'build' names its 'program'", "write '- program: edge.plir'")
        if values.get("program") is None:
            return None
        paths = {key: self._beside(values[key]) for key in ("program", "output") if values.get(key) is not None}
        return Build(**{**{k: v for k, v in values.items() if v is not None}, **paths})
