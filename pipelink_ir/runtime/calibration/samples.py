"""The data that edges are measured on: sample after sample, read anew each time it is gone through, so that it need not fit into memory.

From files: each file of arrays by name is a sample, and so is each file that a pattern of one input matches (`img=photos/*.png`); what is said of an input
once (its weights) is there in every sample. From Python: a list of tables, or anything that can be gone through more than once.
"""
from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipelink_ir.ir.diagnostics import UsageError, did_you_mean
from pipelink_ir.runtime import files
from pipelink_ir.runtime.images import ImageOptions, split_options
from pipelink_ir.runtime.matching import signature
from pipelink_ir.runtime.runnable import Runnable
from pipelink_ir.runtime.samples import made_inputs
from pipelink_ir.runtime.sources import same_file
from pipelink_ir.runtime.transfer import Inputs

SUPPORTED = (*files.MANY, ".npy", *files.IMAGES)


@dataclass(frozen=True, slots=True)
class Sample:
    """One set of arrays by input, where each came from, and what the sample is called."""

    arrays: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)
    name: str = ""


class Samples(Protocol):
    """Some samples, which can be gone through again."""

    random: bool

    @property
    def size(self) -> int:
        """How many there are; -1 where only going through them tells."""
        ...

    def of(self, compiled: Runnable) -> Iterator[Sample]:
        """The samples for the inputs of a pipeline, one at a time."""
        ...


@dataclass(slots=True)
class Given:
    """Arrays of the caller's."""

    data: Iterable[Mapping[str, Any]]
    common: Mapping[str, Any] = field(default_factory=dict)
    random: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.data, Mapping | str | bytes) or not isinstance(self.data, Iterable):
            raise UsageError("data is a list of samples, each a table of arrays by input: data=[{'x': array}, …]")
        if isinstance(self.data, Iterator):
            raise UsageError("data is gone through more than once: give a list of samples, or an object whose '__iter__' begins anew, not a generator")
        if not isinstance(self.common, Mapping):
            raise UsageError(f"params is a table of arrays by input, not {type(self.common).__name__}")
        if self.size == 0:
            raise UsageError("there is no sample in data")

    @property
    def size(self) -> int:
        count = getattr(self.data, "__len__", None)
        return int(count()) if count is not None else -1

    def of(self, compiled: Runnable) -> Iterator[Sample]:
        any_there = False
        for k, one in enumerate(self.data):
            if not isinstance(one, Mapping):
                raise UsageError(f"a sample is a table of arrays by input, not {type(one).__name__}")
            names: tuple[object, ...] = (*self.common, *one)
            strange = [name for name in names if not isinstance(name, str)]
            if strange:
                raise UsageError(f"arrays are given by the names of inputs, not by {strange[0]!r}")
            any_there = True
            yield Sample({**self.common, **one}, name=f"sample {k}")
        if not any_there:
            raise UsageError("there is no sample in data")


@dataclass(slots=True)
class Made:
    """Random numbers, for trying things out: no ranges of real data."""

    count: int
    sizes: Mapping[str, int]
    seed: int = 0
    common: Inputs | None = None
    random: bool = True

    @property
    def size(self) -> int:
        return self.count

    def of(self, compiled: Runnable) -> Iterator[Sample]:
        given, origins = self.common.read(compiled) if self.common is not None else ({}, {})
        for k in range(self.count):
            yield Sample(made_inputs(compiled, given, self.sizes, self.seed + k), origins)


@dataclass(slots=True)
class Files:
    """Files that `--data`, `--inputs` and `--in` name."""

    data: Sequence[str]
    many: Sequence[str]
    one: Mapping[str, str]
    random: bool = False
    passed_over: dict[str, str] = field(default_factory=dict)
    """Arrays in the data that no input has the name of, with the file."""
    _patterns: dict[str, list[str]] = field(default_factory=dict)
    _paths: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # What is said of every sample may lie in the folder of the samples.
        common = [*self.many, *(split_options(t)[0] for t in self.one.values())]
        self._paths = [p for path in self.data for p in _expanded(path) if not os.path.isdir(path) or not any(same_file(p, c) for c in common)]
        for name, text in self.one.items():
            path, colon, options = text, "", ""
            bare, said = split_options(text)
            if said != ImageOptions():
                path, colon, options = bare, ":", text[len(bare) + 1:]
            if not glob.has_magic(path) or os.path.exists(path):
                continue
            found = sorted(glob.glob(path))
            if not found:
                raise UsageError(f"--in {name}: no file matches '{path}'")
            self._patterns[name] = [f"{f}{colon}{options}" for f in found]
        counts = {f"--in {name}": len(found) for name, found in self._patterns.items()} | ({"--data": len(self._paths)} if self._paths else {})
        if len(set(counts.values())) > 1:
            raise UsageError(f"these have different numbers of files: {', '.join(f'{k} {n}' for k, n in counts.items())}; a sample takes one of each")

    @property
    def size(self) -> int:
        return len(self._paths) or max((len(f) for f in self._patterns.values()), default=1 if self.many or self.one else 0)

    @property
    def paths(self) -> list[str]:
        """Every file that is read."""
        fixed = [t for n, t in self.one.items() if n not in self._patterns]
        return [*self._paths, *self.many, *fixed, *(p for found in self._patterns.values() for p in found)]

    def of(self, compiled: Runnable) -> Iterator[Sample]:
        names = [o.name for o in compiled.inputs]
        for name in self.one:
            if name not in names:
                raise UsageError(f"--in: '@{compiled.pipeline.name}' has no input '%{name}'; {did_you_mean(name, names, '%') or signature(compiled.pipeline)}")
        arrays, origins = Inputs(self.many, {n: t for n, t in self.one.items() if n not in self._patterns}).read(compiled)
        for k in range(self.size):
            more, where = Inputs((), {n: found[k] for n, found in self._patterns.items()}).read(compiled)
            if self._paths:
                found, there = self._file(self._paths[k], compiled, [n for n in names if n not in arrays and n not in more])
                more, where = {**found, **more}, {**there, **where}
            name = self._paths[k] if self._paths else next((found[k] for found in self._patterns.values()), "")
            yield Sample({**arrays, **more}, {**origins, **where}, name)

    def _file(self, path: str, compiled: Runnable, left: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The arrays of a file: by name, or of the only input that is left."""
        if files.extension(path) in files.MANY:
            arrays, origins = Inputs((path,), {}).read(compiled)
            known = {o.name for o in compiled.inputs}
            self.passed_over.update((n, path) for n in arrays if n not in known)
            return {n: a for n, a in arrays.items() if n in known}, origins
        open_inputs = [o.name for o in compiled.inputs if o.name in left and not o.param]
        if len(open_inputs) != 1:
            how = f"'--in NAME={os.path.dirname(path) or '.'}/*{files.extension(path)}' names it"
            raise UsageError(f"--data {path}: a file of one array is for a pipeline of one input that is not given otherwise; here there are "
                             f"{', '.join('%' + n for n in open_inputs) or 'none'}: {how}")
        return Inputs((), {open_inputs[0]: path}).read(compiled)


def _expanded(path: str) -> list[str]:
    """A file, or the files of a folder that are of one kind, in the order of their names."""
    if not os.path.isdir(path):
        if not os.path.exists(path) and not files.extension(path):
            raise UsageError(f"--data {path}: there is no such file or folder")
        return [path]
    found = sorted(os.path.join(path, n) for n in os.listdir(path) if not n.startswith(".") and files.extension(n) in SUPPORTED)
    named = [f for f in found if files.extension(f) in files.MANY]
    if not found:
        raise UsageError(f"--data {path}: there is no file of arrays in this folder ({', '.join(SUPPORTED)})")
    return named or found
