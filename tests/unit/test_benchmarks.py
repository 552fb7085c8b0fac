"""The programs that benchmarks measure are right, and what they work out from what they measure. Nothing here looks at how long anything takes."""
from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import memory  # noqa: E402
from gpu import ahead, blurs, choice, counters, limits, measure, odd, rows, table  # noqa: E402
from models import mobilenet_v2  # noqa: E402

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


# ---------------------------------------------------------------------------------------------------------------------- MobileNetV2


def test_mobilenet_is_the_network_of_the_paper() -> None:
    """3,504,872 parameters are commonly counted, with two for each of the 17,056 normalised channels, of which folding leaves one."""
    shapes = mobilenet_v2.shapes()
    assert sum(math.prod(s) for s in shapes.values()) == 3_504_872 - 17_056
    assert mobilenet_v2.multiplications() == 300_774_272  # as counted for this network everywhere, "300 M"
    layers = list(mobilenet_v2.layers())
    assert sum(n.kind == "add" for n in layers) == 10
    assert sum(n.kind in ("stem", "linear", "depthwise") for n in layers) == 53
    assert sum(n.stride == 2 for n in layers) == 5


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_mobilenet(target: str) -> None:
    size, width, classes = 33, 0.25, 7  # an odd size: every stride meets an edge
    p = pl.compile(mobilenet_v2.program(size, width, classes=classes), target=target)
    arrays = mobilenet_v2.arrays(np.random.default_rng(0), size, width, classes=classes)
    want = mobilenet_v2.by_numpy(arrays, width, classes)
    assert want.shape == (1, 7)
    assert np.abs(want).max() > 0.5
    np.testing.assert_allclose(p(**arrays).scores, want, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------------------------------------------------------- rows of a GPU


def by_attention(q: Array, k: Array, v: Array, causal: bool) -> Array:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(np.einsum("bhij,bhjd->bhid", e / e.sum(-1, keepdims=True), v))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    q, k, v = (normal(2, 3, 9, 8, dtype="float16") for _ in range(3))
    p = pl.compile(rows.attention(" where j <= i" if causal else ""), target="cpu")
    np.testing.assert_allclose(p(q=q, k=k, v=v).y, by_attention(q, k, v, causal), rtol=2e-3, atol=2e-3)


def test_the_transformer_block_and_masked_attention() -> None:
    q, k, v = (normal(2, 3, 9, 8, dtype="float16") for _ in range(3))
    mask = np.arange(9) < np.array([[5], [9]])
    got = pl.compile(rows.attention(" where %mask[b, j]", ", %mask: tensor<BxLxbool>"), target="cpu")(q=q, k=k, v=v, mask=mask).y
    for b, n in enumerate((5, 9)):
        np.testing.assert_allclose(got[b:b + 1], by_attention(q[b:b + 1], k[b:b + 1, :, :n], v[b:b + 1, :, :n], False), rtol=2e-3, atol=2e-3)
    text = rows.transformer()
    assert "downgrade" not in text
    assert [o.name for o in pl.compile(text, target="cpu").inputs][:2] == ["x", "mask"]


def test_products() -> None:
    from scipy.special import erf
    x, w, b = normal(5, 24, dtype="float16"), normal(24, 18, dtype="float16"), normal(18, dtype="float16")
    h = (x.astype(np.float64) @ w.astype(np.float64) + b).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(pl.compile(rows.LINEAR, target="cpu")(x=x, w=w, b=b).y, 0.5 * h * (1 + erf(h / math.sqrt(2))), rtol=1e-2, atol=1e-2)
    a, c = (RNG.integers(-128, 128, s, dtype=np.int8) for s in ((4, 33), (33, 6)))
    np.testing.assert_array_equal(pl.compile(rows.INT8, target="cpu")(x=a, w=c).y, a.astype(np.int64) @ c.astype(np.int64))


def test_small_nodes() -> None:
    inputs = {f"x{c}": normal(3, 5) for c in range(8)}
    out = pl.compile(rows.small_nodes(), target="cpu")(**inputs)
    for c in range(8):
        y = inputs[f"x{c}"].astype(np.float64)
        for _ in range(8):
            y = 0.9 * y + 0.1 * np.tanh(y)
        np.testing.assert_allclose(out[f"y{c}"], y, rtol=1e-5, atol=1e-5)
    assert rows.small_nodes().count("= @step(") == 64


def test_pictures() -> None:
    import scipy.ndimage
    x, k = RNG.random((2, 17, 19, 3), dtype=np.float32), RNG.random((5, 5), dtype=np.float32)
    wide = x.astype(np.float64)
    for _ in range(3):
        wide = scipy.ndimage.correlate(wide, k.astype(np.float64)[None, :, :, None], mode="nearest")
    np.testing.assert_allclose(pl.compile(rows.MODELS / "blurs.plir", target="cpu")(x=x, k=k).y, wide, rtol=1e-5)
    sobel, gamma, composed = (pl.compile(t, target="cpu") for t in (rows.SOBEL, rows.GAMMA, rows.COMPOSED))
    gy, gx = (scipy.ndimage.correlate(x.astype(np.float64), np.outer(*w).reshape(1, 3, 3, 1), mode="nearest") for w in
              (([-1, 0, 1], [1, 2, 1]), ([1, 2, 1], [-1, 0, 1])))
    want = np.clip(0.25 * np.hypot(gx, gy), 0, 1) ** (1 / 2.2)
    np.testing.assert_allclose(composed(x=x).y, want, atol=1e-5)
    np.testing.assert_allclose(gamma(x=sobel(x=x).y).y, want, atol=1e-5)


def test_rows_are_picked_by_words() -> None:
    assert [r.name for r in choice.select(["SOFTMAX", "relu6 f32"])] == ["relu6 f32 64 Mi", "softmax f32 8192^2"]
    assert choice.select([]) == list(rows.ROWS)
    assert choice.select(["no such row"]) == []
    assert len({r.name for r in rows.ROWS}) == len(rows.ROWS)
    named = [r.name for r in odd.ODD]
    assert [r.name for r in choice.select(["odd"])] == named
    assert len(set(named)) == len(named)
    assert all(r.beside in named[:k] for k, r in enumerate(odd.ODD) if r.beside)


def test_rows_of_odd_shapes() -> None:
    import scipy.ndimage
    x = normal(5, 7)
    assert (pl.compile(odd.TURN, target="cpu")(x=x).y == x.T).all()
    g, b, wide = normal(7), normal(7), x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(pl.compile(odd.NORM_F32, target="cpu")(x=x, g=g, b=b).y, want, rtol=1e-4, atol=1e-5)
    img = RNG.random((2, 5, 6, 7), dtype=np.float32)
    want = scipy.ndimage.uniform_filter(img.astype(np.float64), size=(1, 3, 3, 1), mode="nearest")
    np.testing.assert_allclose(pl.compile(odd.SUM, target="cpu")(x=g).y, g.sum(dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(pl.compile(odd.BLUR, target="cpu")(x=img).y, want, rtol=1e-5)
    a, w, c = normal(5, 7, dtype="float16"), normal(7, 6, dtype="float16"), normal(6, dtype="float16")
    want = a.astype(np.float64) @ w.astype(np.float64) + c
    np.testing.assert_allclose(pl.compile(odd.PRODUCT, target="cpu")(x=a, w=w, b=c).y, want, rtol=2e-3, atol=2e-3)


def test_the_interval_of_a_ratio_of_pairs() -> None:
    """25 pairs: the median lies between the 7th and the 19th with 98.6 % by the binomial distribution, between the 8th and the 18th with 95.7 %."""
    from scipy.stats import binom
    ratios = np.arange(1.0, 26.0)
    low, high = measure.interval(list(ratios), [1.0] * 25)
    inside = binom.cdf(int(high) - 1, 25, 0.5) - binom.cdf(int(low) - 1, 25, 0.5)
    assert low + high == 26
    assert 0.95 <= inside < 0.99
    assert measure.interval([3.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == (1.0, 3.0)


FOUND = {
    "copy_gb_s": 4000.0, "product_tflop_s": 700.0, "missing_peers": {"JAX": "jax is not installed"},
    "rows": {
        "a": {"floor": 1.0, "pipelink": 2.0, "torch eager": 8.0, "torch.compile": 4.0, "CuPy": 6.0, "best peer": "torch.compile", "best peer / ours": 2.0,
              "of floor": 0.5, "interval": [1.9, 2.1], "max error": 0.0, "bytes": 4_200_000, "gb_s": 2.1, "compile_s": 0.5, "spent": 3.0},
        "b": {"floor": 1.0, "pipelink": 1.0, "torch eager": 2.0, "torch.compile": 8.0, "alone": 0.5, "parts": ["alone"], "best peer": "torch eager",
              "best peer / ours": 2.0, "of floor": 1.0, "interval": [2.0, 2.0], "no peer": {"max-autotune": "it does not start"}},
        "c": {"floor": 1.0, "fault": "off by 3"},
        "d": {"floor": 1.0, "bytes": 1_000_000, "pipelink": 0.004, "of floor": 250.0},
        "e": {"floor": 1.0, "bytes": 500_000, "pipelink": 0.003, "of floor": 333.0, "beside": "d"},
    },
}


def test_the_table_of_a_gpu() -> None:
    lines = table.lines(FOUND)
    assert lines[1].split() == ["a", "4.2", "1.0000", "2.0000", "2", "0.50", "8.0000", "4.0000", "-", "CuPy", "6.0000", "2.00", "[1.90,", "2.10]"]
    assert lines[2].split() == ["b", "-", "1.0000", "1.0000", "-", "1.00", "2.0000", "8.0000", "-", "2.00", "[2.00,", "2.00]"]
    assert "geometric mean over 2 rows: torch.compile takes 4.00 times as long" in lines
    assert "geometric mean over 2 rows: best peer takes 2.00 times as long" in lines
    assert "b: alone 0.5000 ms, 0.50 times ours" in lines
    assert "b: no max-autotune: it does not start" in lines
    assert "c: FAULT: off by 3" in lines
    assert "e: 6.000 ns per kB, 1.50 times that of 'd' (4.000)" in lines
    assert lines[-1] == "no JAX: jax is not installed"


def test_what_was_compiled_ahead(tmp_path: Path) -> None:
    """All of it, or why not; what a process had done when it was ended is kept."""
    (tmp_path / "0.log").write_text("warnings\nOutOfMemoryError: none left\n")
    assert ahead.outcome(tmp_path / "0", False, 9) == {"start_s": {}, "fault": "OutOfMemoryError: none left"}
    (tmp_path / "0.json").write_text('{"start_s": {"torch.compile": 1.5}, "done": false}')
    assert ahead.outcome(tmp_path / "0", True, 9) == {"start_s": {"torch.compile": 1.5}, "fault": "not compiled within 9 s"}
    (tmp_path / "0.json").write_text('{"start_s": {"torch.compile": 1.5, "max-autotune": 20}, "done": true}')
    assert ahead.outcome(tmp_path / "0", False, 9) == {"start_s": {"torch.compile": 1.5, "max-autotune": 20}}


# -------------------------------------------------------------------------------------------------------------------------- counters


NCU = '''==PROF== Connected
"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","lts__t_sectors_op_read.sum","lts__t_sectors_op_write.sum"
"","","Mbyte","byte","sector","sector"
"0","a","1,000.5","100","10","20"
"1","b","2","100","10","1"
'''


def test_counters_are_added_up() -> None:
    kernels = counters.kernels_of(NCU, tuple(blurs.METRICS))
    assert [name for name, _ in kernels] == ["a", "b"]
    assert blurs.summed([k for _, k in kernels]) == {"DRAM read": 1002.5e6, "DRAM written": 200, "L2 sectors read": 20, "L2 sectors written": 21}
    assert counters.kernels_of("==ERROR== no permission", tuple(blurs.METRICS)) == []
    assert blurs.summed([]) == {}


def test_what_limits_a_kernel_is_told_from_its_counters() -> None:
    kernel = {limits.TIME: 2e-5, limits.SHARES["DRAM"]: 62.0, limits.SHARES["issue slots"]: 40.5, limits.STALLS["memory"]: 3.5, limits.STALLS["barriers"]: 0.25,
              limits.STALLS["pipes"]: 1.0, limits.STALLS["nobody chosen"]: 0.5}
    said = limits.told("a", kernel)
    assert said.startswith("a: 0.0200 ms; DRAM 62 %, issue slots 40 %")
    assert said.endswith("cycles between two instructions of a warp: memory 3.50, pipes 1.00, nobody chosen 0.50, barriers 0.25")


def test_the_models_bytes_are_read_from_the_ledger() -> None:
    one, two = "fused: blur, blur, blur: 16 us instead of 20 us, 20 bytes instead of 60, 1.29 times the operations", "fused: blur, blur: 20 bytes instead of 40"
    assert blurs.estimated(one) == {"as fused": 20, "each by itself": 60, "all in one": 20}
    assert blurs.estimated(two + "\ndeclined: it would not pay: 20 bytes instead of 40") == {"as fused": 40, "each by itself": 60, "all in one": 20}
    assert blurs.estimated("") == {}


@pytest.mark.parametrize("choice", blurs.CHOICES)
def test_blurs_of_static_sizes(choice: str) -> None:
    """Every choice is the same program; the model's bytes of separate nodes are two arrays and a kernel for each."""
    text = blurs.program(1, 3)
    assert "tensor<1x1080x1920x3xf32" in text.partition("pipeline")[2]
    p = pl.compile(text, target="cpu", pass_options=blurs.CHOICES[choice] or None, passes="frontend,flatten,simplify,fuse{device=cuda}")
    assert len(p.pipeline.nodes) == 3 if blurs.CHOICES[choice] else len(p.pipeline.nodes) <= 3
    if found := blurs.estimated(blurs.reasons_of(p)):
        array = 4 * 1080 * 1920 * 3
        assert found["each by itself"] == pytest.approx(3 * (2 * array + 100), rel=1e-3)


# ---------------------------------------------------------------------------------------------------------------------------- memory


CHAIN = """op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] + 1 } }
op @g(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf64>) { compute { %y[n] = f64(%x[n]) + %z[n] } }
pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf64>) {
  %a = @f(%x)
  %b = @f(%a)
  %c = @f(%b)
  %y = @g(%c, %a)
}
"""


def test_tensors_that_live_at_one_time() -> None:
    """%a lives to the end: at the third node a, b, c; at the last one a, c and y, which has twice the bytes."""
    assert memory.eager_peak(CHAIN, {"x": (100,)}) == 400 + 400 + 800


def test_every_program_has_a_line() -> None:
    names = [name for name, _, _ in memory.programs()]
    for path in (ROOT / "tests" / "cases").glob("*.plir"):
        assert f"case {path.stem}" in names
    for path in (ROOT / "examples").glob("*.plir"):
        assert f"example {path.stem}" in names
    assert "mobilenet_v2 224x224" in names
    line = memory.line("rows", ROOT / "examples" / "rows.plir", memory.EXAMPLES["rows"])
    assert line.peak >= line.bound >= 0
    assert line.results == 2 * 4 * 4096 * 1024
    assert line.eager >= line.results
    assert {p.stem for p in (ROOT / "examples" / "precision").glob("*.plir")} == set(memory.PRECISION)


# -------------------------------------------------------------------------------------------------------------------------- commands


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)


def test_the_command_for_a_gpu_lists_its_steps() -> None:
    done = command("benchmarks/gpu_check.py", "--list")
    assert done.returncode == 0
    for name in ("bench", "overhead", "blurs", "memcheck"):
        assert any(line.startswith(name) for line in done.stdout.splitlines())
    assert command("benchmarks/gpu_check.py", "--steps", "nonsense", "--out", "x").returncode == 2


def test_make_bench_names_its_parts() -> None:
    done = command("benchmarks/all.py", "nonsense")
    assert done.returncode == 2
    assert "there is no part 'nonsense'" in done.stderr
    assert "memory" in done.stderr


def test_what_is_kept_of_a_run() -> None:
    import importlib
    everything: Any = importlib.import_module("all")
    found = {"steps": {"environment": {"device": {"name": "NVIDIA H200"}, "output": "long"}, "bench": FOUND | {"output": "long", "status": "ok"}}}
    assert everything.device_name(found) == "nvidia-h200"
    kept = json.loads(json.dumps(everything.record(found)))
    assert kept["device"] == "NVIDIA H200"
    assert "output" not in kept["steps"]["bench"]
    assert kept["steps"]["bench"]["rows"]["a"]["pipelink"] == 2.0


def test_records_speak_of_no_machines_folders(tmp_path: Path) -> None:
    from gpu_check import ROOT, save
    save(tmp_path / "r.json", {"fault": f"{ROOT}/examples/net.plir:47:12: error", "rows": {"a": 1.5}})
    assert json.loads((tmp_path / "r.json").read_text()) == {"fault": "examples/net.plir:47:12: error", "rows": {"a": 1.5}}
    for file in (ROOT / "benchmarks" / "results").glob("*.json"):
        assert not re.findall(r"(?<![\w.:/-])/(?:[\w.-]+/)+[\w.-]+\.(?:py|plir|npz|cu|json)\b", file.read_text(encoding="utf-8")), file.name
