"""The target that plays a GPU on the processor, for tests that run on every backend; compiling many programs at once."""
from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from pipelink_ir.backends.cuda.emulate.toolchain import available
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.nodes import Module, Node, Operator
from pipelink_ir.runtime.compile import read

NEEDS_COMPILER = pytest.mark.skipif(not available(), reason="needs a C++ compiler: g++ or clang++, or `pip install ziglang`")

EMULATED = pytest.param("cuda-emulated", marks=NEEDS_COMPILER)
"""One more among the targets of a parametrised test."""


def lowered(module: Module) -> Module | None:
    """The module as the backend gets it; None if it is refused."""
    from pipelink_ir.passes.manager import parse_passes, run_passes
    try:
        return run_passes(module, parse_passes("cuda"), Report())
    except ProgramError:
        return None


def operators_of(module: Module) -> list[Operator]:
    """What the pipelines of a lowered module call."""
    called = {node.op for p in module.pipelines for node in p.nodes if isinstance(node, Node)}
    return [op for op in module.operators if op.name in called]


def prepared(programs: Mapping[str, str]) -> dict[str, Module]:
    """Programs by name, lowered, with their kernels compiled together."""
    modules = {name: lowered(read(text)) for name, text in programs.items()}
    assert [name for name, m in modules.items() if m is None] == []
    prepare(modules.values())
    return {name: m for name, m in modules.items() if m is not None}


def prepare(modules: Iterable[Module | None]) -> int:
    """Compile all kernels of lowered modules together: one by one they take ten times as long. The number of kernels."""
    from pipelink_ir.backends.cuda.emulate.kernels import units_of
    operators = [op for m in modules if m is not None for op in operators_of(m)]
    return sum(max(1, len(u.codes)) for u in units_of(operators))
