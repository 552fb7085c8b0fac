"""What looks on between passes: verification, timing, printing, dumping, crash files. Each is a `Hook` of `passes/manager.py`.

What is printed goes to standard error, what is dumped into files; standard output is never touched.
"""
from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from pipelink_ir.ir.diagnostics import InternalError, UsageError
from pipelink_ir.ir.nodes import Import, Module
from pipelink_ir.passes.manager import INPUT, Step, describe_error, find_pass

CRASH_FILE = "pipelinkc-crash.plir"
"""Written in the current directory, and the only file that a crash writes."""


@dataclass(slots=True)
class VerifyEach:
    """Runs the verifier on the input and after each pass. What it finds is a fault of ours: an `InternalError`."""

    stage: str = "parse"

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if not isinstance(after, Module):
            return
        from pipelink_ir.passes.verify import STAGES, verify
        self.stage = "parse" if step is INPUT else step.name if step.name in STAGES else self.stage
        if after is before and step is not INPUT and step.name not in STAGES:
            return
        findings = verify(after, self.stage)
        if findings:
            what = "the input" if step is INPUT else f"the result of '{step.name}'"
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            raise InternalError(f"{what} does not verify: {findings[0]}{more}")


@dataclass(slots=True)
class TimePasses:
    """Measures each pass. Put it first in the list of hooks, so that nothing else is counted."""

    times: list[tuple[str, float]] = field(default_factory=list)
    _start: float = 0.0

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if step is INPUT:
            return
        if after is None:
            self._start = time.perf_counter()
        else:
            self.times.append((step.name, time.perf_counter() - self._start))

    def text(self) -> str:
        """The table: milliseconds, share, pass."""
        total = sum(t for _, t in self.times)
        rows = [f"{1000 * t:>10.2f} ms  {100 * t / (total or 1):>5.1f} %  {name}" for name, t in self.times]
        return "\n".join([*rows, f"{1000 * total:>10.2f} ms  100.0 %  total"])

    def show(self, stream: TextIO | None = None) -> None:
        """Print the table to standard error."""
        print(self.text(), file=stream or sys.stderr)


@dataclass(slots=True)
class PrintIR:
    """Prints the module before or after the passes named, after all, or after those that changed it."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_all: bool = False
    after_change: bool = False
    stream: TextIO | None = None
    """Standard error if None."""

    def __post_init__(self) -> None:
        for flag, names in (("--print-ir-before", self.before), ("--print-ir-after", self.after)):
            for name in names:
                find_pass(name, f"{flag}: ")

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if step is INPUT or isinstance(after, Exception):
            return
        if after is None:
            if step.name in self.before:
                self._print("Before", step, before)
        elif self.after_all or step.name in self.after or (self.after_change and after is not before and after != before):
            self._print("After", step, after)

    def _print(self, when: str, step: Step, module: Module) -> None:
        stream = self.stream or sys.stderr
        stream.write(f"// -----// IR Dump {when} {step.name} //----- //\n{_text(module)}\n")


@dataclass(slots=True)
class DumpDir:
    """Writes the module after every pass into a folder: `00.input.plir`, `01.resolve.plir`, …"""

    folder: Path
    count: int = 0

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if isinstance(after, Module):
            self.write(f"{step.name}.plir", _text(anchored(after) if step is INPUT else after))

    def write(self, name: str, text: str | bytes) -> Path:
        """Write the next file; backends add theirs (`kernel.ll`) through this too."""
        path = Path(self.folder) / f"{self.count:02}.{name}"
        self.count += 1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        except OSError as error:
            raise UsageError(f"--dump-dir: cannot write '{path}': {error.strerror}") from error
        return path


@dataclass(slots=True)
class CrashFile:
    """On a fault of ours, leaves the module that the pass was given in `pipelinkc-crash.plir` with the command that reproduces it, then raises the
    `InternalError`. Put it last in the list of hooks."""

    flags: tuple[str, ...] = ()
    """Further arguments of the command that matter to the pass, `--target sm_75`."""

    def __call__(self, step: Step, before: Module, after: Module | Exception | None) -> None:
        if not isinstance(after, Exception):
            return
        command = " ".join(["pipelinkc", CRASH_FILE, "-p", shlex.quote(str(step)), *map(shlex.quote, self.flags)])
        error = describe_error(after)
        head = [f"// pipelinkc failed in the pass '{step.name}'. This is the program that the pass was given.",
                *(f"//   {line}" for line in error.splitlines()), f"// To reproduce: {command}"]
        written = write_crash("\n".join(head) + "\n", before)
        raise InternalError(f"in the pass '{step.name}': {error}{written}") from after


def write_crash(head: str, module: Module) -> str:
    """Write the file and say so; a second failure is told in words, it must not hide the first."""
    temporary = f".{CRASH_FILE}.{os.getpid()}"
    try:
        try:
            body = _text(anchored(module))
        except Exception as error:  # the printer itself may be what fails
            body = f"// the program cannot be printed: {type(error).__name__}: {' '.join(str(error).split())}\n"
        try:
            with open(temporary, "x", encoding="utf-8") as out:
                out.write(head + body)
            os.replace(temporary, CRASH_FILE)
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)
    except OSError as error:
        return f"\n(no {CRASH_FILE}: {error.strerror or error})"
    return f"\nThe program that it was given and the command to reproduce this are in {CRASH_FILE}"


def anchored(module: Module) -> Module:
    """The module with its imports of files found from anywhere, for a dump that is read in another folder."""
    folder = os.path.dirname(os.path.abspath(module.path))

    def anchor(item: Import) -> Import:
        path = os.path.join(folder, item.file or "")
        return replace(item, file=path) if item.file and not os.path.isabs(item.file) and os.path.isfile(path) else item

    if not module.imports:
        return module
    return replace(module, items=tuple(anchor(i) if isinstance(i, Import) else i for i in module.items))


def _text(module: Module) -> str:
    from pipelink_ir.grammar import print_module
    return print_module(module)


def split_names(text: str) -> tuple[str, ...]:
    """The names in `a,b`, for `--print-ir-after=a,b`."""
    return tuple(n.strip() for n in text.split(",") if n.strip())
