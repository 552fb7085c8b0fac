"""Run a pipeline in two ways on the same data, and tell how far each edge is apart, in the order of the graph.

A way is a target, and what else differs, 'target=sm_75,calibration=off': on=WHERE (where it runs, if not on the target: on=cpu), file=FILE (another program
with edges of the same names), lower=off (no policy is carried out), calibration=FILE|off, float64=off (the reference computes in f64 by default). An
architecture runs on the GPU of this machine if that can run its code, else the processor plays it (cuda-emulated:sm_75). Budgets refuse nothing here.

max is the largest difference, error that over the largest magnitude of the first way (as budgets count), rms the root mean square of differences, PSNR has the
range of the first way as its peak. '<- first' marks where the error first exceeds the threshold, '<- jump' the node that adds most.
"""
from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from pipelink_ir.cli import console
from pipelink_ir.cli.data_options import add_data_options, samples_of, say_passed_over
from pipelink_ir.cli.pipeline_options import add_pipeline_options, attributes
from pipelink_ir.cli.tables import add_format_option, count, finite, progress, table

if TYPE_CHECKING:
    from pipelink_ir.runtime.calibration.comparing import Compared
    from pipelink_ir.runtime.calibration.differences import Difference
    from pipelink_ir.runtime.project import Project


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .plir file, '-' for standard input")
    parser.add_argument("--a", metavar="WAY", default="target=reference", help="the first way (default target=reference, in float64)")
    parser.add_argument("--b", metavar="WAY", required=True, help="the second way, 'target=sm_75'")
    add_data_options(parser)
    parser.add_argument("--threshold", metavar="X", type=float, default=0.01, help="the error from which on precision counts as lost (default 0.01)")
    add_pipeline_options(parser)
    add_format_option(parser)


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.project import find_project
    project = find_project(args.file)
    with project.environment():
        return _execute(args, project)


def _execute(args: argparse.Namespace, project: Project) -> int:
    from pipelink_ir.runtime.calibration.comparing import Comparison, parse_side
    from pipelink_ir.runtime.compile import Settings
    from pipelink_ir.runtime.sources import STDIN_PATHS, read_program
    a, b, samples = parse_side(args.a, "--a"), parse_side(args.b, "--b"), samples_of(args)
    path = None if args.file in STDIN_PATHS else args.file
    job = Comparison(read_program(args.file), path, args.pipeline, attributes(args), Settings(project.copies or "refuse", project=project), a, b,
                     args.threshold)
    with progress("compiling") as job.watch:
        found = job.run(samples)
    say_passed_over(samples)
    print(json.dumps(as_json(found), indent=1)) if args.format == "json" else show(found)
    return 0


def as_json(found: Compared) -> dict[str, Any]:
    """Plain data; what is not finite is null."""
    def edge(name: str, operator: str, label: str | None, d: Difference, gain: float) -> dict[str, Any]:
        return {"edge": name, "operator": operator, "label": label, "max": finite(d.worst), "error": finite(d.error), "rms": finite(d.rms),
                "psnr": finite(d.psnr), "cosine": finite(d.cosine), "gain": finite(gain), "lost": d.lost, "elements": d.count}
    edges = [edge(e.edge, e.operator, e.label, e.apart, e.gain) for e in found.edges]
    return {"a": found.a, "b": found.b, "pipeline": found.pipeline, "samples": found.samples, "threshold": found.threshold, "first": found.first,
            "jump": found.jump, "edges": edges, "alone": list(found.alone)}


def show(found: Compared) -> None:
    """The table, and what it comes to."""
    print(f"@{found.pipeline}: {found.a} beside {found.b}, {count(found.samples)}")
    rows = []
    for e in found.edges:
        d = e.apart
        marks = [w for w, edge in (("<- first", found.first), ("<- jump", found.jump)) if edge == e.edge] + [f"{d.lost} not finite in one"] * bool(d.lost)
        rows.append((f"%{e.edge}", f"@{e.operator}", e.label or "", f"{d.worst:.3g}", f"{d.error:.3g}", f"{d.rms:.3g}", f"{d.psnr:.1f}", f"{d.cosine:.6f}",
                     " ".join(marks)))
    table(("edge", "operator", "label", "max", "error", "rms", "PSNR", "cosine", ""), rows, 3)
    by = {e.edge: e for e in found.edges}
    if found.first is None:
        print(f"no error exceeds {found.threshold:g}" + (f"; the largest part comes in at {_named(by[found.jump])}" if found.jump else ""))
    else:
        print(f"the error first exceeds {found.threshold:g} at {_named(by[found.first])}")
        if found.jump is not None and found.jump != found.first:
            print(f"the largest part of it comes in at {_named(by[found.jump])}: {by[found.jump].gain:.3g} more than before it")
    if found.alone:
        console.say(f"pipelinkc: edges of one way only: {', '.join('%' + e for e in found.alone)}")


def _named(e: Any) -> str:
    return f"%{e.edge}, made by @{e.operator}" + (f" as {e.label}" if e.label else "")
