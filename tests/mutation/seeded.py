"""Seeds faults by hand, one at a time, in a copy of the tree, and asks the tests whether they see each.

    make mutation                                   all of them; about half an hour on two cores for each suite
    python tests/mutation/seeded.py reflect wrap    those with these words in their names
    python tests/mutation/seeded.py --suite cpu --record out/seeded-faults.md

Exit code 0 if every fault is found. A run of the tests that stops for another reason than a failing test (nothing collected, a broken import) does not count.
"""
from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutation.cuda_faults import CUDA_FAULTS
from tests.mutation.faults import FAULTS, Fault
from tests.mutation.precision_faults import PRECISION_FAULTS

ROOT = Path(__file__).resolve().parents[2]
SUITES = {
    "cpu": ("not emulated", ("tests/constructs", "tests/cases", "tests/unit/loops", "tests/unit/cpu", "tests/fuzz")),
    "cuda": ("emulated", ("tests/unit/cuda_emulated", "tests/cases", "tests/constructs", "tests/unit/test_std.py", "tests/fuzz")),
    "precision": ("not emulated", ("tests/unit/precision", *(f"tests/unit/passes/test_{n}.py" for n in (
        "calibrated", "push_policies", "lower_precision", "estimate", "price", "lower_precision_nodes", "policy_combinations", "own_kernels", "hostile_policies")),
                                   *(f"tests/unit/runtime/test_{n}.py" for n in ("calibration_codes", "calibrate_odd", "calibration_methods", "calibrate")),
                                   "tests/unit/cli/test_calibrate.py", "tests/faulty", "tests/fuzz/test_policies.py")),
}
"""What has to find a fault: which tests (`-k`) of which folders."""
ALL = (*FAULTS, *CUDA_FAULTS, *PRECISION_FAULTS)
TIMEOUT = 900


@dataclass(frozen=True)
class Outcome:
    """What became of one fault: `found` by `by`, or not; `why` if the tests could not tell."""

    fault: Fault
    found: bool
    by: str
    seconds: float


def copy_tree(to: Path) -> None:
    """What git knows of the working tree, links as links."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in names.decode().split("\0"):
        source = ROOT / name
        if not name or not (source.exists() or source.is_symlink()):
            continue
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, to / name, follow_symlinks=False)


def write(path: Path, text: str) -> None:
    """A changed source: what Python compiled of the old one goes, too."""
    path.write_text(text, encoding="utf-8")
    for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        old.unlink()


def run_tests(tree: Path, cache: Path, suite: str) -> tuple[int | None, str, str]:
    """(exit code, None if it took too long; the first failing test; the end of what was printed)."""
    env = {**os.environ, "PIPELINK_CACHE_DIR": str(cache), "PYTHONPATH": str(tree)}
    words, tests = SUITES[suite]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "--fuzz-unshrunk", "-k", words, *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return None, "", ""
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return done.returncode, failed.group(1) if failed else "", (done.stdout + done.stderr)[-600:]


def seed(fault: Fault, tree: Path, cache: Path) -> Outcome:
    """One fault, put in and taken out again."""
    path = tree / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        return Outcome(fault, False, f"the place is there {text.count(fault.old)} times: the list is out of date", 0.0)
    write(path, text.replace(fault.old, fault.new))
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as own:
            code, test, end = run_tests(tree, Path(own) if fault.own_cache else cache, fault.suite)
    finally:
        write(path, text)
    seconds = time.monotonic() - start
    if code is None:
        return Outcome(fault, True, "the tests do not end", seconds)
    if code < 0:
        return Outcome(fault, True, f"the tests are ended by signal {-code}", seconds)
    if code == 1 and test:
        return Outcome(fault, True, test, seconds)
    return Outcome(fault, False, "all tests pass" if code == 0 else f"pytest ended with {code}: {end}", seconds)


def record(outcomes: list[Outcome]) -> str:
    """The outcome as a page."""
    found = sum(o.found for o in outcomes)
    lines = ["# Faults seeded by hand", "",
             f"**{found} of {len(outcomes)} found.** `tests/mutation/` has each as a change of a few characters; `make mutation` seeds them again, one at a time, in a copy of",
             "the tree, and runs the tests up to the first that fails: those of constructs, cases, loop form, CPU backend and generated programs, those on the emulated GPU, or those of",
             "policies, codes and calibration.", "",
             "| fault | file | found by |", "|---|---|---|"]
    for o in outcomes:
        test = o.by.replace("tests/constructs/test_constructs.py::", "constructs: ").replace("|", "\\|")
        lines.append(f"| {o.fault.name} | `{o.fault.file}` | {'' if o.found else '**not found**: '}{test if ' ' in test and '::' not in test else f'`{test}`'} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*", help="only faults with one of these words in their names")
    parser.add_argument("--record", type=Path, help="write the outcome to this file")
    parser.add_argument("--suite", choices=SUITES, help="only faults for these tests")
    parser.add_argument("--skip-sound", action="store_true", help="do not first assert that the tests pass without a fault")
    args = parser.parse_args()
    faults = [f for f in ALL if args.suite in (None, f.suite) and (not args.words or any(w in f.name for w in args.words))]
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        tree, cache = Path(folder) / "tree", Path(folder) / "cache"
        copy_tree(tree)
        if not args.skip_sound:
            for suite in dict.fromkeys(f.suite for f in faults):
                code, test, end = run_tests(tree, cache, suite)
                if code != 0:
                    print(f"the tests fail without any fault: {test or end}")
                    return 2
        outcomes = []
        for fault in faults:
            o = seed(fault, tree, cache)
            outcomes.append(o)
            print(f"{'found    ' if o.found else 'NOT FOUND'} {o.seconds:5.0f} s  {fault.name}\n                   {o.by}", flush=True)
    print(f"{sum(o.found for o in outcomes)} of {len(outcomes)} found")
    if args.record:
        args.record.write_text(record(outcomes), encoding="utf-8")
    return 0 if all(o.found for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
