"""Everything that is measured, one after the other: `make bench`. On a machine with a GPU also the rows of the table there, beside whoever else is installed.

    python benchmarks/all.py                          # all of it
    python benchmarks/all.py memory gpu               # parts by name
    python benchmarks/all.py gpu --rows softmax       # rows of the GPU in whose names a word is
    python benchmarks/all.py gpu --peers all          # also max-autotune, which compiles all rows before

Each part prints its table and writes `benchmarks/results/<part>-<date>.json`; the rows of a GPU go to `benchmarks/results/<device>-<date>.json`.
"""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

sys.path[:0] = [str(p) for p in (Path(__file__).resolve().parent, Path(__file__).resolve().parent.parent) if str(p) not in sys.path]
from common import RESULTS, ROOT  # noqa: E402
from gpu import table  # noqa: E402

PARTS = tuple(n for n in ("startup", "edge_gamma", "binding", "passes", "memory") if (ROOT / "benchmarks" / f"{n}.py").exists())
GPU_STEPS = "environment,overhead,bench"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join((*PARTS, 'gpu'))}; all without one")
    parser.add_argument("--rows", nargs="+", default=[], metavar="WORD", help="of the GPU only rows in whose names one of these words is")
    parser.add_argument("--peers", choices=("usual", "all", "none"), default="usual", help="beside whom the rows of the GPU are timed")
    args = parser.parse_args()
    unknown = [p for p in args.parts if p not in (*PARTS, "gpu")]
    if unknown:
        parser.error(f"there is no part '{unknown[0]}'; there are {', '.join((*PARTS, 'gpu'))}")
    wrong = [p for p in PARTS if (not args.parts or p in args.parts) and not script(p)]
    if not args.parts or "gpu" in args.parts:
        why = no_gpu()
        if why is None:
            wrong += [] if gpu(args) else ["gpu"]
        else:
            print(f"gpu: left out, {why}")
            wrong += ["gpu"] if "gpu" in args.parts else []
    if wrong:
        print(f"not right: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def script(name: str) -> bool:
    """One of the scripts, in a process of its own."""
    return subprocess.run([sys.executable, str(ROOT / "benchmarks" / f"{name}.py")], check=False).returncode == 0


def no_gpu() -> str | None:
    """Why there are no rows of a GPU; None if there can be some."""
    from pipelink_ir.backends.cuda.opened import driver
    from pipelink_ir.ir.diagnostics import UsageError
    try:
        driver()
    except UsageError as error:
        return str(error)
    return None


def gpu(args: argparse.Namespace) -> bool:
    """The rows of the GPU, by `gpu_check.py`; whether all went well."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--out", folder, "--steps", GPU_STEPS, "--budget", "1500", "--peers", args.peers,
                   *(["--rows", *args.rows] if args.rows else [])]
        status = subprocess.run(command, check=False).returncode
        found = json.loads((Path(folder) / "gpu_check.json").read_text(encoding="utf-8"))
    print("\n".join(table.lines(found["steps"].get("bench", {}))))
    path = RESULTS / f"{device_name(found)}-{date.today().isoformat()}.json"
    if args.rows:
        print("  some rows alone are not written to a file")
    else:
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(record(found), indent=1) + "\n", encoding="utf-8")
        print(f"  written to {path.relative_to(ROOT)}")
    return status == 0


def device_name(found: Mapping[str, Any]) -> str:
    """`nvidia-h200`."""
    name = found["steps"].get("environment", {}).get("device", {}).get("name", "gpu")
    return re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")


def record(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a run: without the output of its steps, which is long."""
    steps = {name: {k: v for k, v in step.items() if k not in ("output", "profile")} for name, step in found["steps"].items()}
    return {"device": found["steps"].get("environment", {}).get("device", {}).get("name"), "date": date.today().isoformat(), **found, "steps": steps}


if __name__ == "__main__":
    sys.exit(main())
