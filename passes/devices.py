"""Which device a program asks for, and which one a target has. A target has one device for now: what asks for another one is folded onto it, and says so."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pipelink_ir.ir import contracts
from pipelink_ir.ir.nodes import Device, Module
from pipelink_ir.ir.targets import Arch, arch_of_target, parse_arch

_CUDA = re.compile(r"cuda(?::(\d+))?")


def is_device(text: str) -> bool:
    """Whether a text is a device as it is written behind `on`."""
    return re.fullmatch(r"cpu|cuda:\d+|@\w+", text) is not None


def device_text(device: Device) -> str:
    """The device as it is written behind `on`."""
    return f"@{device.name}" if device.kind == "target" else f"cuda:{device.index}" if device.kind == "cuda" else device.kind


def device_of(target: str) -> str:
    """The device of a target: `cpu`, or `cuda:N`. Texts for an architecture and the emulated GPU have the first GPU."""
    if target in ("cpu", "reference"):
        return "cpu"
    found = _CUDA.fullmatch(target)
    return f"cuda:{int(found[1] or 0)}" if found is not None else "cuda:0"


def declared_archs(module: Module) -> dict[str, Arch]:
    """The architectures of the targets that a program declares."""
    out: dict[str, Arch] = {}
    for t in module.targets:
        for s in t.settings:
            arch = parse_arch(contracts.describe(s.value).strip('"')) if s.key == "arch" else None
            if arch is not None:
                out[t.name] = arch
    return out


def has(target: str, device: Device, archs: Mapping[str, Arch]) -> bool:
    """Whether a target has the device that a program asks for."""
    if device.kind != "target":
        return device_text(device) == device_of(target)
    arch = archs.get(device.name or "")
    if arch is None:
        return False
    # A GPU that is only called by its number may be of any architecture: which one the program may not know.
    return arch.kind != "cuda" if device_of(target) == "cpu" else arch == arch_of_target(target)


def parse_map(entries: Iterable[str]) -> dict[str, str]:
    """`cuda:1=cuda:0` as a table."""
    return {a.strip(): b.strip() for a, _, b in (e.partition("=") for e in entries)}


def mapped(device: Device, table: Mapping[str, str]) -> Device:
    """The device that stands for one, if any does."""
    text = table.get(device_text(device))
    if text is None:
        return device
    found = _CUDA.fullmatch(text)
    if text.startswith("@"):
        return Device("target", 0, text[1:], span=device.span)
    return Device("cuda", int(found[1] or 0), span=device.span) if found is not None else Device(text, span=device.span)


def folded(asked: Device, target: str) -> str:
    """Why something runs elsewhere, for the ledger."""
    where = "the CPU" if device_of(target) == "cpu" else device_of(target)
    return f"asked for {device_text(asked)}, runs on {where}: a pipeline runs on one device, that of the target '{target}'"
