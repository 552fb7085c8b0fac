"""How long until something happens: `pipelinkc --help`; parsing and all passes for a generated pipeline of 10,000 nodes; growth with its size; and
cold and warm `pipelinkc run` of edge_gamma on a frame of 1920 x 1080."""
from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import ROOT, Row, empty_cache, pipelinkc, report, time_command

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module
from pipelink_ir.passes.manager import parse_passes, run_passes

OPERATORS = """
op @affine(%x: tensor<HxWxf32>, by: f32 = 1.0, add: f32 = 0.0) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = by * %x[h, w] + add } }
op @plus(%a: tensor<...xT>, %b: tensor<...xT>) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = %a[...] + %b[...] } }
op @blur(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  memory  { border = replicate }
  compute { %y[h, w] = (%x[h, w - 1] + 2 * %x[h, w] + %x[h, w + 1]) / 4 }
}
"""


def generated(nodes: int) -> str:
    """A pipeline of so many nodes: each reads one or two of the last eight."""
    lines, last = [OPERATORS, "pipeline @main(%x: tensor<HxWxf32>) -> (%out: tensor<HxWxf32>) {"], ["x"]
    for i in range(nodes):
        name = "out" if i == nodes - 1 else f"n{i}"
        a, b = last[-1], last[-min(len(last), 2 + i % 7)]
        lines.append(("  %{n} = @affine(%{a}) {{by = {f}, add = 0.5}}", "  %{n} = @plus(%{a}, %{b})", "  %{n} = @blur(%{a})")[i % 3]
                     .format(n=name, a=a, b=b, f=(0.5, 0.25, 1.5)[i % 9 // 3]))
        last.append(name)
    return "\n".join([*lines, "}", ""])


def compile_rows(nodes: int) -> list[Row]:
    """Parsing and each pass of `cpu` on a generated pipeline."""
    text = generated(nodes)
    start = time.perf_counter()
    module = parse(text, "generated.plir")
    rows = [Row(f"parse {nodes} nodes", [1000 * (time.perf_counter() - start)], {"KiB": len(text) // 1024})]
    steps: dict[str, float] = {}
    total = time.perf_counter()

    def clock(step: object, before: Module, after: object) -> None:
        now = time.perf_counter()
        if after is not None:
            steps[str(step)] = 1000 * (now - clock.start)  # type: ignore[attr-defined]
        clock.start = time.perf_counter()  # type: ignore[attr-defined]

    clock.start = total  # type: ignore[attr-defined]
    run_passes(module, parse_passes("cpu"), Report(), [clock])
    rows.append(Row(f"all passes, {nodes} nodes", [1000 * (time.perf_counter() - total)],
                    {name: f"{ms:.0f} ms" for name, ms in steps.items() if name != "input"}))
    return rows


def command_row(nodes: int) -> Row:
    """The whole command on a generated file: start, parse, passes, the verifier between them, print."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "generated.plir"
        program.write_text(generated(nodes), encoding="utf-8")
        return Row(f"pipelinkc FILE, {nodes} nodes", time_command([pipelinkc(), str(program), "-o", f"{folder}/out.plir"], 2))


def run_rows() -> list[Row]:
    """The command on a frame of 1080p, with empty caches and with full ones."""
    program = ROOT / "tests" / "cases" / "edge_gamma.plir"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        frame = Path(folder) / "frame.npy"
        np.save(frame, np.random.default_rng(0).random((1, 1080, 1920, 3), np.float32))
        command = [pipelinkc(), "run", str(program), "--in", f"img={frame}", "--out", f"out={folder}/out.npy"]
        cold = []
        for _ in range(3):
            with empty_cache() as env:
                cold += time_command(command, 1, env)
        rows.append(Row("pipelinkc run edge_gamma 1080p, cold", cold))
        with empty_cache() as env:
            time_command(command, 1, env)
            rows.append(Row("pipelinkc run edge_gamma 1080p, warm", time_command(command, 5, env)))
    return rows


def main() -> int:
    rows = [Row("pipelinkc --help", time_command([pipelinkc(), "--help"], 15)), Row("python -c pass", time_command([sys.executable, "-c", "pass"], 15))]
    run_passes(parse(generated(10), "warm-up"), parse_passes("cpu"), Report())  # imports, the grammar
    for nodes in (1000, 10000):
        rows += [*compile_rows(nodes), command_row(nodes)]
    rows += run_rows()
    report("startup", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
