"""How each operator runs on a device, written down: the place of every local, what is computed side by side, and the kind of every kernel.

Before:  op @softmax(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
           compute { %m[n]    = max[k < K](%x[n, k])
                     %e[n, k] = exp(%x[n, k] - %m[n])
                     %s[n]    = sum[k < K](%e[n, k])
                     %y[n, k] = %e[n, k] / %s[n] }
         }
After:     schedule { target = cuda, derived = [], %m { place = shared }, %e { place = inline }, %s { place = shared }, %y { map = block(n) } }

A place is `inline` (evaluated where it is read; `register` is another word for it), `shared` (so, once for all threads of a block; `at` a result: the tile of
it that a block computes, and its rims, for stencils), `row` (a row at a time, `at` a loop of its reader) or `buffer` (as a whole in memory). `beside = %a`
computes a definition in the kernel of `%a`, `beside = none` in one of its own.
Where `compile { library = … }` lists a library, `kernel` is who computes the operator: the library, with what its `epilogue` takes in, or `generated`.
A schedule that was found by measuring (`tuned` names the files, `docs/tuning.md`) goes before the heuristics and behind what is written.
`map` is the kind of the kernels that compute a stored definition, a list if they differ: `grid`, `block(n)` with the axes that have a block each, and the
kinds of `scheduling/kernels.py`. What is written stays and is followed; a backend completes what is missing by the same rules. None of it changes a result.

Requires: types inferred; `derive`, or definitions are taken as they are.
Keeps: settings that are there.
Adds: `schedule { target = … }` in every operator with a `compute`.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from pipelink_ir.ir.diagnostics import Report, UsageError
from pipelink_ir.ir.nodes import Module, Node, Operator, Pipeline
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.ir.walk import deep
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.scheduling.asked import TARGETS, section_of
from pipelink_ir.passes.scheduling.libraries import check, choose, decided
from pipelink_ir.passes.scheduling.printed import Scheduled, scheduled
from pipelink_ir.passes.scheduling.tuned_lookup import Tuning


@dataclass(frozen=True, slots=True)
class Options:
    """For which device."""

    device: str = "cuda"
    """`cpu` or `cuda`."""
    tuned: tuple[str, ...] = ()
    """Files of tuned schedules."""
    tuned_shared: tuple[str, ...] = ()
    """Such files that many programs share."""
    arch: str = ""
    """What tuned schedules have to be for: `sm_90a`, `cpu`, `cuda-emulated`."""
    missing: tuple[str, ...] = ()
    """Libraries that are not installed where the program is to run."""


@register_pass("schedule", "the place of every definition, what runs side by side, the kind of every kernel", Options, typed=True)
def schedule(module: Module, options: Options, report: Report) -> Module:
    """Write every operator's schedule; see the page above."""
    if options.device not in TARGETS:
        raise UsageError(f"schedule: 'device' is one of {', '.join(TARGETS)}, not '{options.device}'")
    tuning = Tuning.of(module, options.device, options.arch, options.tuned, options.tuned_shared)
    with deep():
        done = {o.name: tuning.scheduled(o) if tuning is not None else scheduled(o, options.device)
                for o in module.operators if o.compute is not None and o.kernel is None}
        libraries = _libraries(module, done, options, report) if options.device == "cuda" else {}
    for s in done.values():
        _report(s, options.device, report)
    said = {name: _declined(s) for name, s in done.items() if any(o.declined for o in s.objections)}
    more = None
    if tuning is not None:
        said = {**said, **{name: f"{said[name]}; {text}" if name in said else text for name, text in tuning.told.items()}}
        more = tuning.unused()
    said = {**said, **{name: f"{text}; {said[name]}" if name in said else text for name, text in libraries.items()}}
    items = tuple(done[i.name].op if isinstance(i, Operator) and i.name in done else _noted(i, said, more) if isinstance(i, Pipeline) else i
                  for i in module.items)
    return module if all(a is b for a, b in zip(items, module.items, strict=True)) else replace(module, items=items)


def _libraries(module: Module, done: dict[str, Scheduled], options: Options, report: Report) -> dict[str, str]:
    """Who computes operators whose contracts list libraries, put into `done`; why that is no library, where a dump does not say it already."""
    told = {}
    already = {n.op for p in module.pipelines for n in p.nodes if isinstance(n, Node) and "cuBLASLt" in (n.reason or "")}
    for name, s in done.items():
        choice = choose(s.op, parse_arch(options.arch), options.missing)
        check(s.op, choice, report)
        if choice is not None:
            done[name] = replace(s, op=decided(s.op, choice))
            if choice.product is None and name not in already:
                told[name] = f"declined: {choice.why}"
    return told


def _report(s: Scheduled, device: str, report: Report) -> None:
    """Errors for what cannot be followed, and for what the target does not have although the section names it."""
    for o in s.objections:
        if not o.declined or section_of(s.op, o.setting) == device:
            report.error("schedule", o.setting.span, o.why, (), o.help)


def _declined(s: Scheduled) -> str:
    return "; ".join(f"declined: {o.why}, for '%{o.tensor}'" for o in s.objections if o.declined)


def _noted(p: Pipeline, said: dict[str, str], first: str | None) -> Pipeline:
    """The pipeline with a reason at each node of whose operator something is to be said, and at its first node."""
    nodes = []
    for n in p.nodes:
        for text in (said.get(n.op), first) if isinstance(n, Node) else ():
            if text is not None and isinstance(n, Node) and text not in (n.reason or ""):
                n = replace(n, reason=f"{n.reason}; {text}" if n.reason else text)
        first = None if isinstance(n, Node) else first
        nodes.append(n)
    return p if all(a is b for a, b in zip(nodes, p.nodes, strict=True)) else replace(p, nodes=tuple(nodes))
