"""What the benchmarks share: timing of commands and functions, the machine's description, the table and the JSON file."""
from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(slots=True)
class Row:
    """One measurement: all times in milliseconds, and whatever else is worth telling."""

    what: str
    ms: list[float]
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def best(self) -> float:
        return min(self.ms)


def time_call(call: Callable[[], Any], runs: int, warm_up: int = 1) -> list[float]:
    """Milliseconds of `runs` calls, after some that are not counted."""
    for _ in range(warm_up):
        call()
    return [_timed(call) for _ in range(runs)]


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - start)


def time_command(command: Sequence[str], runs: int, env: dict[str, str] | None = None) -> list[float]:
    """Milliseconds of whole processes. Raises if one fails."""
    return [_timed(lambda: subprocess.run(command, check=True, capture_output=True, env=os.environ | (env or {}))) for _ in range(runs)]


def pipelinkc() -> str:
    """The command beside the Python that runs this."""
    beside = Path(sys.executable).parent / "pipelinkc"
    found = str(beside) if beside.exists() else shutil.which("pipelinkc")
    if found is None:
        sys.exit("pipelinkc is not installed; `make install` does it")
    return found


@contextmanager
def empty_cache() -> Iterator[dict[str, str]]:
    """An environment in which every cache of the compiler is a folder that is empty, and is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield {"PIPELINK_CACHE_DIR": folder}


def machine() -> dict[str, Any]:
    """What the numbers belong to."""
    import llvmlite
    import numpy
    cpu = next((line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version(), "numpy": numpy.__version__,
            "llvmlite": llvmlite.__version__}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def report(name: str, rows: Sequence[Row]) -> None:
    """Print the table and write `benchmarks/results/<name>-<date>.json`."""
    print(f"{name}: {machine()['cpu']}, {os.cpu_count()} cores")
    print(f"  {'':<52} {'median ms':>10} {'best ms':>10}  runs")
    for row in rows:
        more = "  ".join(f"{k} {v}" for k, v in row.more.items())
        print(f"  {row.what:<52} {row.median:>10.2f} {row.best:>10.2f}  {len(row.ms):>4}  {more}".rstrip())
    save(name, {"rows": [asdict(r) | {"median": r.median, "best": r.best} for r in rows]})


def save(name: str, found: dict[str, Any]) -> None:
    """Write `benchmarks/results/<name>-<date>.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{date.today().isoformat()}.json"
    data = {"benchmark": name, "date": date.today().isoformat(), "machine": machine(), **found}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"  written to {path.relative_to(ROOT)}")
