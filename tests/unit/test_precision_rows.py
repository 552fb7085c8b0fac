"""What `benchmarks/gpu/precision.py` compares, on the processor and small: both plans of each program are right."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipelink_ir.passes.pipeline import ALIASES

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from gpu import precision

SMALL = {"denoiser": precision._denoiser(2, 24), "inspection": precision._inspection(4, 64), "transformer": precision._transformer(1, 8),
         "feed-forward": precision._ffn(2, 4, 64, 96)}


@pytest.mark.parametrize("name", SMALL)
def test_both_plans(name: str) -> None:
    case = SMALL[name]
    f16, low = precision.plans(case, "cpu", ALIASES["cpu"].replace("arch=cpu", "arch=sm_90"))
    assert not any(e.kind == "lowered" for e in f16.ledger)
    (a,), (b,) = ((call.bind(**case.params)(**case.inputs)).values() for call in (f16, low))
    assert precision.relative(b, a) < 0.2
    judged = case.judge(a, b)
    assert judged.get("psnr lost", 0) < 0.5
    assert judged.get("same class", 1) == 1


def test_the_summary() -> None:
    rows = {"denoiser": {"ms": {"f16": 2.0, "lowered": 1.0}, "ratio": 2.0, "relative error": 0.03, "nodes": 9}, "x": {"fault": "y"},
            precision.PRODUCT: {"ms": {"f16": 1.5, "i8": 0.75}, "ratio": 2.0, "ratio of cuBLASLt": 1.2, "f8 beside cuBLASLt": 1.047}}
    assert precision.summary(rows) == ("denoiser: 2.0000 in f16, 1.0000 lowered, 2.00, error 0.030, 9 nodes lowered; x: fault; "
                                       "product 8192x4096x16384: 1.5000 in f16, 0.7500 i8, 2.00, cuBLASLt 1.20, f8 1.05 times its time there")
