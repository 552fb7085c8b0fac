"""Clauses put together at random: whatever is said of them is said with a code, a place and a help, and what is not refused can be carried out."""
from __future__ import annotations

import random

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.passes.hooks import VerifyEach
from pipelink_ir.passes.manager import parse_passes, run_passes

VALUES = {
    "dtype": ("i8", "u8", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "i4", "i16", "f64", "int8", "[i8]"),
    "weights": ("i4", "i8", "f8e4m3", "f16", "f32", "i16", "1"),
    "scheme": ("symmetric", "affine", "plain", "linear"), "granularity": ("tensor", "channel", "block(32)", "block(16)", "block(7)", "block", "block(0)", "block(K)", "32"),
    "ranges": ("calibrated", "dynamic", "dynamic", "none"), "budget": ("1e-1", "5e-1", "1e-3", "0", "\"1\"", "nan", "-inf"),
    "block": ("128", "[64, 64]", "[16, 16, 16]", "4096", "[0]", "[]", "x"), "library": ("generated", "[cublaslt, generated]", "cudnn", "mine"),
    "force": ("true", "false", "1"), "precision": ("mixed", "high"), "up": ("i8", "f16", "i4"), "down": ("f16", "u8", "f32"), "up.x": ("i8",),
}
OPERATORS = """op @linear(%x: tensor<NxKxT>, %w: tensor<KxMxT>) -> (%y: tensor<NxMxT>) {{
  memory {{ dtypes = [f16, bf16, f32] }}
  {0}
  compute {{ %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) }}
}}
op @relu(%x: tensor<...xT>) -> (%y: tensor<...xT>) {{ compute {{ %y[...] = max(%x[...], 0) }} }}
op @mlp(%x: tensor<NxKxT>, %w: tensor<KxMxT>, %v: tensor<MxKxT>) -> (%y: tensor<NxKxT>) {{
  {1}
  graph {{
    %h = @linear(%x, %w) as up
    %a = @relu(%h)
    %y = @linear(%a, %v) as down
  }}
}}
pipeline @p(%x: tensor<16x64xf32>, param %w: tensor<64x32xf32>, param %v: tensor<32x64xf32>) -> (%y: tensor<16x64xf32>) {{
  %y = @mlp(%x, %w, %v)
}}
"""


CODES: dict[str, tuple[str, ...]] = {"scheme": ("symmetric", "affine"), "ranges": ("dynamic",), "weights": ("i4", "i8"), "granularity": ("tensor", "channel", "block(16)", "block(32)"),
         "force": ("true",), "budget": ("5e-1",)}
FITTING: dict[str, dict[str, tuple[str, ...]]] = {"i8": CODES, "u8": CODES, "f16": {"force": ("true",), "budget": ("1e-1",)}, "bf16": {"weights": ("i4", "f8e4m3"), "force": ("true",)},
           "f8e4m3": {"ranges": ("dynamic",), "weights": ("f8e5m2",), "granularity": ("tensor", "channel"), "force": ("true",)}}


def clause(rng: random.Random, graph: bool) -> str:
    """A clause of any keys and values, or one whose keys go together."""
    if rng.random() < 0.3:
        return ""
    if rng.random() < 0.3:
        keys = rng.sample(list(VALUES), rng.randint(1, 6))
        settings = [f"{k} = {rng.choice(VALUES[k])}" for k in keys]
    else:
        dtype = rng.choice(list(FITTING))
        more = FITTING[dtype]
        settings = [f"{k} = {rng.choice(more[k])}" for k in rng.sample(list(more), rng.randint(0, len(more)))]
        labels = rng.choice(("up", "down", "up down")).split() if graph and rng.random() < 0.6 else []
        settings = (["precision = mixed", *(f"{x} = {dtype}" for x in labels)] if labels else [f"dtype = {dtype}"]) + settings
        rng.shuffle(settings)
    return f"downgrade cpu {{ {', '.join(settings)} }}"


def outcome(text: str) -> str:
    """`right`, `refused`, or `beyond` where only the estimate or calibration refuse it; an internal error comes through."""
    report = Report()
    kind = "refused"
    try:
        module = run_passes(parse(text, "random.plir"), parse_passes("frontend"), report, [VerifyEach()])
        kind = "beyond"
        run_passes(module, parse_passes("push-policies{arch=cpu},flatten,lower-precision{arch=cpu}"), report, [VerifyEach()])
        kind = "right"
    except ProgramError:
        pass
    told = report.diagnostics
    if kind == "beyond":
        assert {d.code for d in told if d.severity == "error"} <= {"PL4302", "PL4201", "PL9104"}, text
    for d in told:
        assert d.help, (text, d.text())
        assert d.span.source.path == "random.plir", d.text()
        assert d.message[0].islower() or d.message[0] in "'\"", d.message
    return kind


@pytest.mark.parametrize("seed", range(4))
def test_random_clauses_are_refused_in_words_or_carried_out(seed: int) -> None:
    rng = random.Random(seed)
    found = {"right": 0, "refused": 0, "beyond": 0}
    for _ in range(50):
        found[outcome(OPERATORS.format(clause(rng, False), clause(rng, True)))] += 1
    assert found["refused"] > 5
    assert found["right"] > 15
