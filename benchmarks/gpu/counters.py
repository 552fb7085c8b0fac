"""What the hardware counts, by `ncu`: one call of something in a process of its own, each of its kernels with the metrics that were asked for."""
from __future__ import annotations

import csv
import importlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "sector": 1, "Ksector": 1e3, "Msector": 1e6, "inst": 1, "Kinst": 1e3, "Minst": 1e6,
         "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
"""What ncu's units come to; whatever else there is counts as it stands."""

Kernel = dict[str, float]
"""The metrics of one kernel, in bytes, sectors, seconds and %."""


def profiled(script: Path, arguments: Sequence[str], metrics: Sequence[str], more: Sequence[str] = ()) -> tuple[list[tuple[str, Kernel]], str]:
    """The kernels that a script runs between the marks of the profiler (`one_call`), by name; without any, what was said."""
    ncu = shutil.which("ncu") or next((str(p) for p in sorted(Path("/usr/local").glob("cuda*/bin/ncu"))), None)
    if ncu is None:
        return [], "there is no ncu on this machine"
    command = [ncu, "--csv", "--page", "raw", "--profile-from-start", "off", *more, "--metrics", ",".join(metrics), sys.executable, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT, env={**os.environ, "PIPELINK_GRAPHS": "off"})
    return kernels_of(done.stdout, metrics), (done.stdout + done.stderr)[-600:]


def kernels_of(text: str, metrics: Sequence[str]) -> list[tuple[str, Kernel]]:
    """ncu's table: a line of names, one of units, one for each kernel."""
    rows = list(csv.reader(io.StringIO("\n".join(line for line in text.splitlines() if line.startswith('"')))))
    if len(rows) < 3:
        return []
    names, units = rows[0], rows[1]
    at = {m: names.index(m) for m in metrics if m in names}
    title = names.index("Kernel Name") if "Kernel Name" in names else 0
    return [(r[title], {m: float(r[k].replace(",", "")) * UNITS.get(units[k], 1) for m, k in at.items() if r[k]}) for r in rows[2:]]


def one_call(call: Callable[[], Any]) -> None:
    """One call between the marks of the profiler; another one before, which compiles."""
    runtime = importlib.import_module("cupy").cuda.runtime
    call()
    runtime.deviceSynchronize()
    runtime.profilerStart()
    call()
    runtime.deviceSynchronize()
    runtime.profilerStop()
