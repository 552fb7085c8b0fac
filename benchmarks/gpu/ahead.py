"""Compiles PyTorch's forms of rows before anything is timed, each row in a process of its own: max-autotune takes up to half a minute a row, on few cores.

What the processes find is on disk, in the folder that TORCHINDUCTOR_CACHE_DIR names: Inductor's graphs with the algorithms that were chosen (`fx_graph_cache`),
the configuration of each kernel (`autotune_local_cache`, also what coordinate descent found), and Triton's binaries. All are keys of what is compiled, of the
settings and of the device, so who compiles the same again later finds them. Compilers run side by side, measurements do not: whoever tries out kernels
holds a lock meanwhile, so that what Inductor chooses is chosen on a device of its own.

`python ahead.py ROW RESULT LOCK` is such a process.
"""
from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
THREADS = 8
"""Processes with which Inductor compiles the kernels of one row: few rows have many."""
MEANWHILE = ("cupy", "torch", "torch._dynamo", "torch._inductor.compile_fx", "jax")
"""What is imported by who waits, and will be needed."""


def compile_all(names: Sequence[str], tell: Callable[[str], None], seconds: float) -> dict[str, dict[str, Any]]:
    """What came of each row: the seconds of each mode (`start_s`), or `fault`, also where `seconds` were not enough: then the row has no such peer."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ahead-") as folder:
        waiting = {name: _start(name, Path(folder) / str(n), Path(folder) / "lock") for n, name in enumerate(names)}
        # All is there by the time it is asked for: who waits compiles nothing itself, and needs no processes for it.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        for module in MEANWHILE:
            with suppress(ImportError):
                importlib.import_module(module)
        out: dict[str, dict[str, Any]] = {}
        while waiting:
            time.sleep(0.2)
            late = time.monotonic() - begin > seconds
            for name, (process, place) in list(waiting.items()):
                if late:
                    process.kill()
                    process.wait()
                if process.poll() is not None:
                    out[name] = outcome(place, late, seconds)
                    del waiting[name]
        tell(f"compiled ahead in {time.monotonic() - begin:.1f} s: " + "; ".join(f"{n} {out[n]}" for n in names))
    return out


def _start(name: str, place: Path, lock: Path) -> tuple[subprocess.Popen[bytes], Path]:
    env = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(THREADS), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, str(HERE), name, str(place.with_suffix(".json")), str(lock)]
    with place.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env), place


def outcome(place: Path, late: bool, seconds: float) -> dict[str, Any]:
    """What a process left, which may have been ended in between."""
    result = place.with_suffix(".json")
    out: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {"start_s": {}}
    if not out.pop("done", False):
        said = place.with_suffix(".log").read_text(errors="replace").strip().splitlines()
        out["fault"] = f"not compiled within {seconds:.0f} s" if late else said[-1][:300] if said else "its process ended"
    return out


# ---------------------------------------------------------------------------------------------------------------------- one process


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """While no other process tries out kernels."""
    import fcntl
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _measure_alone(lock: Path) -> None:
    """Inductor's measurements, all of which go through one function, one process at a time."""
    owner = type(importlib.import_module("torch._inductor.runtime.benchmarking").benchmarker)
    measured = owner.benchmark_gpu

    @functools.wraps(measured)
    def one_at_a_time(*args: Any, **options: Any) -> Any:
        with alone(lock):
            return measured(*args, **options)
    owner.benchmark_gpu = one_at_a_time


def compile_one(name: str, result: Path, lock: Path) -> None:
    """A row in every mode; after each its seconds are written down."""
    from gpu import choice, peers, rows
    cp, torch = importlib.import_module("cupy"), importlib.import_module("torch")
    peers.alike(torch)
    _measure_alone(lock)
    with alone(lock):
        work = choice.named(name).make(rows.Make(cp, torch, cp.random.default_rng(0)))
        tensors = [torch.from_dlpack(x) for x in work.inputs.values()]
        torch.cuda.synchronize()
    took: dict[str, float] = {}
    for peer, mode in peers.MODES.items():
        begin = time.perf_counter()
        peers.compiled(torch, work.torch, tensors, mode)()
        torch.cuda.synchronize()
        took[peer] = round(time.perf_counter() - begin, 1)
        temporary = result.with_suffix(".part")
        temporary.write_text(json.dumps({"start_s": took, "done": len(took) == len(peers.MODES)}))
        os.replace(temporary, result)


if __name__ == "__main__":
    sys.path[:1] = [str(HERE.parents[2]), str(HERE.parents[1])]
    compile_one(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
