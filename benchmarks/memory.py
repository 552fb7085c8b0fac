"""What a call needs beside its inputs and results: the arena as it is planned, and the bound that no plan goes below, for every case, example and MobileNetV2.

The last columns are what a library that makes a tensor for each node needs (PyTorch in eager mode): results live until their last use, nothing is fused, the
pipeline's results included; first computed from the nodes as they are written, then, on a machine with PyTorch and a GPU, measured for MobileNetV2.
Sizes follow from shapes alone; nothing is run but that. `python benchmarks/memory.py [WORD…]` takes the programs in whose names a word is.
"""
from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(p) for p in (Path(__file__).resolve().parent, Path(__file__).resolve().parent.parent) if str(p) not in sys.path]
from common import ROOT, save  # noqa: E402
from models import mobilenet_v2  # noqa: E402

import pipelink_ir as pl  # noqa: E402

Shapes = Mapping[str, Sequence[int]]

EXAMPLES: dict[str, Shapes] = {
    "attention_block": {"x": (8, 128, 256), "mask": (8, 128), "g1": (256,), "c1": (256,), "wq": (256, 8, 32), "wk": (256, 8, 32), "wv": (256, 8, 32),
                        "wo": (8, 32, 256), "g2": (256,), "c2": (256,), "w1": (256, 1024), "b1": (1024,), "w2": (1024, 256), "b2": (256,)},
    "denoise": {"noisy": (1, 1080, 1920, 3)},
    "edge": {"photo": (1, 1080, 1920, 3)},
    "preprocess": {"photo": (1, 1080, 1920, 3), "mean": (3,), "std": (3,)},
    "rows": {"x": (4096, 1024), "g": (1024,), "b": (1024,)},
    "vignette": {"photo": (1, 1080, 1920, 3)},
}
"""Sizes of the inputs of `examples/`."""

PRECISION: dict[str, tuple[Shapes, tuple[str, ...]]] = {
    "denoiser": ({"noisy": (32, 256, 256, 1)}, ("sm_80", "sm_87", "sm_90")),
    "inspection": ({"part": (32, 256, 256, 1)}, ("sm_75", "sm_87", "sm_90")),
    "transformer": ({"x": (16, 512, 1024), "mask": (16, 512)}, ("sm_75", "sm_87", "sm_90")),
}
"""Sizes of the inputs of `examples/precision`, and the devices that have policies; parameters have the shapes that are declared."""


@dataclass(frozen=True, slots=True)
class Line:
    """One program, in bytes. `ratio` is peak / bound, 1 where nothing is needed."""

    name: str
    kernels: int
    peak: int
    bound: int
    results: int
    eager: int
    measured: int | None = None

    @property
    def ratio(self) -> float:
        return self.peak / self.bound if self.bound else 1.0 if not self.peak else math.inf


def programs() -> Iterator[tuple[str, Any, Shapes]]:
    """Name, program and the shapes of its inputs."""
    for path in sorted((ROOT / "tests" / "cases").glob("*.plir")):
        with np.load(path.with_suffix(".npz")) as data:
            yield f"case {path.stem}", path, {k[3:]: data[k].shape for k in data.files if k.startswith("in.")}
    for path in sorted((ROOT / "examples").glob("*.plir")):
        yield f"example {path.stem}", path, EXAMPLES[path.stem]
    yield "64 small nodes", _small(), {f"x{c}": (256, 256) for c in range(8)}
    blur = ROOT / "benchmarks" / "models" / "blurs.plir"
    yield "blurs 1080p", blur, {"x": (1, 1080, 1920, 1), "k": (5, 5)}
    yield "mobilenet_v2 224x224", mobilenet_v2.program(), {"img": (1, 224, 224, 3), **mobilenet_v2.shapes()}


def lowered() -> Iterator[tuple[str, Any, Shapes, str]]:
    """The examples with policies, as they are and as each policy leaves them, which runs on a GPU."""
    from pipelink_ir.ir.nodes import IntLit
    from pipelink_ir.runtime.compile import read
    for name, (given, archs) in PRECISION.items():
        path = ROOT / "examples" / "precision" / f"{name}.plir"
        declared = {o.name: tuple(d.value for d in o.type.dims if isinstance(d, IntLit)) for o in read(path).pipelines[-1].inputs}
        shapes = declared | dict(given)
        yield f"example {name}", path, shapes, "cuda-emulated"
        for arch in archs:
            yield f"example {name} {arch}", path, shapes, f"cuda-emulated:{arch}"


def _small() -> str:
    from gpu.rows import small_nodes
    return small_nodes()


def line(name: str, program: Any, shapes: Shapes, target: str = "cpu") -> Line:
    """What one program needs."""
    compiled = pl.compile(program, target=target)
    peak, bound, kernels, results = planned(compiled, [tuple(shapes[o.name]) for o in compiled.inputs])
    return Line(name, kernels, peak, bound, results, eager_peak(program, shapes), measured() if name.startswith("mobilenet") else None)


def planned(compiled: Any, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int, int, int]:
    """Bytes of the arena, the bound, kernels, bytes of the results."""
    from pipelink_ir.backends.planning import Planner
    plan = Planner(compiled.executable.pipeline, compiled.executable.units).run(shapes)
    memory = plan.memory
    return memory.peak, memory.lower_bound, len(plan.steps), sum(math.prod(s) * d.bytes for s, d in plan.results)


def eager_peak(program: Any, shapes: Shapes) -> int:
    """The most bytes of tensors that live at one time if each node makes one and each is given back after its last use; inputs are not counted."""
    from pipelink_ir.ir.diagnostics import Report
    from pipelink_ir.ir.dtypes import DTYPES
    from pipelink_ir.ir.evaluate import evaluate_int
    from pipelink_ir.ir.nodes import Alias, Edge, Node
    from pipelink_ir.ir.shapes import bind_shapes
    from pipelink_ir.passes.manager import parse_passes, run_passes
    from pipelink_ir.runtime.compile import read
    module = run_passes(read(program), parse_passes("frontend,flatten"), Report())
    pipeline = module.pipelines[0]
    env: dict[str, int] = {}
    bind_shapes([(o.type, shapes[o.name]) for o in pipeline.inputs], env)
    for a in pipeline.attributes:
        if a.type == "dim" and a.default is not None:
            env[a.name] = evaluate_int(a.default, env)

    nodes = [n for n in pipeline.nodes if isinstance(n, Node)]
    origin = {n.name.name: n.of.name for n in pipeline.nodes if isinstance(n, Alias)}
    last: dict[str, int] = {}
    for i, n in enumerate(nodes):
        for edge in (e for e in n.args if isinstance(e, Edge)):
            last[origin.get(edge.name, edge.name)] = i
    last |= {origin.get(r.name, r.name): len(nodes) for r in pipeline.results}
    live: dict[str, int] = {}
    peak = 0
    for i, n in enumerate(nodes):
        for edge, t in zip(n.results, n.types, strict=True):
            live[edge.name] = math.prod(max(0, evaluate_int(d, env)) for d in t.dims) * DTYPES[t.dtype].bytes
        peak = max(peak, sum(live.values()))
        for name in [e for e in live if last.get(e, i) <= i]:
            del live[name]
    return peak


def measured() -> int | None:
    """What PyTorch takes for MobileNetV2 on a GPU beyond its inputs; None without either."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return None
    run = mobilenet_v2.by_torch(torch)
    arrays = [torch.from_numpy(a).cuda() for a in mobilenet_v2.arrays(np.random.default_rng(0)).values()]
    with torch.no_grad():
        run(*arrays)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(*arrays)
        torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def main() -> int:
    words = [w.lower() for w in sys.argv[1:]]
    wanted = chain(((*p, "cpu") for p in programs()), lowered())
    lines = [line(*p) for p in wanted if not words or any(w in p[0].lower() for w in words)]
    print(f"{'memory in KiB':<28} {'kernels':>7} {'peak':>10} {'bound':>10} {'ratio':>6} {'with results':>13} {'eager':>10} {'PyTorch, measured':>18}")
    for e in lines:
        told = f"{e.measured / 1024:>18.1f}" if e.measured is not None else f"{'':>18}"
        print(f"{e.name:<28} {e.kernels:>7} {e.peak / 1024:>10.1f} {e.bound / 1024:>10.1f} {e.ratio:>6.3f} {(e.peak + e.results) / 1024:>13.1f} "
              f"{e.eager / 1024:>10.1f} {told}".rstrip())
    print(f"  the greatest ratio is {max((e.ratio for e in lines), default=1):.3f}")
    if not words:
        save("memory", {"rows": [asdict(e) | {"ratio": e.ratio} for e in lines]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
