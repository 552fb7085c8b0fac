"""What `PIPELINK_LOG_LEVEL=debug` prints: each array of a call beside the contract that it is matched with. On standard error, a few lines an array."""
from __future__ import annotations

import sys
from typing import Any

from pipelink_ir.ir import environment
from pipelink_ir.ir.nodes import Operand, Pipeline
from pipelink_ir.runtime.forms import describe
from pipelink_ir.runtime.matching import Matching, type_text
from pipelink_ir.runtime.tensor import TensorView


def wanted() -> bool:
    """Whether matching is to be told."""
    return environment.log_level() == "debug"


def tell(pipeline: Pipeline, matching: Matching) -> None:
    """Print one call; an array that was refused is told as far as it could be read."""
    for operand in pipeline.inputs:
        print(text(operand, matching), file=sys.stderr)


def text(operand: Operand, matching: Matching) -> str:
    """The two sides of one input."""
    demand, view = matching.demands[operand.name], matching.views.get(operand.name)
    asks = [f"'{demand.contiguity.word}' asked by '@{demand.contiguity.operator}' ({demand.contiguity.span})"] if demand.contiguity else []
    asks += [f"{a.word} by '@{a.operator}' ({a.span})" for a in demand.layouts]
    refused = [d for d in matching.report.diagnostics if d.span is operand.span]
    verdict = f"refused: {refused[0].message}" if refused else "fits" if view is not None else "not given"
    given: Any = matching.given.get(operand.name)
    made = f", made at {given.made}" if isinstance(given, TensorView) and given.made is not None else ""
    return "\n".join([
        f"pipelink: debug: '@{matching.pipeline.name}' %{operand.name}: {type_text(operand)}" + (f"; {', '.join(asks)}" if asks else ""),
        f"pipelink: debug:   given {_view_text(view) if view is not None else type(given).__name__}{made}: {verdict}"])


def _view_text(view: TensorView) -> str:
    layout = f" {view.layout}" if view.layout else ""
    pitch = f" with a pitch of {view.pitch} bytes" if view.contiguity == "rows" else ""
    return (f"{describe(view.dtype, view.shape)}{layout} on {view.device}, strides {list(view.byte_strides)} bytes, at {view.address:#x} "
            f"(aligned to {view.alignment}), {view.contiguity}{pitch}")
