"""Every program of `examples/` on both backends, against NumPy in float64 on small data."""
from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import scipy.special

import pipelink_ir
from tests.emulated import EMULATED

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Array = np.ndarray[Any, Any]
sys.path.insert(0, str(EXAMPLES))


def _photo(height: int, width: int) -> Array:
    """A crop of the photograph, u8 [1, H, W, 3]."""
    from PIL import Image
    with Image.open(EXAMPLES / "data" / "coffee.png") as image:
        return np.asarray(image)[None, 100:100 + height, 200:200 + width]


def _edge() -> tuple[dict[str, Array], dict[str, Array]]:
    photo = _photo(37, 53)
    luma = (photo / 255) @ [0.299, 0.587, 0.114]
    gy, gx = (scipy.ndimage.sobel(luma, axis=a, mode="nearest") for a in (1, 2))
    # SciPy smooths along N too: one picture, so a factor of 1 + 2 + 1.
    edges = np.clip(0.25 * np.hypot(gx, gy) / 4, 0, 1) ** (1 / 2.2)
    return {"photo": photo}, {"edges": np.rint(255 * edges)[..., None].astype(np.uint8)}


def _preprocess() -> tuple[dict[str, Array], dict[str, Array]]:
    photo = _photo(80, 300)
    with np.load(EXAMPLES / "data" / "imagenet.npz") as data:
        mean, std = data["mean"], data["std"]

    def weights(size: int) -> Array:
        scale = size / 224
        m = np.maximum(1 - np.abs(np.arange(size) - ((np.arange(224) + 0.5) * scale - 0.5)[:, None]) / max(scale, 1), 0)
        return m / m.sum(1, keepdims=True)

    small = np.einsum("ih,jw,nhwc->nijc", weights(80), weights(300), photo / 255)
    return {"photo": photo, "mean": mean, "std": std}, {"input": ((small - mean) / std).transpose(0, 3, 1, 2).astype(np.float16)}


def _denoise() -> tuple[dict[str, Array], dict[str, Array]]:
    noisy = _photo(31, 40).copy()
    rng = np.random.default_rng(12)
    noisy[rng.random(noisy.shape) < 0.05] = 255
    clean = noisy.copy()
    for c in range(3):
        plane = noisy[0, :, :, c]
        lo, mid, hi = (scipy.ndimage.rank_filter(plane, r, size=3, mode="mirror") for r in (0, 4, 8))
        clean[0, :, :, c] = np.where((plane == lo) | (plane == hi), mid, plane)
    return {"noisy": noisy}, {"clean": clean}


def _vignette() -> tuple[dict[str, Array], dict[str, Array]]:
    photo = _photo(20, 31)
    unit = photo / 255
    light = np.where(unit <= 0.04045, unit / 12.92, ((unit + 0.055) / 1.055) ** 2.4)
    v, u = ((2 * np.arange(n) + 1 - n) / n for n in (20, 31))
    dark = light * (1 - 0.7 * (v[:, None] ** 2 + u ** 2) / 2)[None, :, :, None]
    return {"photo": photo}, {"out": np.rint(255 * np.where(dark <= 0.0031308, 12.92 * dark, 1.055 * dark ** (1 / 2.4) - 0.055)).astype(np.uint8)}


def _norm(x: Array, g: Array, b: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def _wide(inputs: dict[str, Array]) -> dict[str, Array]:
    return {k: v.astype(np.float64) for k, v in inputs.items()}


def _rows() -> tuple[dict[str, Array], dict[str, Array]]:
    from arrays import rows
    inputs = rows(np.random.default_rng(13))
    n = _norm(**_wide(inputs))
    return inputs, {"p": scipy.special.softmax(n, -1), "r": np.clip(n, 0, 6)}


def _attention_block() -> tuple[dict[str, Array], dict[str, Array]]:
    from arrays import attention_block
    inputs = attention_block(np.random.default_rng(14))
    a, mask = _wide(inputs), inputs["mask"]
    n = _norm(a["x"], a["g1"], a["c1"])
    q, k, v = (np.einsum("bse,ehd->bhsd", n, a[w]) for w in ("wq", "wk", "wv"))
    s = np.where(mask[:, None, None, :], np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1]), -np.inf)
    mid = a["x"] + np.einsum("bhsd,hde->bse", scipy.special.softmax(s, -1) @ v, a["wo"])
    up = _norm(mid, a["g2"], a["c2"]) @ a["w1"] + a["b1"]
    act = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up ** 3)))
    return inputs, {"y": mid + act @ a["w2"] + a["b2"]}


CASES = {"edge": _edge, "preprocess": _preprocess, "denoise": _denoise, "vignette": _vignette, "rows": _rows, "attention_block": _attention_block}


def test_every_example_is_tested() -> None:
    assert {p.stem for p in EXAMPLES.glob("*.plir")} == set(CASES)


@pytest.mark.parametrize("target", ["reference", "cpu", EMULATED])
@pytest.mark.parametrize("name", sorted(CASES))
def test_results(name: str, target: str) -> None:
    inputs, expected = CASES[name]()
    results = pipelink_ir.compile(EXAMPLES / f"{name}.plir", target=target)(**inputs)
    assert list(results.keys()) == list(expected)
    for key, want in expected.items():
        got = np.asarray(results[key])
        assert got.shape == want.shape
        if got.dtype == np.uint8:
            # A value that lies within f32's error of a tie may round the other way.
            off = np.abs(got.astype(int) - want.astype(int))
            assert off.max() <= 1
            assert (off > 0).mean() < 0.002
        else:
            tolerance = (2e-3, 1e-3) if got.dtype == np.float16 else (2e-5, 2e-5)
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), *tolerance)


COMMANDS = re.findall(r"`(pipelinkc run [^`]+)`", (EXAMPLES / "README.md").read_text(encoding="utf-8"))


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) == 4


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_readme(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.cli.main import main
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(command.split()[1:]) == 0
    written = re.findall(r"out/\S+", command)
    assert written
    assert all((tmp_path / name).stat().st_size > 1000 for name in written)


def test_pictures_are_what_they_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawing of the demo: dark where the photograph is smooth, bright along its outlines."""
    from PIL import Image
    photo = _photo(300, 400)
    edges = np.asarray(pipelink_ir.compile(EXAMPLES / "edge.plir")(photo=photo).edges)[0, :, :, 0]
    assert Image.fromarray(edges).mode == "L"
    luma = (photo[0] / 255) @ [0.299, 0.587, 0.114]
    steep = scipy.ndimage.gaussian_gradient_magnitude(luma, 1)
    assert edges[steep > np.quantile(steep, 0.95)].mean() > 3 * edges[steep < np.quantile(steep, 0.5)].mean()
