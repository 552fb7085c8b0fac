"""Runs rows of the table: results are checked against float64, then all contenders take turns on the same arrays, with the L2 flushed before each call.

Times are of the device, by events around a call on one stream, in ms. JAX has streams of its own: its time is the host's for ten calls in a row, divided by
ten, with an L2 that the calls themselves have filled, so it is shown and never taken for the best peer.
"""
from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu import ahead, peers, table
from gpu.rows import Make, Row, Work

RUNS = 25
WARM = 3
IN_A_ROW = " (in a row)"
"""Stands behind the names of peers that are timed so."""
LONGEST = "max-autotune"
"""The peer that compiles for long, and is asked for by name."""
SECONDS = 3.0
"""What the turns of one contender of a row may take together; slow ones get fewer turns, at least three."""


class Clock:
    """Times one call on the device."""

    def __init__(self, cp: Any) -> None:
        self.cp, self.flush = cp, cp.empty(512 << 20, cp.uint8)

    def __call__(self, call: Callable[[], Any], flush: bool = True) -> float:
        """Milliseconds. What flushes the cache keeps the device busy while the call is handed over."""
        start, end = self.cp.cuda.Event(), self.cp.cuda.Event()
        if flush:
            self.flush.fill(1)
        start.record()
        result = call()
        end.record()
        end.synchronize()
        del result
        return float(self.cp.cuda.get_elapsed_time(start, end))

    def host(self, call: Callable[[], Any]) -> float:
        """Milliseconds of the host for one of `JAX_CALLS` calls that wait at the end."""
        self.flush.fill(1)
        self.cp.cuda.runtime.deviceSynchronize()
        begin = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begin) / peers.JAX_CALLS


def run(keep: Callable[..., None], wanted: Sequence[Row], which: str, before: float = 0) -> None:
    """The rows, one after the other; a row that fails is told at the end. `before`: seconds for what compiles for long,
    before anything is timed."""
    compiled = ahead.compile_all([r.name for r in wanted], lambda said: print(said, flush=True), before) if before else {}
    keep(compiled_ahead=compiled)
    cp, torch = importlib.import_module("cupy"), importlib.import_module("torch")
    peers.alike(torch)
    clock = Clock(cp)
    rate, product = _copy_rate(cp, clock), _product_rate(torch, clock)
    rows: dict[str, Any] = {}
    absent = peers.missing()
    keep(copy_gb_s=rate / 1e9, product_tflop_s=product / 1e12, missing_peers=absent, peers=which, rows=rows)
    for name, why in absent.items():
        print(f"no {name}: {why}", flush=True)
    wrong = []
    for row in wanted:
        begin = time.perf_counter()
        found: dict[str, Any] = {"beside": row.beside} if row.beside else {}
        rows[row.name] = found
        try:
            work = row.make(Make(cp, torch, cp.random.default_rng(0)))
            found |= {"bytes": work.bytes, "flops": work.flops, "floor": 1e3 * max(work.bytes / rate, work.flops / product)}
            fault = compiled.get(row.name, {}).get("fault")
            _row(row, work, found, which, absent if fault is None else {**absent, LONGEST: fault}, clock)
        except Exception as error:
            found["fault"] = f"{type(error).__name__}: {error}"[:1500]
        work = None
        cp.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
        if "fault" in found:
            wrong.append(row.name)
        found["spent"] = round(time.perf_counter() - begin, 1)
        keep(rows=rows, summary=f"{len(rows)} rows" + (f", faults: {', '.join(wrong)}" if wrong else ""))
        print(row.name, {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items() if k not in ("spread", "bytes", "flops")}, flush=True)
    print("\n".join(table.lines({"copy_gb_s": rate / 1e9, "product_tflop_s": product / 1e12, "missing_peers": absent, "rows": rows})), flush=True)
    if wrong:
        raise SystemExit(f"rows with faults: {wrong}")


def _copy_rate(cp: Any, clock: Clock) -> float:
    a, b = cp.empty(1 << 29, cp.float32), cp.empty(1 << 29, cp.float32)
    took = [clock(lambda: cp.copyto(b, a), flush=False) for _ in range(8)][2:]
    return float(2 * a.nbytes / (1e-3 * statistics.median(took)))


def _product_rate(torch: Any, clock: Clock) -> float:
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    took = [clock(lambda: a @ b) for _ in range(8)][2:]
    return float(2 * 8192 ** 3 / (1e-3 * statistics.median(took)))


def _row(row: Row, work: Work, found: dict[str, Any], which: str, absent: Mapping[str, str], clock: Clock) -> None:
    torch = importlib.import_module("torch")

    import pipelink_ir as pl
    begin = time.perf_counter()
    p = pl.compile(work.program, target="cuda")
    params = {o.name: work.inputs[o.name] for o in p.inputs if o.param}
    call: Any = p.bind(**params) if params else p
    found["compile_s"] = time.perf_counter() - begin
    tensors = {k: torch.from_dlpack(v) for k, v in work.inputs.items()}
    given = {k: v for k, v in work.inputs.items() if k not in params}
    _check(torch, work, call(**given), tensors, found)
    found["kernels"] = (call.rest if params else p).executable.statistics["kernels"]
    ours, others, parts = {"pipelink": lambda: call(**given)}, {}, {}
    if which != "none":
        others = _peers(row, work, list(tensors.values()), found, which, absent)
    for name, make in work.parts.items():
        parts |= _started(name, lambda make=make: make(work.inputs), found)
    if parts:
        found["parts"] = list(parts)
    times = _turns(clock, {**ours, **others, **parts})
    found |= {name: statistics.median(ms) for name, ms in times.items()}
    found["spread"] = {name: [min(ms), max(ms), len(ms)] for name, ms in times.items()}
    found |= {"of floor": found["floor"] / found["pipelink"], "gb_s": work.bytes / found["pipelink"] / 1e6}
    fair = [n for n in others if not n.endswith(IN_A_ROW)]
    if fair:
        best = min(fair, key=lambda n: float(found[n]))
        found |= {"best peer": best, "best peer / ours": found[best] / found["pipelink"], "interval": interval(times[best], times["pipelink"])}


def _peers(row: Row, work: Work, tensors: list[Any], found: dict[str, Any], which: str, absent: Mapping[str, str]) -> dict[str, Callable[[], Any]]:
    torch = importlib.import_module("torch")

    out = _started("torch eager", lambda: lambda: work.torch(*tensors), found)
    for name, mode in peers.MODES.items():
        if name in absent:
            found.setdefault("no peer", {})[name] = absent[name]
        elif name != LONGEST or which == "all":
            out |= _started(name, lambda mode=mode: peers.compiled(torch, work.torch, tensors, mode), found)
    if work.captured:
        out |= _started("CUDA graph of eager", lambda: peers.captured(torch, work.torch, tensors), found)
    if row.jax and "JAX" not in absent:
        out |= {f"{n}{IN_A_ROW}": call for n, call in _started("JAX", lambda: peers.jax_call(row.jax, work.inputs), found).items()}
    for name, make in work.others.items():
        if name not in absent:
            out |= _started(name, lambda make=make: make(work.inputs), found)
    return out


def _started(name: str, make: Callable[[], Callable[[], Any]], found: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """The contender by its name, once it has run; nothing but the reason if it cannot."""
    begin = time.perf_counter()
    try:
        call = make()
        call()
    except Exception as error:
        found.setdefault("no peer", {})[name] = f"{type(error).__name__}: {error}"[:300]
        return {}
    took = time.perf_counter() - begin
    if took > 0.5:
        found.setdefault("start_s", {})[name] = round(took, 2)
    return {name: call}


def _turns(clock: Clock, contenders: Mapping[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Milliseconds of each call, in turns."""
    def timed(name: str) -> float:
        return clock.host(contenders[name]) if name.endswith(IN_A_ROW) else clock(contenders[name])

    turns = {}
    for name in contenders:
        timed(name)
        begin = time.perf_counter()
        timed(name)
        turns[name] = min(RUNS, max(3, int(SECONDS / (time.perf_counter() - begin))))
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(RUNS + WARM):
        for name in contenders:
            if turn < turns[name] + (WARM if turns[name] == RUNS else 0):
                ms = timed(name)
                if turn >= WARM or turns[name] < RUNS:
                    took[name].append(ms)
    return took


def interval(theirs: Sequence[float], ours: Sequence[float]) -> tuple[float, float]:
    """An interval of the median ratio of pairs, by ranks: it holds with 95 % for 20 pairs and more."""
    ratios = sorted(a / b for a, b in zip(theirs, ours, strict=False))
    n = len(ratios)
    low = max(0, int((n - 1.96 * n ** 0.5) / 2) - 1) if n >= 6 else 0
    return ratios[low], ratios[n - 1 - low]


def _check(torch: Any, work: Work, got: Any, tensors: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Against float64."""
    parts = {k: v[:1] if k in work.first else v for k, v in tensors.items()}
    wanted = work.exact(*(v if v.dtype in (torch.uint8, torch.bool) else v.double() for v in parts.values()))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    error = 0.0
    for value, want in zip(got, wanted, strict=True):
        result = torch.from_dlpack(value)
        result = result[:1] if work.first else result
        off = float(((result.double() - want).abs_() / (1 + want.abs())).max())
        # A NaN is an error larger than all.
        error = error if off <= error else off
    found["max error"] = error
    if not error <= work.tolerance:
        found["fault"] = f"off by {error}, {work.tolerance} is allowed"
