"""Three 5x5 blurs in a chain at 1080p: what the cost model of `fuse` says that each choice moves, beside what the hardware counts (ncu).

Each choice is compiled with static sizes, run under `ncu` in a process of its own, and timed. The model's bytes are those that `--explain` prints. With one
frame everything fits into the L2, where sectors tell; sixteen frames go to memory. `python blurs.py FRAMES CHANNELS CHOICE` is that process.
"""
from __future__ import annotations

import importlib
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [p for p in (str(ROOT), str(ROOT / "benchmarks")) if p not in sys.path]
from gpu import counters  # noqa: E402

CHOICES = {"as fused": "", "each by itself": "fuse{nodes=1}"}
"""What is compared: the options of the pass."""
SHAPES = ((1, 1), (1, 3), (16, 1))
"""Frames and channels."""
METRICS = {"dram__bytes_read.sum": "DRAM read", "dram__bytes_write.sum": "DRAM written", "lts__t_sectors_op_read.sum": "L2 sectors read",
           "lts__t_sectors_op_write.sum": "L2 sectors written"}
SECTOR = 32


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
    kernels, said = counters.profiled(Path(__file__).resolve(), [str(frames), str(channels), choice], tuple(METRICS))
    return summed([found for _, found in kernels]) or {"counters": said}


def summed(kernels: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Sums over kernels."""
    return {name: sum(k.get(metric, 0) for k in kernels) for metric, name in METRICS.items()} if kernels else {}


def one_call(frames: int, channels: int, choice: str) -> None:
    """What is profiled."""
    cp = importlib.import_module("cupy")
    x, k = cp.ones((frames, 1080, 1920, channels), cp.float32), cp.full((5, 5), 0.04, cp.float32)
    p = compiled(frames, channels, choice)
    counters.one_call(lambda: p(x=x, k=k))


if __name__ == "__main__":
    one_call(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
