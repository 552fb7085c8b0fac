"""What limits rows: for each kernel of one call, with a cache that was emptied before, how busy memory, caches and the parts of a processor are, how many warps
are there, and what they wait for. `python limits.py ROW` is the process that `ncu` looks at.
"""
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [p for p in (str(ROOT), str(ROOT / "benchmarks")) if p not in sys.path]
from gpu import choice, counters, rows  # noqa: E402

TIME = "gpu__time_duration.sum"
SHARES = {
    "DRAM": "dram__throughput.avg.pct_of_peak_sustained_elapsed", "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1": "l1tex__throughput.avg.pct_of_peak_sustained_active", "issue slots": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active", "pipe fma": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "pipe alu": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", "pipe xu": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "pipe lsu": "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active", "processors busy": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"}
"""Of the most that there can be, in %."""
SUMS = {"DRAM read": "dram__bytes_read.sum", "DRAM written": "dram__bytes_write.sum", "instructions": "smsp__inst_executed.sum"}
LAUNCH = {"registers": "launch__registers_per_thread", "threads of a block": "launch__block_size", "blocks": "launch__grid_size",
          "blocks that fit": "launch__occupancy_limit_registers", "waves": "launch__waves_per_multiprocessor"}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {name: _STALL.format(word) for name, word in {
    "memory": "long_scoreboard", "shared memory": "short_scoreboard", "a fixed latency": "wait", "pipes": "math_pipe_throttle",
    "queue of accesses": "lg_throttle", "queue of shared memory": "mio_throttle", "barriers": "barrier", "nobody chosen": "not_selected",
    "instructions": "no_instruction",
    "branches": "branch_resolving", "dispatch": "dispatch_stall", "stores at the end": "drain", "constants": "imc_miss"}.items()}
"""Cycles that a warp waits between two instructions, by what it waits for."""
METRICS = (TIME, *SHARES.values(), *SUMS.values(), *LAUNCH.values(), *STALLS.values())


def find(keep: Callable[..., None], wanted: Sequence[rows.Row]) -> None:
    """Every row, every kernel."""
    found: dict[str, Any] = {}
    missing = []
    for row in wanted:
        kernels, said = counters.profiled(Path(__file__).resolve(), [row.name], METRICS, ["--clock-control", "none"])
        found[row.name] = [{"kernel": name, **named(k)} for name, k in kernels] or {"counters": said}
        missing += [row.name] if not kernels else []
        keep(limits=found, summary=f"{len(found) - len(missing)} of {len(wanted)} rows")
        print("\n".join([row.name, *(f"  {told(name, k)}" for name, k in kernels)] if kernels else [f"{row.name}: {said}"]), flush=True)
    if missing:
        raise SystemExit(f"nothing was counted for: {missing}")


def named(kernel: Mapping[str, float]) -> dict[str, Any]:
    """The metrics by the names that people read."""
    def of(metrics: Mapping[str, str]) -> dict[str, float]:
        return {name: round(kernel[m], 3) for name, m in metrics.items() if m in kernel}
    return {"ms": round(1e3 * kernel.get(TIME, 0), 5), "percent": of(SHARES), "sums": of(SUMS), "launch": of(LAUNCH), "waits": of(STALLS)}


def told(name: str, kernel: Mapping[str, float]) -> str:
    """A line for people: what is busiest and what is waited for most comes first."""
    n = named(kernel)
    shares = ", ".join(f"{what} {v:.0f} %" for what, v in n["percent"].items())
    sums = ", ".join(f"{what} {v / 1e6:.2f} M" for what, v in n["sums"].items())
    launch = ", ".join(f"{what} {v:g}" for what, v in n["launch"].items())
    waits = ", ".join(f"{what} {v:.2f}" for what, v in sorted(n["waits"].items(), key=lambda i: -i[1]) if v >= 0.05)
    parts = [f"{name}: {n['ms']:.4f} ms", shares, sums, launch, f"cycles between two instructions of a warp: {waits}" if waits else ""]
    return "; ".join(p for p in parts if p)


def one_row(name: str) -> None:
    """What is profiled."""
    import pipelink_ir as pl
    cp = importlib.import_module("cupy")
    work = choice.named(name).make(rows.Make(cp, importlib.import_module("torch"), cp.random.default_rng(0)))
    p = pl.compile(work.program, target="cuda")
    params = {o.name: work.inputs[o.name] for o in p.inputs if o.param}
    call: Any = p.bind(**params) if params else p
    given = {k: v for k, v in work.inputs.items() if k not in params}
    counters.one_call(lambda: call(**given))


if __name__ == "__main__":
    one_row(sys.argv[1])
