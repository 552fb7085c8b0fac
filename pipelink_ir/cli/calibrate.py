"""Measure the ranges of a pipeline's edges on data, for quantising, and write them beside the program, FILE.calibration.yaml.

The compiler finds the file by itself. Methods: minmax keeps all that was seen, percentile the part with so many percent of the values, mse the part with the
least squared error, entropy that with the least loss of information (TensorRT's). With --target, the plans that the program's policies lead to on these
architectures are run too, and their errors told beside the budgets: the largest difference from the program as it is, over its largest magnitude there.

Standard output has the table of edges and of errors. The exit status is 1 where a budget is breached (the file is written nevertheless).
"""
from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from pipelink_ir.cli import console
from pipelink_ir.cli.data_options import add_data_options, samples_of, say_passed_over
from pipelink_ir.cli.pipeline_options import add_pipeline_options, attributes
from pipelink_ir.cli.tables import add_format_option, count, finite, progress, table
from pipelink_ir.ir.diagnostics import UsageError

if TYPE_CHECKING:
    from pipelink_ir.runtime.calibration.measure import Calibrated
    from pipelink_ir.runtime.project import Project


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .plir file, '-' for standard input")
    add_data_options(parser)
    parser.add_argument("--method", metavar="METHOD", default="minmax", help="minmax (the default), percentile, mse or entropy")
    parser.add_argument("--percentile", metavar="P", type=float, help="with 'percentile': the share of values to keep (default 99.99)")
    parser.add_argument("--target", metavar="LIST", action="append", default=[], help="architectures whose plans are measured too, 'sm_75,sm_87'")
    parser.add_argument("--on", metavar="WHERE", help="where all of it runs: cuda, cuda:N, cpu, reference; the default is the best device present")
    parser.add_argument("-o", "--output", metavar="OUT", help="where ranges go, '-' is standard output, 'off' nowhere; by default FILE.calibration.yaml")
    add_pipeline_options(parser)
    add_format_option(parser)


def execute(args: argparse.Namespace) -> int:
    from pipelink_ir.runtime.project import find_project
    project = find_project(args.file)
    with project.environment():
        return _execute(args, project)


def _execute(args: argparse.Namespace, project: Project) -> int:
    from pipelink_ir.runtime.calibration import files
    from pipelink_ir.runtime.calibration.measure import Job
    from pipelink_ir.runtime.compile import Settings
    from pipelink_ir.runtime.output import STDOUT_PATHS
    from pipelink_ir.runtime.sources import read_program
    from pipelink_ir.runtime.targets import best_target, parse_target
    samples = samples_of(args)
    target = parse_target(args.on or project.runs_on() or best_target())
    module = read_program(args.file)  # first: beside what is no file there is no other
    if args.output in STDOUT_PATHS and args.format != "table":
        raise UsageError(f"standard output is either the file of ranges or the result as {args.format}: '-o -' and '--format {args.format}' do not go together")
    output = None if args.output == files.OFF else files.goes_to(args.file, args.output)
    archs = [t.strip() for text in args.target for t in text.split(",")]
    job = Job(module, target, args.pipeline, attributes(args), Settings(project.copies or "refuse", project=project),
              args.method, args.percentile, archs)
    with progress("compiling") as job.watch:
        found = job.run(samples, output)
    say_passed_over(samples)
    if samples.random:
        console.say("pipelinkc: warning: these are ranges of random numbers, not of data")
    for text in found.warnings:
        console.say(f"pipelinkc: warning: {text}")
    console.report(found.diagnostics)
    if output not in STDOUT_PATHS:
        print(json.dumps(as_json(found), indent=1)) if args.format == "json" else show(found)
    if found.path is not None:
        console.say(f"pipelinkc: {len(found.calibration.edges)} ranges from {count(found.calibration.samples)}: {found.path}")
    return console.status(found.diagnostics)


def as_json(found: Calibrated) -> dict[str, Any]:
    """Plain data; what is not finite is null."""
    c = found.calibration
    edges = {name: {"min": e.min, "max": e.max, "low": e.low, "high": e.high, "rms": e.rms, "clipped": e.clipped, "nan": e.nan, "inf": e.inf}
             for name, e in c.edges.items()}
    checked = [{"target": k.arch, "edge": k.edge, "operator": k.node.operator, "label": k.node.label, "error": finite(k.error), "budget": k.budget,
                "breached": k.breached, "declined": k.declined} for k in found.checked]
    return {"pipeline": c.pipeline, "method": c.method, "samples": c.samples, "random": c.random, "file": found.path, "edges": edges,
            "errors": {a: {e: finite(x) for e, x in table.items()} for a, table in c.errors.items()}, "checked": checked, "warnings": list(found.warnings)}


def show(found: Calibrated) -> None:
    """The tables."""
    c = found.calibration
    print(f"@{c.pipeline}: {c.method}, {count(c.samples)}{' of random numbers' if c.random else ''}")
    rows = [(f"%{name}", f"{e.min:.6g}", f"{e.max:.6g}", f"{e.low:.6g}", f"{e.high:.6g}", f"{e.rms:.4g}", f"{100 * e.clipped:.4f} %",
             ", ".join(t for t in (f"{e.nan} NaN" * bool(e.nan), f"{e.inf} inf" * bool(e.inf)) if t)) for name, e in c.edges.items()]
    table(("edge", "min", "max", "low", "high", "rms", "clipped", ""), rows, 1)
    for arch in c.errors:
        named = [k for k in found.checked if k.arch == arch]
        errors = [(f"%{k.edge}", f"@{k.node.operator}", k.node.label or "", f"{k.error:.3g}", "" if k.budget is None else f"{k.budget:g}",
                 "declined" if k.declined else "" if k.budget is None else "breached" if k.breached else "kept") for k in named]
        said = {k.edge for k in named}
        errors += [(f"%{e}", "", "", f"{x:.3g}", "", "") for e, x in c.errors[arch].items() if e not in said]
        print(f"errors on {arch}")
        table(("edge", "operator", "label", "error", "budget", ""), errors, 3)
        for text in dict.fromkeys(f"declined, @{k.node.operator}: {k.declined}" for k in named if k.declined):
            print(f"  {text}")
