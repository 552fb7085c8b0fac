"""Two mistakes are two findings: what is wrong in one place hides nothing that is wrong elsewhere, and what merely follows is not told."""
from __future__ import annotations

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.passes.manager import parse_passes, run_passes

GOOD = "op @f(%x: tensor<Nxf16>) -> (%y: tensor<Nxf16>) { compute { %y[n] = %x[n] } }\n"


def findings(text: str) -> list[tuple[str, int]]:
    """(field, line) of every error."""
    report = Report()
    try:
        run_passes(parse(text, "t.plir"), parse_passes("validate"), report)
    except ProgramError as error:
        return [(d.field, d.span.line) for d in error.diagnostics]
    return [(d.field, d.span.line) for d in report.diagnostics]


PROGRAMS = {
    "two pipelines": (
        GOOD + "pipeline @a(%x: tensor<Nxf32>) -> (%y: tensor<Nxf16>) { %y = @f(%x) }\npipeline @b(%x: tensor<Nxf64>) -> (%y: tensor<Nxf16>) { %y = @f(%x) }\n",
        [("dtype", 2), ("dtype", 3)]),
    "two nodes": (
        GOOD + "pipeline @a(%x: tensor<Nxf32>) -> (%y: tensor<Nxf16>, %z: tensor<Nxf16>) {\n  %y = @f(%x)\n  %z = @f(%x)\n}\n", [("dtype", 3), ("dtype", 4)]),
    "what follows from a node": (
        GOOD + "pipeline @a(%x: tensor<Nxf32>) -> (%y: tensor<Nxf16>) {\n  %h = @f(%x)\n  %k = @f(%h)\n  %y = @f(%k)\n}\n", [("dtype", 3)]),
    "an operator, and a pipeline beside it": (
        GOOD + "op @g(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n + 1] } }\n"
        "pipeline @a(%x: tensor<Nxf32>) -> (%y: tensor<Nxf16>, %z: tensor<Nxf32>) {\n  %z = @g(%x)\n  %y = @f(%x)\n}\n", [("bounds", 2), ("dtype", 5)]),
    "an operator, and graphs made of it": (
        "op @o(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { graph { %y = @i(%x) } }\n"
        "op @i(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { graph { %y = @g(%x) } }\n"
        "op @g(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n + 1] } }\n"
        "pipeline @a(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @o(%x) }\n", [("bounds", 3)]),
    "a graph, and graphs made of it, outer first": (
        GOOD + "op @o(%x: tensor<Nxf32>) -> (%y: tensor<Nxf16>) { graph { %y = @i(%x) } }\n"
        "op @i(%x: tensor<Nxf32>) -> (%y: tensor<Nxf16>) { graph { %y = @f(%x) } }\n"
        "pipeline @a(%x: tensor<Nxf32>) -> (%y: tensor<Nxf16>) { %y = @o(%x) }\n", [("dtype", 3)]),
    "two definitions": (
        "op @g(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxu8>) { compute {\n  %y[n] = %w[n]\n  %z[n] = %x[n]\n} }\n", [("name", 2), ("dtype", 3)]),
    "a local that is not understood, and its readers": (
        "op @g(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute {\n  %t[n, n] = %x[n]\n  %y[n] = %t[n, n]\n} }\n", [("duplicate", 2)]),
    "two contracts": (
        "op @g(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  memory { align = 3 }\n  execution { max_streams = 0 }\n  compute { %y[n] = %x[n] }\n}\n",
        [("align", 2), ("streams", 3)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_findings(name: str) -> None:
    text, want = PROGRAMS[name]
    assert findings(text) == want
