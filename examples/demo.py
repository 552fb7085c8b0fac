"""`make demo`: compile `edge.plir`, run it on a photograph, write `out/edges.png`, and say in a few lines what was done."""
from __future__ import annotations

import itertools
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.runtime.compile import compile_module, read
from pipelink_ir.runtime.targets import parse_target

ROOT = Path(__file__).resolve().parent.parent
PROGRAM, PHOTO, PICTURE = "examples/edge.plir", "examples/data/coffee.png", "out/edges.png"
RUNS = 9


def main() -> int:
    laps = [time.perf_counter()]
    try:
        module = read(ROOT / PROGRAM)
        laps.append(time.perf_counter())
        edge = compile_module(module, parse_target("cpu"))  # pl.compile(…) in three steps, for the clock
    except ProgramError as error:
        print(error, file=sys.stderr)
        return 1
    laps.append(time.perf_counter())
    executable = edge.executable
    laps.append(time.perf_counter())

    with Image.open(ROOT / PHOTO) as image:
        photo = np.asarray(image.convert("RGB"))[None]
    took = []
    for _ in range(RUNS):
        start = time.perf_counter()
        edges = edge(photo=photo).edges
        took.append(1000 * (time.perf_counter() - start))
    (ROOT / PICTURE).parent.mkdir(exist_ok=True)
    Image.fromarray(edges[0, :, :, 0]).save(ROOT / PICTURE)

    parse, passes, backend = (1000 * (b - a) for a, b in itertools.pairwise(laps))
    made = "".join(f", {value} {what}" for what, value in getattr(executable, "statistics", {}).items())
    print(f"""\
PipeLink IR compiled {PROGRAM} and ran it on {PHOTO} ({photo.shape[2]} x {photo.shape[1]} pixels).
  parse    {parse:7.1f} ms
  passes   {passes:7.1f} ms   {edge.passes.replace(',', ', ')}: {len(edge.pipeline.nodes)} nodes
  backend  {backend:7.1f} ms   {edge.target.name}{made}
  run      {statistics.median(took):7.1f} ms   median of {RUNS}; the first took {took[0]:.1f} ms
The picture is {PICTURE}. What the compiler did, step by step:
  .venv/bin/pipelinkc {PROGRAM} --print-ir-after-all""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
