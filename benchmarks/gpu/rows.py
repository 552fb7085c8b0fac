"""The rows of the table for a GPU: PipeLink beside PyTorch eager, torch.compile and CuPy, on the same arrays, interleaved, with the L2 flushed before each run.

Times are of the device, by events around a call on one stream, in ms. `floor` is the time that a copy of as many bytes takes, at the rate measured in the
same run. Results are checked against PyTorch in float64 (some elements of them) first.
"""
from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUNS = 25


@dataclass
class Row:
    """One workload. `program` is a path or a text; `torch` works on the same arrays as tensors, `exact` on float64; `bytes` must move."""

    name: str
    program: Any
    inputs: dict[str, Any]
    bytes: int
    torch: Callable[..., Any]
    exact: Callable[..., Any]
    tolerance: float
    cupy: Callable[..., Any] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


def pipeline(op: str, operands: str, call: str, result: str, imports: str = "import std.nn\n") -> str:
    return f"{imports}{op}pipeline @p({operands}) -> (%y: {result}) {{\n{call}\n}}\n"


RELU6 = pipeline("", "%x: tensor<Nxf32>", "  %y = @relu6(%x)", "tensor<Nxf32>")
GELU = pipeline("op @bias(%x: tensor<NxKxf16>, %b: tensor<Kxf16>) -> (%y: tensor<NxKxf16>) { compute { %y[n, k] = %x[n, k] + %b[k] } }\n",
                "%x: tensor<NxKxf16>, %b: tensor<Kxf16>", "  %s = @bias(%x, %b)\n  %y = @gelu_erf(%s)", "tensor<NxKxf16>")
NORM = pipeline("", "%x: tensor<NxKxf16>, %g: tensor<Kxf16>, %b: tensor<Kxf16>", "  %y = @layer_norm(%x, %g, %b)", "tensor<NxKxf16>")
SOFTMAX = pipeline("", "%x: tensor<NxKxf32>", "  %y = @softmax(%x)", "tensor<NxKxf32>")


def rows() -> Iterator[Row]:
    """Each made when it is its turn: the arrays are large."""
    cp = importlib.import_module("cupy")
    torch = importlib.import_module("torch")
    nn = torch.nn.functional
    rng = cp.random.default_rng(0)

    def normal(*shape: int, dtype: Any = cp.float32) -> Any:
        return rng.standard_normal(shape, dtype=cp.float32).astype(dtype)

    x = normal(64 << 20)
    yield Row("relu6 f32 64 Mi", RELU6, {"x": x}, 2 * x.nbytes, nn.relu6, nn.relu6, 0, lambda x: cp.clip(x, 0, 6))
    del x
    edges, cases = _sobel(torch), ROOT / "tests" / "cases"
    for n in (1, 16):
        img = 0.2 * rng.random((n, 1080, 1920, 3), dtype=cp.float32)
        yield Row(f"sobel+gamma f32 {n}x1080p", cases / "edge_gamma.plir", {"img": img}, img.nbytes * 4 // 3, edges, edges, 1e-5)
    del img
    img = rng.integers(0, 256, (16, 1080, 1920, 3), dtype=cp.uint8)
    mean, std = cp.asarray([0.485, 0.456, 0.406], dtype=cp.float32), cp.asarray([0.229, 0.224, 0.225], dtype=cp.float32)
    touched = 16 * 448 * (1920 // 32 * 3) * 32 + 16 * 3 * 224 * 224 * 2
    yield Row("resize+normalise+NCHW u8 16x1080p", cases / "preprocess.plir", {"img": img, "mean": mean, "std": std}, touched, _resize(torch, True),
              _resize(torch, False), 4e-3)
    del img
    x, b = normal(8192, 8192, dtype=cp.float16), normal(8192, dtype=cp.float16)
    yield Row("bias+gelu f16 8192^2", GELU, {"x": x, "b": b}, 2 * x.nbytes, lambda x, b: nn.gelu(x + b), lambda x, b: nn.gelu((x + b).half().double()), 2e-3)
    g = normal(8192, dtype=cp.float16)
    yield Row("layer_norm f16 8192^2", NORM, {"x": x, "g": g, "b": b}, 2 * x.nbytes, lambda x, g, b: nn.layer_norm(x, (8192,), g, b, 1e-5),
              lambda x, g, b: nn.layer_norm(x, (8192,), g, b, 1e-5), 4e-3)
    del x
    x = normal(8192, 8192)
    yield Row("softmax f32 8192^2", SOFTMAX, {"x": x}, 2 * x.nbytes, lambda x: torch.softmax(x, -1), lambda x: torch.softmax(x, -1), 1e-5)
    del x
    x, k = normal(32, 256, 112, 112, dtype=cp.float16), normal(256, 3, 3, dtype=cp.float16)

    def depthwise(x: Any, k: Any) -> Any:
        return nn.relu6(nn.conv2d(x, k[:, None], padding=1, groups=256))

    yield Row("depthwise 3x3 + relu6 f16 32x256x112^2", cases / "depthwise.plir", {"x": x, "k": k}, 2 * x.nbytes, depthwise, depthwise, 4e-3)


def _sobel(torch: Any) -> Callable[[Any], Any]:
    def run(img: Any) -> Any:
        p = torch.nn.functional.pad(img.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate")
        dx = p[:, :, :, 2:] - p[:, :, :, :-2]
        gx = dx[:, :, :-2] + 2 * dx[:, :, 1:-1] + dx[:, :, 2:]
        dy = p[:, :, 2:] - p[:, :, :-2]
        gy = dy[:, :, :, :-2] + 2 * dy[:, :, :, 1:-1] + dy[:, :, :, 2:]
        edges = torch.sqrt(gx * gx + gy * gy).mean(1, keepdim=True)
        return (torch.clamp(edges, 0, 1) ** (1 / 2.2)).permute(0, 2, 3, 1)
    return run


def _resize(torch: Any, half: bool) -> Callable[..., Any]:
    def run(img: Any, mean: Any, std: Any) -> Any:
        x = img.permute(0, 3, 1, 2)
        x = x.float() if half else x.double()
        x = torch.nn.functional.interpolate(x, (224, 224), mode="bilinear", align_corners=False)
        x = (x / 255 - mean[:, None, None]) / std[:, None, None]
        return x.half() if half else x
    return run


def run(keep: Callable[..., None]) -> None:
    """All rows."""
    cp = importlib.import_module("cupy")
    rate = _copy_rate(cp)
    table: dict[str, Any] = {}
    keep(copy_gb_s=rate / 1e9, rows=table)
    wrong = []
    for row in rows():
        begin = time.perf_counter()
        found = table[row.name] = {"floor": 1e3 * row.bytes / rate}
        try:
            _row(row, found)
        except Exception as error:
            found["fault"] = f"{type(error).__name__}: {error}"[:1500]
        if "fault" in found:
            wrong.append(row.name)
        found["spent"] = round(time.perf_counter() - begin, 1)
        keep(rows=table, summary=f"{len(table)} rows" + (f", faults: {', '.join(wrong)}" if wrong else ""))
        times = {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items() if k not in ("spread",)}
        print(row.name, times, flush=True)
    if wrong:
        raise SystemExit(f"rows with faults: {wrong}")


def _copy_rate(cp: Any) -> float:
    a, b = cp.empty(1 << 29, cp.float32), cp.empty(1 << 29, cp.float32)
    took = [_timed(cp, lambda: cp.copyto(b, a), None) for _ in range(8)][2:]
    return 2 * a.nbytes / (1e-3 * statistics.median(took))


def _row(row: Row, found: dict[str, Any]) -> None:
    cp = importlib.import_module("cupy")
    torch = importlib.import_module("torch")

    import pipelink_ir as pl
    begin = time.perf_counter()
    p = pl.compile(row.program, target="cuda", **row.attributes)
    found["compile_s"] = time.perf_counter() - begin
    tensors = {k: torch.from_dlpack(v) for k, v in row.inputs.items()}
    ours = p(**row.inputs)[0]
    _check(torch, row, torch.from_dlpack(ours), tensors, found)
    found["kernels"] = p.executable.statistics["kernels"]
    contenders: dict[str, Callable[[], Any]] = {"pipelink": lambda: p(**row.inputs), "torch eager": lambda: row.torch(*tensors.values())}
    try:
        compiled = torch.compile(row.torch, dynamic=False)
        compiled(*tensors.values())
        contenders["torch.compile"] = lambda: compiled(*tensors.values())
    except Exception as error:
        found["torch.compile fault"] = f"{type(error).__name__}: {error}"[:300]
    if row.cupy is not None:
        contenders["CuPy"] = lambda: row.cupy(*row.inputs.values())  # type: ignore[misc]
    flush = cp.empty(256 << 20, cp.uint8)
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for run_number in range(RUNS + 3):
        for name, call in contenders.items():
            ms = _timed(cp, call, flush)
            if run_number >= 3:
                took[name].append(ms)
    found |= {name: statistics.median(ms) for name, ms in took.items()}
    found["spread"] = {name: [min(ms), max(ms)] for name, ms in took.items()}
    found["of floor"] = found["floor"] / found["pipelink"]
    best = min(v for k, v in found.items() if k in ("torch eager", "torch.compile", "CuPy"))
    found["best peer / ours"] = best / found["pipelink"]


def _timed(cp: Any, call: Callable[[], Any], flush: Any) -> float:
    """Milliseconds on the device. What flushes the cache keeps it busy while the call is handed over."""
    start, end = cp.cuda.Event(), cp.cuda.Event()
    if flush is not None:
        flush.fill(1)
    start.record()
    result = call()
    end.record()
    end.synchronize()
    del result
    return float(cp.cuda.get_elapsed_time(start, end))


def _check(torch: Any, row: Row, got: Any, tensors: dict[str, Any], found: dict[str, Any]) -> None:
    """Against float64, in slices along the first axis where the arrays are large."""
    wide = {k: (v if v.dtype == torch.uint8 else v.double()) for k, v in tensors.items() if v.numel() < 1 << 27}
    if len(wide) < len(tensors):
        wide = {k: (v[:1] if v.ndim > 1 else v) for k, v in tensors.items()}
        wide = {k: v if v.dtype == torch.uint8 else v.double() for k, v in wide.items()}
        got = got[:1]
    want = row.exact(*wide.values())
    error = float(((got.double() - want).abs() / (1 + want.abs())).max())
    found["max error"] = error
    if not error <= row.tolerance:
        found["fault"] = f"off by {error}, {row.tolerance} is allowed"
