#!/usr/bin/env python3
"""Everything that needs a GPU, in one command: `python benchmarks/gpu_check.py --out DIR [--steps correctness,speed]`.

Each step runs in a process of its own with a time limit, so nothing hangs and one fault does not hide the rest; `DIR/gpu_check.json` is written anew after
each, with what a step had found when its time was up. Packages that the machine lacks are installed from wheels (`--wheels DIR`, default `wheels` beside this
repository), offline. Exit status 0 only if every step is fine.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TAIL = 6000
"""Characters of a step's output that are kept."""
SHARE = 0.6
"""Of the time of the step `bench`: what may go by before anything is timed (`--ahead`)."""


@dataclass(frozen=True)
class Step:
    """One step: the function of `gpu/steps.py`, the seconds that it may take, and the group that it belongs to."""

    name: str
    seconds: int
    group: str
    says: str


STEPS = (
    Step("environment", 90, "correctness", "versions, and what the device is"),
    Step("check_run", 240, "correctness", "tests/cases by the command, against the results beside them"),
    Step("run_time", 300, "correctness", "tests/gpu/test_run_time.py: arrays, streams, graphs, memory, faults of section F"),
    Step("gpu_tests", 300, "correctness", "the other tests of tests/gpu: numerics, blocks, reported faults, random programs"),
    Step("fuzz", 400, "correctness", "2,004 random programs, against the intervals of the reference"),
    Step("overhead", 120, "speed", "host time of a call by launches and by replay, for 1, 10 and 100 kernels, beside a bare launch"),
    Step("soak", 180, "speed", "10,000 calls: alternating sizes and memory, four threads, two streams; memory stays flat"),
    Step("bench", 420, "speed", "the rows of the table, beside PyTorch, torch.compile and CuPy"),
    Step("precision", 120, "speed", "examples/precision in f16 and lowered by their policies, and products of bytes beside those of f16"),
    Step("blurs", 200, "counters", "three blurs in a chain, fused and not: bytes by the cost model beside those that the hardware counts"),
    Step("limits", 200, "counters", "what the kernels of rows wait for (`--rows`; the sobel and resize rows without it), as the hardware counts it"),
    Step("memcheck", 300, "sanitizer", "compute-sanitizer over the cases: accesses outside"),
    Step("racecheck", 300, "sanitizer", "the same: races in shared memory"),
    Step("synccheck", 200, "sanitizer", "the same: barriers"),
    Step("initcheck", 300, "sanitizer", "the same: memory that nobody has written"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="where gpu_check.json goes")
    parser.add_argument("--steps", default="correctness,speed,sanitizer", help="names of steps or of groups, in the order of --list")
    parser.add_argument("--budget", type=float, default=570, help="seconds for all steps together (default 570)")
    parser.add_argument("--wheels", type=Path, default=ROOT / "wheels", help="wheels of packages that may be missing")
    parser.add_argument("--rows", nargs="+", default=[], metavar="WORD", help="of `bench` and `limits` only rows in whose names one of these words is")
    parser.add_argument("--peers", choices=("usual", "all", "none"), default="usual",
                        help="beside whom rows are timed; `all` adds max-autotune")
    parser.add_argument("--ahead", action=argparse.BooleanOptionalAction, default=None,
                        help="compile what others are for all rows side by side, before anything is timed (so with `--peers all`)")
    parser.add_argument("--list", action="store_true", help="list the steps")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=420, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.ahead = args.peers == "all" if args.ahead is None else args.ahead
    if args.list:
        print("\n".join(f"{s.name:12} {s.group:12} {s.seconds:4} s  {s.says}" for s in STEPS))
        return 0
    if args.run:
        return run_here(args)
    if args.out is None:
        parser.error("--out is needed")
    return run_all(chosen(parser, args.steps), args)


def chosen(parser: argparse.ArgumentParser, text: str) -> list[Step]:
    """The steps that are named, by themselves or by their group."""
    names = [n.strip() for n in text.split(",") if n.strip()]
    for n in names:
        if not any(n in (s.name, s.group) for s in STEPS):
            parser.error(f"there is no step or group '{n}'; --list shows them")
    return [s for s in STEPS if s.name in names or s.group in names]


def run_here(args: argparse.Namespace) -> int:
    """One step, in this process. It ends with an exception where something is wrong."""
    sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
    from gpu import steps
    steps.RESULT, steps.ROWS, steps.PEERS = args.result, tuple(args.rows), args.peers
    steps.AHEAD = SHARE * args.seconds if args.ahead else 0
    getattr(steps, args.run)()
    return 0


def options(args: argparse.Namespace) -> list[str]:
    """What a step is told of the command's options."""
    return ["--peers", args.peers, "--ahead" if args.ahead else "--no-ahead", *(["--rows", *args.rows] if args.rows else [])]


def run_all(wanted: Sequence[Step], args: argparse.Namespace) -> int:
    """All steps, one after the other."""
    args.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pipelink-") as folder:
        scratch = Path(folder)
        env, note = environment(scratch, args.wheels)
        report: dict[str, Any] = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "python": platform.python_version(), "wheels": note,
                                  "steps": {}}
        for step in wanted:
            left = args.budget - (time.monotonic() - begin)
            found = {"status": "skipped", "why": "no time was left"} if left < 15 else run_step(step, min(step.seconds, left - 5), scratch, env, options(args))
            report["steps"][step.name] = found
            report["seconds"] = round(time.monotonic() - begin, 1)
            save(args.out / "gpu_check.json", report)
            print(f"{step.name:12} {found['status']:8} {found.get('seconds', 0):6.1f} s  {found.get('summary') or found.get('why', '')}", flush=True)
            if found["status"] not in ("ok", "skipped"):
                print("\n".join("    " + line for line in found["output"].splitlines()[-12:]), flush=True)
    bad = [n for n, f in report["steps"].items() if f["status"] != "ok"]
    print(f"{len(wanted) - len(bad)} of {len(wanted)} steps are fine" + (f"; not {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


def environment(scratch: Path, wheels: Path) -> tuple[dict[str, str], str]:
    """The environment of the steps, with what had to be installed, and a note about that."""
    site = scratch / "site"
    files = sorted(map(str, wheels.glob("*.whl"))) if wheels.is_dir() else []
    note = "none given"
    if files:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir",
                   "--disable-pip-version-check", f"--find-links={wheels}", "--target", str(site), *files]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        note = f"{len(files)} installed" if done.returncode == 0 else f"pip failed: {done.stderr.strip()[-500:]}"
    # A package of somebody's that is called `tests` would win over the folder.
    (site / "tests").mkdir(parents=True, exist_ok=True)
    (site / "tests" / "__init__.py").write_text(f"__path__ = [{str(ROOT / 'tests')!r}]\n")
    paths = [str(site), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), "PIPELINK_CACHE_DIR": str(scratch / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(scratch / "inductor")), "PYTHONUNBUFFERED": "1"}, note


def run_step(step: Step, seconds: float, scratch: Path, env: dict[str, str], more: Sequence[str]) -> dict[str, Any]:
    """One step in a process of its own, and what it left."""
    result, log = scratch / f"{step.name}.json", scratch / f"{step.name}.log"
    command = [sys.executable, str(Path(__file__).resolve()), "--run", step.name, "--result", str(result), "--seconds", str(seconds), *more]
    begin = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, cwd=ROOT, start_new_session=True)
        try:
            status = "ok" if process.wait(seconds) == 0 else "failed" if process.returncode > 0 else "crashed"
        except subprocess.TimeoutExpired:
            status = "timeout"
            os.killpg(process.pid, signal.SIGKILL)  # the step and what it has started
            process.wait()
    out: dict[str, Any] = {"status": status, "seconds": round(time.monotonic() - begin, 1), "output": log.read_text(errors="replace")[-TAIL:]}
    if result.exists():
        try:
            out |= json.loads(result.read_text())
        except ValueError:
            out["why"] = "its result cannot be read"
    return out


def save(path: Path, report: dict[str, Any]) -> None:
    """Whole or not at all. Paths in messages become those of the repository: a record is kept there, and speaks of no machine's folders."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(report, indent=1).replace(json.dumps(f"{ROOT}/")[1:-1], "") + "\n", encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
