"""Programs as text, run by the reference backend after `resolve` and `infer-types` alone."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.reference.executable import ReferenceExecutable, load
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.passes import infer_types, resolve


def compiled(text: str, *, float64: bool = False) -> ReferenceExecutable:
    """The first pipeline of a program."""
    report = Report()
    module = resolve.resolve(parse(text, "test.plir"), resolve.Options(), report)
    report.stop_if_failed()
    module = infer_types.infer_types(module, infer_types.Options(), report)
    report.stop_if_failed()
    return load(module, module.pipelines[0].name, float64=float64)


def run_text(text: str, *, float64: bool = False, **arrays: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Its results; inputs may be lists, attributes numbers."""
    program = compiled(text, float64=float64)
    dtypes = {i.name: DTYPES[i.type.dtype].numpy() for i in program.pipeline.inputs}
    return program({name: np.asarray(a, dtypes[name]) if name in dtypes else a for name, a in arrays.items()})


@pytest.fixture
def run() -> Callable[..., dict[str, np.ndarray[Any, Any]]]:
    return run_text


@pytest.fixture
def compile_text() -> Callable[..., ReferenceExecutable]:
    return compiled


def one_op(signature: str, body: str, *, sections: str = "", pipeline: str | None = None) -> str:
    """A program of one operator `@f` and a pipeline that calls it with the same signature."""
    inputs, results = signature.split("->")
    names = ", ".join(p.split(":")[0].strip() for p in _split(inputs.strip()[1:-1]) if p.strip().startswith("%"))
    outs = ", ".join(p.split(":")[0].strip() for p in _split(results.strip()[1:-1]))
    return f"op @f{signature} {{ {sections} compute {{\n{body}\n}} }}\npipeline @p{pipeline or signature} {{ {outs} = @f({names}) }}"


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "(<") - (c in ")>")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p for p in parts if p.strip()]


@pytest.fixture
def run_op() -> Callable[..., Any]:
    """`run_op(signature, body, sections=…, x=…)`: the results of one operator, the array itself if there is one."""
    def call(signature: str, body: str, *, sections: str = "", float64: bool = False, **arrays: Any) -> Any:
        results = run_text(one_op(signature, body, sections=sections), float64=float64, **arrays)
        return next(iter(results.values())) if len(results) == 1 else results
    return call
