"""The kernel of attention by the interpreter, which finds races and scratch that is read before it is written, against NumPy in f64."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.loops.contents import exprs
from pipelink_ir.backends.loops.form import Op
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.grammar import parse
from pipelink_ir.ir.dtypes import F32
from pipelink_ir.ir.targets import parse_arch
from pipelink_ir.passes.infer.operator import typed_operator
from tests.unit.loops import interpreter

RNG = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def text_of(over: str, weights: str = "%p[h, i, j]", out: str = "%w[h, i, d] / %z[h, i]") -> str:
    return f"""op @attend(%q: tensor<HxSxDxf16>, %k: tensor<HxLxDxf16>, %v: tensor<HxLxDxf16>, %mask: tensor<LxLxbool>) -> (%o: tensor<HxSxDxf16>) {{
  where L >= S
  compute {{
    %s[h, i, j] = sum[t < D](%q[h, i, t] * %k[h, j, t]) * 0.25
    %m[h, i]    = max[{over}](%s[h, i, j])
    %p[h, i, j] = exp(%s[h, i, j] - %m[h, i])
    %z[h, i]    = sum[{over}](%p[h, i, j])
    %w[h, i, d] = sum[{over}]({weights} * %v[h, j, d])
    %o[h, i, d] = {out}
  }}
}}"""


@pytest.mark.parametrize(("over", "weights", "out"), [
    ("j < L", "%p[h, i, j]", ""), ("j < L where j <= i + 3", "%p[h, i, j]", ""), ("j < L where %mask[i, j]", "%p[h, i, j]", ""),
    ("j < L where %mask[0, j]", "%p[h, i, j]", ""), ("j < L where j <= i", "f16(%p[h, i, j] / %z[h, i])", "%w[h, i, d]")])
def test_no_races(over: str, weights: str, out: str) -> None:
    for h, s, n, d, odd in ((2, 5, 21, 11, False), (1, 34, 40, 16, True)):
        text = text_of(over, weights, out or "%w[h, i, d] / %z[h, i]")
        for name, size in (("H", h), ("S", s), ("L", n), ("D", d)):
            text = text.replace(f"tensor<{name}x", f"tensor<{size}x").replace(f"x{name}x", f"x{size}x").replace(f"x{name}x", f"x{size}x")
            text = text.replace(f"< {name}", f"< {size}").replace(f"where {name} >= S", f"where {size} >= 1")
        q, k, v = (RNG.normal(size=shape).astype(np.float16) for shape in ((h, s, d), (h, n, d), (h, n, d)))
        mask = RNG.random((n, n)) < 0.5
        mask[:, 2], mask[0, 15] = True, False
        seen = {"i + 3": np.arange(n) <= np.arange(s)[:, None] + 3, "mask[i": mask[:s], "mask[0": mask[:1].repeat(s, 0), "<= i": np.arange(n) <= np.arange(s)[:, None]}
        here = next((value for word, value in seen.items() if word in over), np.ones((s, n), bool))
        if odd:
            v[:, 15, 3] = np.nan
        program = build_gpu(typed_operator(parse(text, "test.plir").operators[0]))
        assert "Online" in {type(x).__name__ for x in _statements(program.kernels[0].body)}
        got = interpreter.run(program, {"q": q, "k": k, "v": v, "mask": mask})["o"]
        scores = np.where(here, np.einsum("hit,hjt->hij", q.astype(float), k.astype(float)) / 4, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        want = np.einsum("hij,hijd->hid", p, np.where(here[None, :, :, None], v.astype(float)[:, None], 0))
        np.testing.assert_allclose(got.astype(float), want, rtol=3e-3, atol=3e-3)
        assert np.isnan(want).any() == (odd and bool(here[:, 15].any()))


@pytest.mark.parametrize("out", ["%w[h, i, d] / %z[h, i]", "select(%z[h, i] == 0, 0, %w[h, i, d] / %z[h, i])"])
@pytest.mark.parametrize("result", ["f32", "f16"])
@pytest.mark.parametrize(("over", "seen"), [("j < 21", np.ones((5, 21), bool)), ("j < 21 where j <= i + 3", np.arange(21) <= np.arange(5)[:, None] + 3)])
def test_one_that_flows(over: str, seen: Array, result: str, out: str) -> None:
    text = text_of(over, out=out).replace("HxSxD", "2x5x16").replace("HxLxD", "2x21x16").replace("LxL", "21x21").replace("t < D", "t < 16").replace("L >= S", "21 >= 1").replace("16xf16>) {", f"16x{result}>) {{")
    q, k, v = (RNG.normal(size=shape).astype(np.float16) for shape in ((2, 5, 16), (2, 21, 16), (2, 21, 16)))
    v[:, 15, 3] = np.nan
    program = build_gpu(typed_operator(parse(text, "test.plir").operators[0]), parse_arch("sm_90a"))
    assert [k.name for k in program.kernels] == ["attend.o.flow64", "attend.o"]
    assert "Attend" in {type(x).__name__ for x in _statements(program.kernels[0].body)}
    assert "attend %sums, %top, %total = %q[16, 5, 2, 1, 1" in program_text(program)
    assert ("trade %" in program_text(program)) is (result == "f16")
    # Halves are multiplied by the reciprocals of a thread's two rows.
    assert _divisions(program.kernels[0].body) == (2 if result == "f16" else 4)
    got = interpreter.run(program, {"q": q, "k": k, "v": v, "mask": np.ones((21, 21), bool)})["o"]
    scores = np.where(seen, np.einsum("hit,hjt->hij", q.astype(float), k.astype(float)) / 4, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    want = np.einsum("hij,hijd->hid", p, np.where(seen[None, :, :, None], v.astype(float)[:, None], 0))
    np.testing.assert_allclose(got.astype(float), want, rtol=3e-3, atol=3e-3)
    assert np.isnan(want).any() == bool(seen[:, 15].any())


def _statements(body: Any) -> Any:
    from pipelink_ir.backends.loops.tidy import blocks
    for s in body:
        yield s
        for b in blocks(s):
            yield from _statements(b)


def _divisions(body: Any) -> int:
    """So many quotients stand in a block and in those inside."""
    def count(x: Any) -> int:
        return isinstance(x, Op) and (x.fn == "/" and x.dtype is F32) + sum(map(count, x.args))

    return sum(count(x) for s in _statements(body) for x in exprs(s))
