"""The rows of the table for a GPU: what each computes, on which arrays, what must move, and who else can do it. `measure.py` runs them.

Arrays are made when a row is run, not before: they are large. `floor` is the time that a copy of `bytes` takes at the rate measured in the same run, or that
`flops` take at the rate of a matrix product measured in the same run.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu import peers

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases"
MODELS = ROOT / "benchmarks" / "models"


@dataclass(frozen=True, slots=True)
class Make:
    """What a row makes its arrays with."""

    cp: Any
    torch: Any
    rng: Any

    def normal(self, *shape: int, dtype: str = "float32") -> Any:
        return self.rng.standard_normal(shape, dtype=self.cp.float32).astype(dtype)

    def unit(self, *shape: int) -> Any:
        return self.rng.random(shape, dtype=self.cp.float32)


@dataclass(frozen=True, slots=True)
class Work:
    """One workload. `program` is a path or a text; `torch` works on the same arrays as tensors, `exact` on float64; `bytes` must move, `flops` be computed.

    `others` are further peers: from a name to a function of the inputs (arrays of CuPy) that gives the call. `parts` are what is worth a column but does less
    than the whole row, and is no peer: `pipelink …` gets PipeLink's own way, for instance in two calls. `first` names inputs of which the check takes only the
    first element of axis 0, with that of the result."""

    program: Any
    inputs: Mapping[str, Any]
    torch: Callable[..., Any]
    exact: Callable[..., Any]
    tolerance: float
    bytes: int = 0
    flops: int = 0
    others: Mapping[str, Callable[[Mapping[str, Any]], Callable[[], Any]]] = field(default_factory=dict)
    parts: Mapping[str, Callable[[Mapping[str, Any]], Callable[[], Any]]] = field(default_factory=dict)
    first: frozenset[str] = frozenset()
    captured: bool = False
    """Whether a CUDA graph of the eager calls is a peer: rows whose time is that of launching."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row by name; `jax` is its form in `peers.JAX`, `beside` the row whose time per byte it is compared with."""

    name: str
    make: Callable[[Make], Work]
    jax: str = ""
    beside: str = ""


def pipeline(op: str, operands: str, call: str, result: str, imports: str = "import std.nn\n") -> str:
    return f"{imports}{op}pipeline @p({operands}) -> (%y: {result}) {{\n{call}\n}}\n"


RELU6 = pipeline("", "%x: tensor<Nxf32>", "  %y = @relu6(%x)", "tensor<Nxf32>")
GELU = pipeline("op @bias(%x: tensor<NxKxf16>, %b: tensor<Kxf16>) -> (%y: tensor<NxKxf16>) { compute { %y[n, k] = %x[n, k] + %b[k] } }\n",
                "%x: tensor<NxKxf16>, %b: tensor<Kxf16>", "  %s = @bias(%x, %b)\n  %y = @gelu_erf(%s)", "tensor<NxKxf16>")
NORM = pipeline("", "%x: tensor<NxKxf16>, %g: tensor<Kxf16>, %b: tensor<Kxf16>", "  %y = @layer_norm(%x, %g, %b)", "tensor<NxKxf16>")
SOFTMAX = pipeline("", "%x: tensor<NxKxf32>", "  %y = @softmax(%x)", "tensor<NxKxf32>")
LINEAR = pipeline("", "%x: tensor<NxKxf16>, param %w: tensor<KxMxf16>, param %b: tensor<Mxf16>", "  %h = @linear(%x, %w, %b)\n  %y = @gelu_erf(%h)",
                  "tensor<NxMxf16>")
INT8 = pipeline("op @product(%x: tensor<NxKxi8>, %w: tensor<KxMxi8>) -> (%y: tensor<NxMxi32>) { compute { %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) } }\n",
                "%x: tensor<NxKxi8>, param %w: tensor<KxMxi8>", "  %y = @product(%x, %w)", "tensor<NxMxi32>", "")


def attention(where: str = "", more: str = "") -> str:
    """Softmax of the scaled products of queries and keys, times the values; `where` says which keys a query sees, `more` what it reads for that."""
    over = f"j < L{where}"
    op = f"""op @attend(%q: tensor<BxHxLxDxT>, %k: tensor<BxHxLxDxT>, %v: tensor<BxHxLxDxT>{more}) -> (%o: tensor<BxHxLxDxT>) {{
  memory {{ dtypes = [f16, bf16, f32] }}
  compute {{
    let scale = 1 / sqrt(f32(D))
    %s[b, h, i, j] = scale * sum[d < D](%q[b, h, i, d] * %k[b, h, j, d])
    %m[b, h, i]    = max[{over}](%s[b, h, i, j])
    %p[b, h, i, j] = exp(%s[b, h, i, j] - %m[b, h, i])
    %z[b, h, i]    = sum[{over}](%p[b, h, i, j])
    %o[b, h, i, d] = sum[{over}](%p[b, h, i, j] * %v[b, h, j, d]) / %z[b, h, i]
  }}
}}
"""
    t = "tensor<BxHxLxDxf16>"
    names = "".join(f", {w.split(':')[0].strip()}" for w in more.split(",")[1:])
    return pipeline(op, f"%q: {t}, %k: {t}, %v: {t}{more}", f"  %y = @attend(%q, %k, %v{names})", t, "")


def transformer() -> str:
    """The block of the example, without its policies: f16 throughout."""
    lines = (ROOT / "examples" / "precision" / "transformer.plir").read_text().splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith("downgrade"))


def small_nodes(chains: int = 8, length: int = 8) -> str:
    """`chains` chains of `length` nodes that depend on nothing but the one before, each of a few operations."""
    op = "op @step(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { compute { %y[i, j] = 0.9 * %x[i, j] + 0.1 * tanh(%x[i, j]) } }\n"
    lines = []
    for c in range(chains):
        edges = [f"x{c}", *(f"e{c}_{n}" for n in range(1, length)), f"y{c}"]
        lines += [f"  %{b} = @step(%{a})" for a, b in itertools.pairwise(edges)]
    operands = ", ".join(f"%x{c}: tensor<NxMxf32>" for c in range(chains))
    results = ", ".join(f"%y{c}: tensor<NxMxf32>" for c in range(chains))
    return op + f"pipeline @p({operands}) -> ({results}) {{\n" + "\n".join(lines) + "\n}\n"


# ----------------------------------------------------------------------------------------------------------------------------- rows


def _relu6(m: Make) -> Work:
    x, nn = m.normal(64 << 20), m.torch.nn.functional
    return Work(RELU6, {"x": x}, nn.relu6, nn.relu6, 0, 2 * x.nbytes, others={"CuPy": lambda a: lambda: m.cp.clip(a["x"], 0, 6)})


def _edges(frames: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        img = 0.2 * m.unit(frames, 1080, 1920, 3)
        run = peers.sobel(m.torch)
        return Work(CASES / "edge_gamma.plir", {"img": img}, run, run, 1e-5, img.nbytes * 4 // 3, first=frozenset(["img"]))
    return make


SOBEL = "import std.image\npipeline @p(%x: tensor<NxHxWx3xf32, NHWC>) -> (%y: tensor<NxHxWx3xf32, NHWC>) { %y = @sobel_magnitude(%x) {scale = 0.25} }\n"
GAMMA = "import std.image\npipeline @p(%x: tensor<NxHxWx3xf32, NHWC>) -> (%y: tensor<NxHxWx3xf32, NHWC>) { %y = @gamma_encode(%x) }\n"
COMPOSED = """import std.image
pipeline @p(%x: tensor<NxHxWx3xf32, NHWC>) -> (%y: tensor<NxHxWx3xf32, NHWC>) {
  %s = @sobel_magnitude(%x) {scale = 0.25}
  %y = @gamma_encode(%s)
}
"""


def _composed(m: Make) -> Work:
    """The library's operators as one pipeline, and called one after the other."""
    x = m.unit(1, 1080, 1920, 3)
    run = peers.sobel_of_each(m.torch)

    def apart(a: Mapping[str, Any]) -> Callable[[], Any]:
        import pipelink_ir as pl
        sobel, gamma = pl.compile(SOBEL, target="cuda"), pl.compile(GAMMA, target="cuda")
        return lambda: gamma(x=sobel(x=a["x"]).y).y
    return Work(COMPOSED, {"x": x}, run, run, 1e-5, 2 * x.nbytes, parts={"pipelink, two calls": apart})


def _preprocess(m: Make) -> Work:
    img = m.rng.integers(0, 256, (16, 1080, 1920, 3), dtype=m.cp.uint8)
    mean, std = m.cp.asarray([0.485, 0.456, 0.406], dtype="float32"), m.cp.asarray([0.229, 0.224, 0.225], dtype="float32")
    touched = 16 * 448 * (1920 // 32 * 3) * 32 + 16 * 3 * 224 * 224 * 2
    return Work(CASES / "preprocess.plir", {"img": img, "mean": mean, "std": std}, peers.resize(m.torch, True), peers.resize(m.torch, False), 4e-3, touched,
                others={"CV-CUDA": peers.cvcuda_resize}, first=frozenset(["img"]))


def _gelu(m: Make) -> Work:
    x, b, nn = m.normal(8192, 8192, dtype="float16"), m.normal(8192, dtype="float16"), m.torch.nn.functional
    return Work(GELU, {"x": x, "b": b}, lambda x, b: nn.gelu(x + b), lambda x, b: nn.gelu((x + b).half().double()), 2e-3, 2 * x.nbytes)


def _norm(m: Make) -> Work:
    x, g, b = m.normal(8192, 8192, dtype="float16"), m.normal(8192, dtype="float16"), m.normal(8192, dtype="float16")

    def run(x: Any, g: Any, b: Any) -> Any:
        return m.torch.nn.functional.layer_norm(x, (8192,), g, b, 1e-5)
    return Work(NORM, {"x": x, "g": g, "b": b}, run, run, 4e-3, 2 * x.nbytes)


def _softmax(m: Make) -> Work:
    x = m.normal(8192, 8192)

    def run(x: Any) -> Any:
        return m.torch.softmax(x, -1)
    return Work(SOFTMAX, {"x": x}, run, run, 1e-5, 2 * x.nbytes)


def _depthwise(m: Make) -> Work:
    x, k, nn = m.normal(32, 256, 112, 112, dtype="float16"), m.normal(256, 3, 3, dtype="float16"), m.torch.nn.functional

    def run(x: Any, k: Any) -> Any:
        return nn.relu6(nn.conv2d(x, k[:, None], padding=1, groups=256))
    return Work(CASES / "depthwise.plir", {"x": x, "k": k}, run, run, 4e-3, 2 * x.nbytes, first=frozenset(["x"]))


def _attention(causal: bool) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        b, h, s, d = 4, 16, 4096, 128
        q, k, v = (m.normal(b, h, s, d, dtype="float16") for _ in range(3))
        others = {f"SDPA {name}": peers.attention(m.torch, name, causal) for name in ("cuDNN", "flash", "efficient")}
        return Work(attention(" where j <= i" if causal else ""), {"q": q, "k": k, "v": v}, peers.plain_attention(m.torch, causal),
                    peers.plain_attention(m.torch, causal), 4e-3, flops=4 * b * h * s * s * d // (2 if causal else 1), bytes=4 * q.nbytes, others=others,
                    first=frozenset("qkv"))
    return make


def _masked(m: Make) -> Work:
    """Texts of different lengths in one batch."""
    b, h, s, d = 32, 16, 512, 64
    q, k, v = (m.normal(b, h, s, d, dtype="float16") for _ in range(3))
    mask = m.cp.arange(s)[None] < m.rng.integers(s // 2, s + 1, (b, 1))
    others = {f"SDPA {name}": peers.attention(m.torch, name, False) for name in ("cuDNN", "efficient")}
    run = peers.plain_attention(m.torch, False)
    inputs = {"q": q, "k": k, "v": v, "mask": mask}
    return Work(attention(" where %mask[b, j]", ", %mask: tensor<BxLxbool>"), inputs, run, run, 4e-3, flops=4 * b * h * s * s * d, bytes=4 * q.nbytes,
                others=others, first=frozenset(inputs))


def _transformer(m: Make) -> Work:
    b, s, e, h, f = 32, 512, 1024, 16, 4096
    mask = m.cp.arange(s)[None] < m.rng.integers(s // 2, s + 1, (b, 1))
    sizes = {"g1": (e,), "c1": (e,), "wq": (e, h, e // h), "wk": (e, h, e // h), "wv": (e, h, e // h), "wo": (h, e // h, e), "g2": (e,), "c2": (e,),
             "w1": (e, f), "b1": (f,), "w2": (f, e), "b2": (e,)}
    weights = {n: (m.normal(*size) * (f if n == "w2" else e) ** -0.5).astype("float16") for n, size in sizes.items()}
    x = m.normal(b, s, e, dtype="float16")
    run = peers.transformer(m.torch)
    return Work(transformer(), {"x": x, "mask": mask, **weights}, run, run, 1e-2, flops=2 * b * s * (4 * e * e + 2 * s * e + 2 * e * f),
                bytes=2 * x.nbytes + sum(w.nbytes for w in weights.values()), first=frozenset(("x", "mask")))


def _linear(m: Make) -> Work:
    x, w, b = m.normal(8192, 4096, dtype="float16"), m.normal(4096, 16384, dtype="float16") / 64, m.normal(16384, dtype="float16")
    nn = m.torch.nn.functional

    def alone(a: Mapping[str, Any]) -> Callable[[], Any]:
        x, w = (m.torch.from_dlpack(a[n]) for n in "xw")
        return lambda: x @ w
    return Work(LINEAR, {"x": x, "w": w, "b": b}, lambda x, w, b: nn.gelu(m.torch.addmm(b, x, w)),
                lambda x, w, b: nn.gelu(m.torch.addmm(b, x, w).half().double()), 4e-3, x.nbytes + w.nbytes + 2 * 8192 * 16384, 2 * 8192 * 4096 * 16384,
                parts={"cuBLAS product alone": alone})


def _int8(m: Make) -> Work:
    x, w = (m.rng.integers(-128, 128, shape, dtype=m.cp.int8) for shape in ((8192, 4096), (4096, 16384)))

    def columns(a: Mapping[str, Any]) -> Callable[[], Any]:
        x, w = m.torch.from_dlpack(a["x"]), m.torch.from_dlpack(a["w"]).t().contiguous().t()
        return lambda: m.torch._int_mm(x, w)
    return Work(INT8, {"x": x, "w": w}, lambda x, w: m.torch._int_mm(x, w), lambda x, w: x @ w, 0, x.nbytes + w.nbytes + 4 * 8192 * 16384,
                8192 * 4096 * 16384, others={"cuBLASLt, weights by columns": columns})


def _small(m: Make) -> Work:
    inputs = {f"x{c}": m.normal(256, 256) for c in range(8)}

    def run(*chains: Any) -> Any:
        out = []
        for x in chains:
            for _ in range(8):
                x = 0.9 * x + 0.1 * m.torch.tanh(x)
            out.append(x)
        return tuple(out)
    return Work(small_nodes(), inputs, run, run, 1e-5, 2 * 8 * 256 * 256 * 4, captured=True)


def _blurs(channels: int) -> Callable[[Make], Work]:
    def make(m: Make) -> Work:
        x, k = m.unit(1, 1080, 1920, channels), m.unit(5, 5)
        k /= k.sum()
        run = peers.blurs(m.torch, 3)
        return Work(MODELS / "blurs.plir", {"x": x, "k": k}, run, run, 1e-5, 2 * x.nbytes)
    return make


def _mobilenet(m: Make) -> Work:
    """The whole network, weights bound once; f32 throughout, with no peer in tf32."""
    import numpy as np
    from models import mobilenet_v2
    inputs = {k: m.cp.asarray(v) for k, v in mobilenet_v2.arrays(np.random.default_rng(0)).items()}
    run = mobilenet_v2.by_torch(m.torch)
    size = sum(x.nbytes for x in inputs.values()) + 4000
    return Work(mobilenet_v2.program(), inputs, run, run, 1e-3, size, 2 * mobilenet_v2.multiplications(), captured=True)


ROWS = (
    Row("relu6 f32 64 Mi", _relu6, "relu6"),
    Row("sobel+gamma f32 1x1080p", _edges(1), "sobel"),
    Row("sobel+gamma f32 16x1080p", _edges(16), "sobel"),
    Row("composed sobel, gamma of the library 1x1080p", _composed),
    Row("resize+normalise+NCHW u8 16x1080p", _preprocess),
    Row("bias+gelu f16 8192^2", _gelu, "gelu"),
    Row("layer_norm f16 8192^2", _norm, "layer_norm"),
    Row("softmax f32 8192^2", _softmax, "softmax"),
    Row("depthwise 3x3 + relu6 f16 32x256x112^2", _depthwise),
    Row("blurs 5x5 three in a chain f32 1080p, 1 channel", _blurs(1)),
    Row("blurs 5x5 three in a chain f32 1080p, 3 channels", _blurs(3)),
    Row("64 small nodes, 8 chains of 8, 256^2", _small),
    Row("mobilenet_v2 f32 1x224x224", _mobilenet),
    Row("attention f16 4x16x4096x128", _attention(False), "attention"),
    Row("attention f16 4x16x4096x128 causal", _attention(True), "causal"),
    Row("attention f16 32x16x512x64, keys masked", _masked),
    Row("transformer block f16 32x512x1024", _transformer),
    Row("matmul+bias+gelu f16 8192x4096x16384", _linear, "linear"),
    Row("product i8 8192x4096x16384", _int8),
)
