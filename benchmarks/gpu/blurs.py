"""Three 5x5 blurs in a chain at 1080p: what the cost model of `fuse` says that each choice moves, beside what the hardware counts (ncu).

Each choice is compiled with static sizes, run under `ncu` in a process of its own, and timed. The model's bytes are those that `--explain` prints. With one
frame everything fits into the L2, where sectors tell; sixteen frames go to memory. `python blurs.py FRAMES CHANNELS CHOICE` is that process.
"""
from __future__ import annotations

import csv
import importlib
import io
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHOICES = {"as fused": "", "each by itself": "fuse{nodes=1}"}
"""What is compared: the options of the pass."""
SHAPES = ((1, 1), (1, 3), (16, 1))
"""Frames and channels."""
METRICS = {"dram__bytes_read.sum": "DRAM read", "dram__bytes_write.sum": "DRAM written", "lts__t_sectors_op_read.sum": "L2 sectors read",
           "lts__t_sectors_op_write.sum": "L2 sectors written"}
SECTOR = 32
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "sector": 1, "Ksector": 1e3, "Msector": 1e6, "": 1}


def program(frames: int, channels: int) -> str:
    """The chain with static sizes."""
    text = (ROOT / "benchmarks" / "models" / "blurs.plir").read_text(encoding="utf-8")
    head, _, body = text.partition("pipeline @blurs")
    return head + "pipeline @blurs" + body.replace("NxHxWxC", f"{frames}x1080x1920x{channels}")


def compiled(frames: int, channels: int, choice: str, target: str = "cuda") -> Any:
    import pipelink_ir as pl
    return pl.compile(program(frames, channels), target=target, pass_options=CHOICES[choice] or None)


def estimated(reasons: str) -> dict[str, int]:
    """Bytes that the model gives each choice, from the ledger: what was fused says "A bytes instead of B" of its own parts, what was declined says it of the
    fused part together with its neighbour."""
    pairs = [(int(a), int(b)) for a, b in re.findall(r"(\d+) bytes instead of (\d+)", reasons)]
    if not pairs:
        return {}
    (fused, apart), (whole, chosen) = pairs[0], pairs[-1] if len(pairs) > 1 else (pairs[0][0], pairs[0][0])
    return {"as fused": chosen, "each by itself": apart + chosen - fused, "all in one": whole}


def reasons_of(p: Any) -> str:
    return "\n".join(e.text() for e in p.ledger)


def compare(keep: Callable[..., None]) -> None:
    """Every shape, every choice."""
    cp = importlib.import_module("cupy")
    from gpu.measure import Clock
    clock = Clock(cp)
    found: dict[str, Any] = {}
    for frames, channels in SHAPES:
        x = cp.random.default_rng(0).random((frames, 1080, 1920, channels), dtype=cp.float32)
        k = cp.full((5, 5), 0.04, cp.float32)
        row = found[f"{frames}x1080p, {channels} channels"] = {"one array": x.nbytes}
        calls = {}
        for choice in CHOICES:
            p = compiled(frames, channels, choice)
            calls[choice] = lambda p=p, x=x, k=k: p(x=x, k=k)
            calls[choice]()
            row[choice] = {"kernels": p.executable.statistics["kernels"], **counted(frames, channels, choice)}
            if choice == "as fused":
                row["explained"] = reasons_of(p)
        for name, size in estimated(row["explained"]).items():
            row.setdefault(name, {})["model"] = size
        times = {c: [clock(call) for _ in range(23)][3:] for c, call in calls.items()}
        for choice, ms in times.items():
            row[choice]["ms"] = statistics.median(ms)
        keep(blurs=found, summary=summary(found))
        print(summary({"": row}), flush=True)


def summary(found: Mapping[str, Any]) -> str:
    """A line for each choice."""
    out = []
    for shape, row in found.items():
        for choice in CHOICES:
            c = row.get(choice, {})
            dram = c.get("DRAM read", 0) + c.get("DRAM written", 0)
            sectors = c.get("L2 sectors read", 0) + c.get("L2 sectors written", 0)
            out.append(f"{shape} {choice}: model {c.get('model', 0) / 1e6:.1f} MB, DRAM {dram / 1e6:.1f} MB, L2 {SECTOR * sectors / 1e6:.1f} MB, "
                       f"{c.get('ms', 0):.4f} ms, {c.get('kernels')} kernels")
    return "; ".join(out)


def counted(frames: int, channels: int, choice: str) -> dict[str, Any]:
    """The sums of the counters over all kernels of one call."""
    ncu = shutil.which("ncu") or next((str(p) for p in sorted(Path("/usr/local").glob("cuda*/bin/ncu"))), None)
    if ncu is None:
        return {"counters": "there is no ncu on this machine"}
    command = [ncu, "--csv", "--page", "raw", "--profile-from-start", "off", "--metrics", ",".join(METRICS), sys.executable, str(Path(__file__).resolve()),
               str(frames), str(channels), choice]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT, env={**os.environ, "PIPELINK_GRAPHS": "off"})
    sums = parsed(done.stdout)
    return sums if sums else {"counters": (done.stdout + done.stderr)[-600:]}


def parsed(text: str) -> dict[str, Any]:
    """Sums over the kernels of ncu's table: a line of names, one of units, one for each kernel."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if len(rows) < 3:
        return {}
    names, units = rows[0], rows[1]
    out: dict[str, Any] = {}
    for metric, name in METRICS.items():
        if metric in names:
            at = names.index(metric)
            out[name] = sum(float(r[at].replace(",", "")) for r in rows[2:]) * UNITS.get(units[at], 1)
    return out


def one_call(frames: int, channels: int, choice: str) -> None:
    """One call between the marks of the profiler."""
    cp = importlib.import_module("cupy")
    x, k = cp.ones((frames, 1080, 1920, channels), cp.float32), cp.full((5, 5), 0.04, cp.float32)
    p = compiled(frames, channels, choice)
    p(x=x, k=k)
    cp.cuda.runtime.deviceSynchronize()
    cp.cuda.runtime.profilerStart()
    p(x=x, k=k)
    cp.cuda.runtime.deviceSynchronize()
    cp.cuda.runtime.profilerStop()


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    one_call(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
