"""Others who can do what the rows do: PyTorch's forms of them, JAX's, CV-CUDA's. Each is imported only when it is called for."""
from __future__ import annotations

import gc
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

PACKAGES = {"torch eager": "torch", "torch.compile": "torch", "max-autotune": "torch", "CuPy": "cupy", "JAX": "jax", "CV-CUDA": "cvcuda"}


def missing() -> dict[str, str]:
    """Peers that this machine lacks, and why."""
    out = {}
    for peer, package in PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            out[peer] = f"{package} is not installed"
    if "JAX" not in out:
        try:
            if not any(d.platform in ("gpu", "cuda") for d in importlib.import_module("jax").devices()):
                out["JAX"] = "jax is installed without CUDA"
        except Exception as error:
            out["JAX"] = f"jax does not start: {error}"[:200]
    return out


# --------------------------------------------------------------------------------------------------------------------------- PyTorch


MODES = {"torch.compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
"""Peers that compile, and their modes."""


def alike(torch: Any) -> None:
    """What is f32 is computed in f32 by everybody."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def compiled(torch: Any, run: Callable[..., Any], tensors: list[Any], mode: str | None) -> Callable[[], Any]:
    """A function compiled for these tensors, once it has run."""
    torch._dynamo.reset()
    call = torch.compile(run, dynamic=False, mode=mode)
    call(*tensors)
    return lambda: call(*tensors)


def _magnitude(p: Any, torch: Any) -> Any:
    dx = p[:, :, :, 2:] - p[:, :, :, :-2]
    gx = dx[:, :, :-2] + 2 * dx[:, :, 1:-1] + dx[:, :, 2:]
    dy = p[:, :, 2:] - p[:, :, :-2]
    gy = dy[:, :, :, :-2] + 2 * dy[:, :, :, 1:-1] + dy[:, :, :, 2:]
    return torch.sqrt(gx * gx + gy * gy)


def sobel(torch: Any) -> Callable[[Any], Any]:
    def run(img: Any) -> Any:
        p = torch.nn.functional.pad(img.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate")
        edges = _magnitude(p, torch).mean(1, keepdim=True)
        return (torch.clamp(edges, 0, 1) ** (1 / 2.2)).permute(0, 2, 3, 1)
    return run


def sobel_of_each(torch: Any) -> Callable[[Any], Any]:
    """Of each channel by itself, as the library's operator; a step of 1 has the magnitude 1."""
    def run(img: Any) -> Any:
        p = torch.nn.functional.pad(img.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate")
        return (torch.clamp(0.25 * _magnitude(p, torch), 0, 1) ** (1 / 2.2)).permute(0, 2, 3, 1)
    return run


def blurs(torch: Any, count: int) -> Callable[..., Any]:
    def run(img: Any, k: Any) -> Any:
        x, c = img.permute(0, 3, 1, 2), img.shape[3]
        for _ in range(count):
            x = torch.nn.functional.conv2d(torch.nn.functional.pad(x, (2, 2, 2, 2), mode="replicate"), k.expand(c, 1, 5, 5), groups=c)
        return x.permute(0, 2, 3, 1)
    return run


def resize(torch: Any, half: bool) -> Callable[..., Any]:
    def run(img: Any, mean: Any, std: Any) -> Any:
        x = img.permute(0, 3, 1, 2)
        x = x.float() if half else x.double()
        x = torch.nn.functional.interpolate(x, (224, 224), mode="bilinear", align_corners=False)
        x = (x / 255 - mean[:, None, None]) / std[:, None, None]
        return x.half() if half else x
    return run


def plain_attention(torch: Any, causal: bool) -> Callable[..., Any]:
    """As written: the scores go through memory. In float64 it is what results are checked against."""
    def run(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
        if causal:
            n = q.shape[-2]
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1), float("-inf"))
        return torch.softmax(scores, -1) @ v
    return run


def attention(torch: Any, backend: str, causal: bool) -> Callable[[Mapping[str, Any]], Callable[[], Any]]:
    """`scaled_dot_product_attention` by one of its implementations, refused where that one cannot."""
    def peer(arrays: Mapping[str, Any]) -> Callable[[], Any]:
        kernel = importlib.import_module("torch.nn.attention")
        which = {"cuDNN": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}[backend]
        q, k, v = (torch.from_dlpack(arrays[n]) for n in "qkv")
        mask = torch.from_dlpack(arrays["mask"])[:, None, None] if "mask" in arrays else None

        def call() -> Any:
            with kernel.sdpa_kernel(getattr(kernel.SDPBackend, which)):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return call
    return peer


def transformer(torch: Any) -> Callable[..., Any]:
    """A block with the norms in front, as PyTorch has its parts."""
    nn = torch.nn.functional

    def run(x: Any, mask: Any, g1: Any, c1: Any, wq: Any, wk: Any, wv: Any, wo: Any, g2: Any, c2: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        (b, s, e), h = x.shape, wq.shape[1]
        n1 = nn.layer_norm(x, (e,), g1, c1)
        q, k, v = ((n1 @ w.reshape(e, -1)).view(b, s, h, -1).transpose(1, 2) for w in (wq, wk, wv))
        o = nn.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        mid = x + o.transpose(1, 2).reshape(b, s, -1) @ wo.reshape(-1, e)
        n2 = nn.layer_norm(mid, (e,), g2, c2)
        return mid + (nn.gelu(n2 @ w1 + b1, approximate="tanh") @ w2 + b2)
    return run


def captured(torch: Any, run: Callable[..., Any], tensors: list[Any]) -> Callable[[], Any]:
    """A CUDA graph of eager calls, replayed."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(*tensors)
    torch.cuda.synchronize()
    # Modules and memory that are collected while this thread captures would break the capture.
    gc.collect()
    gc.disable()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = run(*tensors)
    finally:
        gc.enable()

    def call(held: Any = held) -> Any:
        graph.replay()
        return held
    return call


# ------------------------------------------------------------------------------------------------------------------------- the others


def cvcuda_resize(arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """Resize, normalise and planes by CV-CUDA; the resized pixels are rounded to u8, as it does."""
    import numpy as np
    cv, cp = importlib.import_module("cvcuda"), importlib.import_module("cupy")
    img = cv.as_tensor(arrays["img"], "NHWC")
    base, scale = (cv.as_tensor(cp.asarray(arrays[n]).reshape(1, 1, 1, 3), "NHWC") for n in ("mean", "std"))
    n = arrays["img"].shape[0]

    def call() -> Any:
        small = cv.resize(img, (n, 224, 224, 3), cv.Interp.LINEAR)
        unit = cv.convertto(small, np.float32, scale=1 / 255)
        return cv.reformat(cv.normalize(unit, base=base, scale=scale, flags=cv.NormalizeFlags.SCALE_IS_STDDEV), "NCHW")
    return call


def _jax_sobel(jnp: Any, img: Any) -> Any:
    p = jnp.pad(img, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    dx = p[:, :, 2:] - p[:, :, :-2]
    gx = dx[:, :-2] + 2 * dx[:, 1:-1] + dx[:, 2:]
    dy = p[:, 2:] - p[:, :-2]
    gy = dy[:, :, :-2] + 2 * dy[:, :, 1:-1] + dy[:, :, 2:]
    return jnp.clip(jnp.sqrt(gx * gx + gy * gy).mean(3, keepdims=True), 0, 1) ** (1 / 2.2)


def _jax_norm(jnp: Any, x: Any, g: Any, b: Any) -> Any:
    wide = x.astype(jnp.float32)
    off = wide - wide.mean(-1, keepdims=True)
    return (off / jnp.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * g + b).astype(x.dtype)


def _jax_attention(jax: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn").transpose(0, 2, 1, 3)


JAX: dict[str, Callable[..., Any]] = {
    "relu6": lambda jax, jnp, x: jax.nn.relu6(x),
    "sobel": lambda jax, jnp, img: _jax_sobel(jnp, img),
    "gelu": lambda jax, jnp, x, b: jax.nn.gelu(x + b, approximate=False),
    "layer_norm": lambda jax, jnp, x, g, b: _jax_norm(jnp, x, g, b),
    "softmax": lambda jax, jnp, x: jax.nn.softmax(x, -1),
    "attention": lambda jax, jnp, q, k, v: _jax_attention(jax, q, k, v, False),
    "causal": lambda jax, jnp, q, k, v: _jax_attention(jax, q, k, v, True),
    "linear": lambda jax, jnp, x, w, b: jax.nn.gelu(x @ w + b, approximate=False),
}


JAX_CALLS = 10


def jax_call(form: str, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """Calls one behind the other, the last one waited for: JAX has streams of its own, so its time is the host's."""
    jax, jnp = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    arrays = [jnp.from_dlpack(x) for x in inputs.values()]
    compiled = jax.jit(lambda *a: JAX[form](jax, jnp, *a))

    def call() -> None:
        for _ in range(JAX_CALLS):
            result = compiled(*arrays)
        result.block_until_ready()
    return call
