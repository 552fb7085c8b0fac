"""The C++ compiler of the host, and how it is called."""
from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import UsageError

NAMES = ("c++", "g++", "clang++")
"""What a compiler is called, where CXX names none."""

COMMON = ("-std=c++17", "-fPIC", "-w", "-fno-exceptions", "-fno-sanitize=undefined", "-ffp-contract=off", "-fno-math-errno", "-fno-threadsafe-statics",
          "-DPIPELINK_EMULATED")
"""No contraction, as on the device. g++ guards the initialisation of `static` arrays of classes that need none."""

KERNELS = (*COMMON, "-O0", "-g1", "-fsanitize=thread", "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,bounds,float-cast-overflow")
"""Kernels run once, on small arrays: what counts is how long they take to compile, a third as long at -O0. The sanitizers make every access call the
machine, which stands in for their run time."""

LINK = ("-shared", "-O2", "-fno-sanitize=undefined")
"""Without its sanitizers, which zig would link in by itself."""

MACHINE = (*COMMON, "-O2", "-fno-strict-aliasing")

INSTALL = "install g++ or clang++ (Debian, Ubuntu: apt install g++), name one in CXX, or pip install ziglang"


@dataclass(frozen=True, slots=True)
class Compiler:
    """A command, and what it says of itself."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: list[str], folder: Path) -> None:
        """Calls it; `CompileFailed` has what it says."""
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, errors="replace", cwd=folder, check=False)
        if done.returncode != 0:
            raise CompileFailed(done.stderr or done.stdout or f"{self.command[0]} fails with status {done.returncode}")


class CompileFailed(Exception):
    """The host's compiler refuses a text; `log` is what it says."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log

    @property
    def first(self) -> str:
        """The first error."""
        lines = [line.strip() for line in self.log.splitlines() if line.strip()]
        return next((line for line in lines if "error:" in line), lines[0] if lines else "no message")


def compiler() -> Compiler:
    """The compiler that CXX names, else the first on the path, else the one of the wheel `ziglang`."""
    found = _find(environment.cxx())
    if found is None:
        raise UsageError(f"playing a GPU on the processor needs a C++ compiler, and there is none: {INSTALL}")
    return found


@cache
def _find(named: tuple[str, ...] | None) -> Compiler | None:
    candidates: list[tuple[str, ...]] = [named] if named else [(path,) for name in NAMES if (path := shutil.which(name))]
    if not named and find_spec("ziglang") is not None:
        candidates.append((sys.executable, "-m", "ziglang", "c++"))
    for command in candidates:
        try:
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise UsageError(f"CXX names '{' '.join(command)}', which cannot be called: {error.strerror}") from None
        if done.returncode == 0:
            return Compiler(command, done.stdout.strip())
    return None


def available() -> bool:
    """Whether there is a compiler."""
    try:
        compiler()
    except UsageError:
        return False
    return sys.platform.startswith("linux") and sys.maxsize > 1 << 32
