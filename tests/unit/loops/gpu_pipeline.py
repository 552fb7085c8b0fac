"""Whole pipelines on kernels for a GPU, run by the interpreter of these tests: the reference executable with operators built by `build_gpu`."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.reference.executable import ReferenceExecutable
from pipelink_ir.ir import scalar
from pipelink_ir.ir.diagnostics import Diagnostic, ExecutionError
from pipelink_ir.ir.nodes import Module, Operator
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.infer.generic import name_dynamic
from pipelink_ir.passes.infer.operator import typed_operator
from tests.unit.loops.interpreter import Failed, run

_PROGRAMS: dict[int, tuple[TypedOperator, form.Program]] = {}


class OnGpu:
    """One call of one operator."""

    def __init__(self, typed: TypedOperator, dims: Mapping[str, int], scalars: Mapping[str, Any], operands: Mapping[str, Any], wide: bool) -> None:
        self.typed, self.dims, self.scalars, self.operands = typed, dims, scalars, operands
        assert not wide

    def run(self) -> dict[str, Any]:
        if id(self.typed) not in _PROGRAMS:
            _PROGRAMS[id(self.typed)] = self.typed, build_gpu(self.typed)
        program = _PROGRAMS[id(self.typed)][1]
        arrays = {t.name: np.asarray(scalar.array_to_storage(np.asarray(self.operands[t.name]), t.dtype, t.dtype.compute)) for t in self.typed.operands}
        try:
            out = run(program, arrays, dict(self.dims), {n: np.asarray(v)[()] for n, v in self.scalars.items()})
        except Failed as fault:
            raise ExecutionError([Diagnostic("PL6101", "error", str(fault), self.typed.op.span)]) from None
        return {t.name: scalar.array_from_storage(out[t.name], t.dtype) for t in self.typed.results}


class GpuExecutable(ReferenceExecutable):
    interpreter = OnGpu  # type: ignore[assignment]


def load(module: Module, name: str) -> GpuExecutable:
    """A pipeline of a module after `infer-types`."""
    return GpuExecutable(module, name, lambda op: typed_operator(named(op)))


def named(op: Operator) -> Operator:
    """A kernel knows sizes by name, those of `?` too."""
    params, names = name_dynamic(op.params, set())
    return replace(op, params=params) if names else op
