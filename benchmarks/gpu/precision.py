"""What policies gain on this device: the programs of `examples/precision` as they are written, in f16, and as their policies for this device leave them; and
the product of bytes beside that of f16, ours and cuBLASLt's.

Both plans come from one text. Before anything is timed, results are compared: the lowered plan's with those in f16, and pictures with those without noise.
All take turns on the same arrays, with the L2 emptied before each call.
"""
from __future__ import annotations

import importlib
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [p for p in (str(ROOT), str(ROOT / "benchmarks")) if p not in sys.path]
EXAMPLES = ROOT / "examples" / "precision"
WITHOUT = ("push-policies", "lower-precision")
TURNS, WARM = 25, 3

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A program with policies, its arrays, and what else is told of two results of one call (in f16, lowered)."""

    program: Any
    inputs: Mapping[str, Array]
    params: Mapping[str, Array]
    judge: Callable[[Array, Array], Mapping[str, float]] = lambda f16, low: {}
    calibrate: Sequence[Mapping[str, Array]] = ()
    """Samples for ranges, where no file with ranges lies beside the program."""
    notes: Mapping[str, Any] = field(default_factory=dict)


def _data() -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module("data")


def _weights(name: str) -> dict[str, Array]:
    with np.load(EXAMPLES / f"{name}.npz") as file:
        return {n: file[n] for n in file.files}


def _denoiser(count: int = 32, size: int = 256) -> Case:
    data, rng = _data(), np.random.default_rng(5)
    clean = data.shapes(rng, count, size)

    def judge(f16: Array, low: Array) -> dict[str, float]:
        a, b = (float(-10 * np.log10(np.mean((x.astype(np.float64) - clean) ** 2))) for x in (f16, low))
        return {"psnr f16": a, "psnr lowered": b, "psnr lost": a - b}
    return Case(EXAMPLES / "denoiser.plir", {"noisy": data.noisy(rng, clean)}, _weights("denoiser"), judge)


def _inspection(count: int = 32, size: int = 256) -> Case:
    data, rng = _data(), np.random.default_rng(6)
    parts, _ = data.defects(rng, count)
    tiles = (size + 63) // 64
    # A part is as large as it was in training, and repeated.
    part = np.tile(parts, (1, tiles, tiles, 1))[:, :size, :size]

    def judge(f16: Array, low: Array) -> dict[str, float]:
        return {"same class": float((f16.argmax(1) == low.argmax(1)).mean())}
    return Case(EXAMPLES / "inspection.plir", {"part": part}, _weights("inspection"), judge)


def _transformer(batch: int = 16, length: int = 512) -> Case:
    data = _data()
    return Case(EXAMPLES / "transformer.plir", data.transformer(np.random.default_rng(7), batch, length)[0], data.transformer_weights())


def ffn_text(channels: int, hidden: int) -> str:
    """The feed-forward layer of the transformer alone, of other widths, both products as bytes."""
    text = (EXAMPLES / "transformer.plir").read_text(encoding="utf-8")
    found = re.search(r"op @ffn\(.*?\n}\n", text, re.DOTALL)
    assert found is not None
    op = found[0].replace("  graph {", "  downgrade sm_90 { dtype = i8 }\n  graph {", 1)
    e, f = channels, hidden
    return (f"import std.nn\n\n{op}\npipeline @layer(%x: tensor<BxSx{e}xf16>, param %w1: tensor<{e}x{f}xf16>, param %b1: tensor<{f}xf16>, "
            f"param %w2: tensor<{f}x{e}xf16>, param %b2: tensor<{e}xf16>) -> (%y: tensor<BxSx{e}xf16>) {{\n"
            "  %y = @ffn(%x, %w1, %b1, %w2, %b2) as ffn\n}\n")


def _ffn(batch: int = 32, length: int = 512, channels: int = 1024, hidden: int = 4096) -> Case:
    rng = np.random.default_rng(8)

    def normal(*shape: int, terms: int = 1) -> Array:
        return (rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(terms))).astype(np.float16)
    params = {"w1": normal(channels, hidden, terms=channels), "b1": normal(hidden, terms=100), "w2": normal(hidden, channels, terms=hidden),
              "b2": normal(channels, terms=100)}
    x = normal(batch, length, channels)
    return Case(ffn_text(channels, hidden), {"x": x}, params, calibrate=[{"x": x[:1]}])


CASES: dict[str, Callable[..., Case]] = {
    "denoiser 32x256x256, 32 channels": _denoiser, "inspection net 32x256x256": _inspection,
    "transformer block 16x512, 1024 channels": _transformer, "feed-forward 32x512, 1024 to 4096 channels and back": _ffn,
}


def passes(target: str = "cuda") -> str:
    """The passes of a target but for those of policies."""
    from pipelink_ir.passes.pipeline import ALIASES
    return ",".join(p for p in ALIASES[target].split(",") if p.partition("{")[0] not in WITHOUT)


def plans(case: Case, target: str = "cuda", lowered: str | None = None) -> tuple[Any, Any]:
    """The program in f16 and as its policy leaves it; by the passes `lowered`, if they are not those of the target."""
    import pipelink_ir as pl
    calibration = None
    if case.calibrate:
        calibration = Path(tempfile.mkdtemp()) / "ranges.calibration.yaml"
        pl.calibrate(case.program, case.calibrate, params=case.params, on="cpu", output=calibration)
    f16 = pl.compile(case.program, target=target, passes=passes(target))
    return f16, pl.compile(case.program, target=target, passes=lowered, calibration=calibration)


def _compiled_once(name: str) -> None:
    """Leaves the kernels of a row in the cache."""
    plans(CASES[name]())


def compare(keep: Callable[..., None]) -> None:
    """Every program, then the products. What is compiled is compiled side by side, and kept in the cache, before it is met here."""
    cp = importlib.import_module("cupy")
    from gpu.measure import Clock
    clock, rows = Clock(cp), {}
    wrong = []

    def row(name: str, make: Callable[[], dict[str, Any]]) -> None:
        begin = time.perf_counter()
        try:
            rows[name] = make()
        except Exception as error:
            rows[name] = {"fault": f"{type(error).__name__}: {error}"[:1500]}
            wrong.append(name)
        cp.get_default_memory_pool().free_all_blocks()
        rows[name]["spent"] = round(time.perf_counter() - begin, 1)
        print(name, rows[name], flush=True)
        keep(rows=rows, summary=summary(rows))

    with ProcessPoolExecutor(len(CASES), mp_context=get_context("spawn")) as pool:
        compiled = {name: pool.submit(_compiled_once, name) for name in CASES}
        row(PRODUCT, lambda: _products(cp, clock))
        for name, make in CASES.items():
            compiled[name].exception()  # it is met again here
            row(name, lambda make=make: _case(cp, clock, make()))
    if wrong:
        raise SystemExit(f"rows with faults: {wrong}")


def _case(cp: Any, clock: Any, case: Case) -> dict[str, Any]:
    f16, low = plans(case)
    inputs = {n: cp.asarray(a) for n, a in case.inputs.items()}
    params = {n: cp.asarray(a) for n, a in case.params.items()}
    calls = {"f16": f16.bind(**params), "lowered": low.bind(**params)}
    results = {n: next(iter(call(**inputs).values())).get() for n, call in calls.items()}
    found: dict[str, Any] = {"relative error": relative(results["lowered"], results["f16"]), **case.judge(results["f16"], results["lowered"])}
    found["kernels"] = {n: call.rest.executable.statistics["kernels"] for n, call in calls.items()}
    found["nodes"] = sum(e.kind == "lowered" for e in low.ledger)
    said = [e.text() for e in low.ledger if e.kind in ("priced", "lowered") or "does not pay" in e.text()]
    found["policies"] = [re.sub(r"^.*?: (priced|lowered|declined)", r"\1", text)[:300] for text in said]
    return found | _timed(clock, {n: lambda call=call: call(**inputs) for n, call in calls.items()}, "f16", "lowered")


def relative(result: Array, reference: Array) -> float:
    """The largest error over the largest magnitude."""
    a, b = result.astype(np.float64), reference.astype(np.float64)
    return float(np.abs(a - b).max() / np.abs(b).max())


def _timed(clock: Any, calls: Mapping[str, Callable[[], Any]], *pair: str) -> dict[str, Any]:
    from gpu.measure import interval
    times: dict[str, list[float]] = {n: [] for n in calls}
    for turn in range(TURNS + WARM):
        for name, call in calls.items():
            ms = clock(call)
            if turn >= WARM:
                times[name].append(ms)
    slow, fast = pair
    return {"ms": {n: statistics.median(t) for n, t in times.items()}, "ratio": statistics.median(times[slow]) / statistics.median(times[fast]),
            "interval": interval(times[slow], times[fast])}


PRODUCT = "product 8192x4096x16384"
_PRODUCT = ("op @product(%x: tensor<NxKx{0}>, %w: tensor<KxMx{0}>) -> (%y: tensor<NxMx{1}>) {{ compute {{ %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) }} }}\n"
            "pipeline @p(%x: tensor<NxKx{0}>, param %w: tensor<KxMx{0}>) -> (%y: tensor<NxMx{1}>) {{ %y = @product(%x, %w) }}\n")

_PRODUCT_F8 = ("op @product(%x: tensor<NxKxf8e4m3>, %w: tensor<MxKxf8e4m3>) -> (%y: tensor<NxMxf16>) {\n  compile { accuracy = f8 }\n"
               "  compute { %y[i, j] = sum[k < K](%x[i, k] * %w[j, k]) }\n}\n"
               "pipeline @p(%x: tensor<NxKxf8e4m3>, param %w: tensor<MxKxf8e4m3>) -> (%y: tensor<NxMxf16>) { %y = @product(%x, %w) }\n")
F8_ERROR = 2e-3
"""Of a product of normal numbers in f8 with the sums of tensor cores, of its largest value."""


def _products(cp: Any, clock: Any) -> dict[str, Any]:
    """Bytes and f8 beside f16: ours, and cuBLASLt's with the weights by terms, which its products of bytes ask for, the one of f8 with slow and fast sums."""
    torch = importlib.import_module("torch")

    import pipelink_ir as pl
    rng = np.random.default_rng(9)
    codes = [rng.integers(-127, 128, shape, dtype=np.int8) for shape in ((8192, 4096), (4096, 16384))]
    bytes_ = [cp.asarray(a) for a in codes]
    halves = [(a / 127).astype(cp.float16) for a in bytes_]
    ours_f16 = pl.compile(_PRODUCT.format("f16", "f16"), target="cuda").bind(w=halves[1])
    ours_i8 = pl.compile(_PRODUCT.format("i8", "i32"), target="cuda").bind(w=bytes_[1])
    x16, w16, x8 = torch.from_dlpack(halves[0]), torch.from_dlpack(halves[1]), torch.from_dlpack(bytes_[0])
    w8 = torch.from_dlpack(bytes_[1]).t().contiguous().t()
    wanted = torch._int_mm(x8, w8)
    if not bool((torch.from_dlpack(next(iter(ours_i8(x=bytes_[0]).values()))) == wanted).all()):
        return {"fault": "the product of bytes is wrong"}
    xf, wf = (torch.randn(shape, device="cuda").to(torch.float8_e4m3fn) for shape in ((8192, 4096), (16384, 4096)))
    ours_f8, one = pl.compile(_PRODUCT_F8, target="cuda").bind(w=wf), torch.ones((), device="cuda")
    made, exact = torch.from_dlpack(next(iter(ours_f8(x=xf).values())))[:256].double(), xf[:256].double() @ wf.double().t()
    error = float((made - exact).abs().max() / exact.abs().max())
    if not error <= F8_ERROR:
        return {"fault": f"the product of f8 is off by {error}"}

    def theirs(fast: bool) -> Any:
        return torch._scaled_mm(xf, wf.t(), scale_a=one, scale_b=one, out_dtype=torch.float16, use_fast_accum=fast)
    calls = {"f16": lambda: ours_f16(x=halves[0]), "i8": lambda: ours_i8(x=bytes_[0]), "cuBLASLt f16": lambda: x16 @ w16,
             "cuBLASLt i8": lambda: torch._int_mm(x8, w8), "f8": lambda: ours_f8(x=xf), "cuBLASLt f8": lambda: theirs(False),
             "cuBLASLt f8, fast sums": lambda: theirs(True)}
    found = _timed(clock, calls, "f16", "i8")
    return found | {"ratio of cuBLASLt": found["ms"]["cuBLASLt f16"] / found["ms"]["cuBLASLt i8"], "error of f8": error,
                    "f8 beside cuBLASLt": found["ms"]["f8"] / found["ms"]["cuBLASLt f8"]}


def summary(rows: Mapping[str, Any]) -> str:
    """A line for each row."""
    out = []
    for name, row in rows.items():
        if "fault" in row:
            out.append(f"{name}: fault")
            continue
        slow, fast = ("f16", "i8") if name == PRODUCT else ("f16", "lowered")
        if name == PRODUCT:
            beside = f", cuBLASLt {row['ratio of cuBLASLt']:.2f}, f8 {row['f8 beside cuBLASLt']:.2f} times its time there"
        else:
            beside = f", error {row['relative error']:.3f}, {row['nodes']} nodes lowered"
        out.append(f"{name}: {row['ms'][slow]:.4f} in f16, {row['ms'][fast]:.4f} {fast}, {row['ratio']:.2f}{beside}")
    return "; ".join(out)
