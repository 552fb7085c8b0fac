"""What goes wrong on a device, told in the words of the program."""
from __future__ import annotations

from collections.abc import Sequence

from pipelink_ir.backends.cuda import prelude
from pipelink_ir.backends.cuda.driver import DeviceError, Driver, OutOfDeviceMemory
from pipelink_ir.backends.cuda.recipe import Recipe
from pipelink_ir.backends.planning import Plan
from pipelink_ir.ir.diagnostics import ExecutionError, Note, Report
from pipelink_ir.ir.nodes import Node, Pipeline


def out_of_memory(pipeline: Pipeline, plan: Plan | None, error: OutOfDeviceMemory, driver: Driver, device: int) -> ExecutionError:
    """PL6201."""
    report = Report()
    try:
        free, total = driver.free_bytes(device)
        left = f"; {free} of {total} bytes are free on 'cuda:{device}'"
    except DeviceError:
        left = ""
    wants = f", {plan.arena} bytes of them between nodes" if plan is not None and plan.arena else ""
    report.error("PL6201", pipeline.name_span, f"'@{pipeline.name}' asks for {error.size or 'more'} bytes of memory of {error.where}{wants}{left}", (),
                 "give arrays back, call with smaller ones, or take a device with more memory")
    return ExecutionError(report.diagnostics)


def refused(pipeline: Pipeline, node: Node | None, error: DeviceError) -> ExecutionError:
    """PL6202: a command that the driver refused, or a kernel that failed."""
    report = Report()
    what = f"the kernel of '@{node.op}'" if node is not None else f"'@{pipeline.name}'"
    place = node.op_span if node is not None else pipeline.name_span
    if error.fatal:
        notes = [Note("a kernel of this pipeline, or one that another library started before, failed", pipeline.name_span)] if node is not None else []
        report.error("PL6202", place, f"the device failed ({error.name}): no call of this process reaches it any more", notes,
                     "start the process anew; 'compute-sanitizer python …' finds the access that fails")
    else:
        report.error("PL6202", place, f"{what} cannot be run: {error}", (), "the pipeline can be called again")
    return ExecutionError(report.diagnostics)


def found_by_kernels(pipeline: Pipeline, recipe: Recipe, words: Sequence[int]) -> Exception | None:
    """What the kernels that check have found: the first of them in the order of the program. `words` are their statuses."""
    size = prelude.STATUS_WORDS
    for number, at in enumerate(recipe.checked):
        taken, site, *values = words[number * size:(number + 1) * size]
        if not taken:
            continue
        step = recipe.plan.steps[at]
        if site == prelude.OUT_OF_MEMORY:
            node = pipeline.nodes[step.node]
            assert isinstance(node, Node)
            return refused(pipeline, node, DeviceError("the memory that kernels may take while they run (cudaLimitMallocHeapSize) is used up"))
        found = recipe.operators[step.op].program.sites[site]
        report = Report()
        report.error("execution", found.span, found.message.format(*values))
        return ExecutionError(report.diagnostics)
    return None


def node_of(pipeline: Pipeline, recipe: Recipe, step: int | None) -> Node | None:
    """The node of a step."""
    node = pipeline.nodes[recipe.plan.steps[step].node] if step is not None else None
    return node if isinstance(node, Node) else None
