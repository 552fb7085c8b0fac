"""Targets by name: CUDA architectures, the CPU, the reference; and what an operator's `arch` asks of them."""
from __future__ import annotations

import re
from dataclasses import dataclass

from pipelink_ir.ir.diagnostics import did_you_mean
from pipelink_ir.ir.nodes import Expr, Items, Name, Text, Value

KNOWN_SM = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121)
"""Compute capabilities that have existed, as `sm_NN`."""

LIBRARIES = {
    "generated": "code that this compiler emits", "cublaslt": "matrix products of NVIDIA", "cudnn": "attention and convolution of NVIDIA",
    "nccl": "collectives of NVIDIA", "cusparselt": "sparse matrix products of NVIDIA", "cufft": "Fourier transforms of NVIDIA",
}
"""Libraries that `library` may name."""

CALLED = ("cublaslt",)
"""Those that are called."""

SINCE = {"cusparselt": 80}
"""Libraries that older devices do not have, with the first architecture that does."""

TOOLCHAINS = ("nvrtc", "nvcc", "hiprtc")

EMULATED = "cuda-emulated"
"""The target that plays a GPU on the processor; `cuda-emulated:sm_75` plays what is made for sm_75."""


@dataclass(frozen=True, slots=True)
class Arch:
    """A target: `kind` is `cuda`, `cpu` or `reference`; `sm` is 75 for sm_75."""

    kind: str
    sm: int = 0
    suffix: str = ""

    def __str__(self) -> str:
        return f"sm_{self.sm}{self.suffix}" if self.kind == "cuda" else self.kind


def parse_arch(name: str) -> Arch | None:
    """`sm_90`, `sm_90a`, `cpu`, `reference`; None for anything else, also for a number that no device has."""
    if name in ("cpu", "reference"):
        return Arch(name)
    m = re.fullmatch(r"sm_(\d+)([af]?)", name)
    return Arch("cuda", int(m[1]), m[2]) if m and int(m[1]) in KNOWN_SM else None


def arch_of_target(name: str) -> Arch | None:
    """The architecture that the name of a target says: of `sm_75`, `cuda-emulated:sm_75`, `cpu`. None for `cuda`, whose device says it."""
    found = parse_arch(name.removeprefix(f"{EMULATED}:"))
    return found if found is None or found.kind == "cuda" or name == found.kind else None


def known_archs() -> list[str]:
    """Names for messages."""
    return [*(f"sm_{n}" for n in KNOWN_SM if n >= 75), "cpu", "reference"]


def arch_help(name: str, but: str = "") -> str:
    """The help for a name that is no architecture: what is meant if that can be guessed, and all there are (`but` one that does not fit)."""
    known = [arch for arch in known_archs() if arch != but]
    listed = f"known are {', '.join(known)}"
    digits = re.search(r"(?:sm|compute|sm_|compute_)?_?([0-9OolI]{2,3})([af]?)\b", name)
    meant = f"sm_{digits[1].translate(str.maketrans('OolI', '0011'))}{digits[2]}" if digits else ""
    if meant != name and parse_arch(meant) is not None:
        return f"did you mean '{meant}'? {listed}"
    near = did_you_mean(name, known)
    return f"{near} {listed}" if near else listed


def lacks(arch: Arch, library: str) -> str | None:
    """Why a device does not have a library; None if it has."""
    if library == "generated" or library not in LIBRARIES:
        return None
    if arch.kind != "cuda":
        return f"'{library}' is for NVIDIA devices, {arch} does not have it"
    since = SINCE.get(library, 0)
    return f"'{library}' begins with sm_{since}, {arch} does not have it" if arch.sm < since else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One alternative of an `arch` key: an exact architecture, or all from one on."""

    compare: str
    arch: Arch

    def admits(self, target: Arch) -> bool:
        if target.kind != "cuda":
            return True
        match self.compare:
            case ">=":
                return target.sm >= self.arch.sm
            case ">":
                return target.sm > self.arch.sm
            case "<=":
                return target.sm <= self.arch.sm
            case "<":
                return target.sm < self.arch.sm
        return target.sm == self.arch.sm


def requirements(value: Value) -> list[Requirement] | None:
    """The alternatives of an `arch` value: `">= sm_80"`, `sm_90`, `[sm_80, sm_90]`; None if it is none of these."""
    if isinstance(value, Items):
        out: list[Requirement] = []
        for item in value.items:
            one = requirements(item)
            if one is None:
                return None
            out += one
        return out
    text = value.value if isinstance(value, Text) else value.name if isinstance(value, Name) else None
    if text is None or (isinstance(value, Expr) and not isinstance(value, Name)):
        return None
    m = re.fullmatch(r"\s*(>=|<=|>|<|==)?\s*(\w+)\s*", text)
    arch = parse_arch(m[2]) if m else None
    return [Requirement(m[1] or "==", arch)] if m and arch is not None else None
