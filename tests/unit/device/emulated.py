"""Kernels of a `FakeDriver` that run on the processor: NVRTC's place is taken by the host's compiler, a cubin is the text itself."""
from __future__ import annotations

import re
from typing import Any

import pytest

from pipelink_ir.backends.cuda import compile as compiling
from pipelink_ir.backends.cuda import nvrtc
from pipelink_ir.backends.cuda.emulate.library import Library, Region, Text, compile_text
from pipelink_ir.backends.cuda.emulate.toolchain import available
from tests.unit.device.fake import FakeDriver, Launch

_NAMES = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\)+\s+)?(\w+)\(([^)]*)\)')

COMPILED: list[tuple[str, bool]] = []
"""For what texts were compiled, and whether to PTX for a newer device."""


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on "compiling" keeps the text. Skips the test where there is no compiler for the processor."""
    if not available():
        pytest.skip("needs a C++ compiler: g++ or clang++, or `pip install ziglang`")

    def units(units: Any, arch: Any, wide: bool = False, quick: bool = False, virtual: bool = False) -> list[nvrtc.Binary]:
        COMPILED.append((str(arch), virtual))
        return [_binary(arch, u.text, wide) for u in units]

    COMPILED.clear()
    monkeypatch.setattr(compiling, "compile_units", units)
    monkeypatch.setattr(compiling, "compile_user", lambda user, arch, virtual=False: _binary(arch, user.text, False))


def _binary(arch: Any, text: str, wide: bool) -> nvrtc.Binary:
    return nvrtc.Binary(str(arch), (b"w" if wide else b"n") + text.encode(), "", "", {})


class EmulatingDriver(FakeDriver):
    """A device that runs kernels on the processor. Of what a kernel touches it is known only which buffers it is given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.libraries: dict[int, Library] = {}
        self.pointers: dict[str, list[tuple[int, bool]]] = {}
        self.runner = self._run
        self.accesses = self._accesses

    def load(self, device: int, image: bytes) -> int:
        module = super().load(device, image)
        text = image[1:].decode()
        found = _NAMES.findall(text)
        self.arity |= {name: len(parameters.split(",")) for name, parameters in found}
        self.pointers |= {name: [(n, not p.strip().startswith("const")) for n, p in enumerate(parameters.split(",")) if "*" in p] for name, parameters in found}
        self.libraries[module] = compile_text(Text(text, tuple(name for name, _ in found), "kernels.cu", image[:1] == b"w"))
        return module

    def _accesses(self, launch: Launch) -> list[tuple[int, int, bool]]:
        """The first byte of every buffer: enough to see in which order they are used."""
        return [(launch.words[n], 1, write) for n, write in self.pointers[launch.name] if launch.words[n]]

    def _run(self, launch: Launch) -> None:
        regions = [Region(f"memory {m.address:#x}", m.address, m.size, 1, True, False) for m in self.memory.values()]
        self.libraries[launch.module].launch(launch.name, launch.grid, launch.block, launch.shared, launch.slots, regions)
