"""Prices against what an H200 took: what was measured faster is priced faster, and what a policy may keep was faster."""
from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.precision.price import Price, price
from pipelink_ir.passes.precision.profit import MARGIN, UNSEEN, pays
from tests.unit.passes.measured import H200, RIVALS

APART = 2.0
"""Two programs whose times differ by so much are never priced the other way round."""
SMALL = 0.012
"""Milliseconds: what is shorter is mostly a launch, whose time depends on how it is measured."""


@cache
def modelled(name: str) -> Price:
    module = run_passes(parse(H200[name].text(), "t.plir"), parse_passes("resolve,infer-types,check-contracts,flatten"), Report())
    return price(module, Arch("cuda", 90))


@pytest.mark.parametrize("name", [n for n, m in H200.items() if m.ms > SMALL])
def test_prices_are_near_what_was_measured(name: str) -> None:
    assert 0.5 < 1e3 * modelled(name).seconds / H200[name].ms < 1.5


def test_what_was_measured_faster_is_priced_faster() -> None:
    wrong = []
    for a, b in combinations((n for n, m in H200.items() if m.ms > SMALL), 2):
        slow, fast = (a, b) if H200[a].ms > H200[b].ms else (b, a)
        if H200[slow].ms > APART * H200[fast].ms and modelled(slow).seconds <= modelled(fast).seconds:
            wrong.append(f"{fast} was faster than {slow}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("codes", "floats"), RIVALS)
def test_codes_that_pay_were_faster(codes: str, floats: str) -> None:
    """Of the same layer on codes and on floats: what is priced as a gain was one, and what was a clear gain is priced as one."""
    ratio = H200[codes].ms / H200[floats].ms
    if pays(modelled(floats), modelled(codes)):
        assert ratio < 1
    elif H200[floats].ms > SMALL:
        assert ratio > 0.75


def test_few_rows_are_worth_bytes() -> None:
    """cuBLAS takes .036 and .033 for them in f16, this kernel .036 and .042: .025 and .030 for weights of four bits, .025 and .029 for those of eight. With
    more rows weights are made numbers for each tile again, and that takes ten times as long."""
    for rows in (1, 16):
        assert pays(modelled(f"rows {rows} f16"), modelled(f"rows {rows} i4"))
        assert pays(modelled(f"rows {rows} f16"), modelled(f"rows {rows} i8"))
    for weights in ("i4", "i8", "i8 by i4"):
        assert not pays(modelled("product 64x4096x11008 by columns"), modelled(f"rows 64 {weights}"))
        assert not pays(modelled("product 256x4096x11008"), modelled(f"rows 256 {weights}"))
    # Codes of both factors are one thing, codes of 8 and of 4 bits another.
    assert pays(modelled("product 64x4096x11008 by columns"), modelled("rows 64 both"))


def test_what_pays_is_clear_of_what_the_model_does_not_see() -> None:
    """Kernels that both plans have count for neither."""
    same = tuple((1e-5, 1.0, k) for k in range(50))
    base = Price(1e-3, kernels=(*same, (20e-6, 1.0, 0.0)))
    assert pays(base, Price(1e-3, kernels=(*same, (20e-6 * MARGIN - 1.01 * UNSEEN, 2.0, 0.0))))
    assert not pays(base, Price(1e-3, kernels=(*same, (20e-6 * MARGIN - 0.99 * UNSEEN, 2.0, 0.0))))
    assert not pays(base, base)
    # Small kernels, as many as before, are launches.
    assert not pays(Price(kernels=((3.6e-6, 1.0, 0.0),)), Price(kernels=((3e-6, 0.5, 0.0),)))
    assert pays(Price(kernels=((3.6e-6, 1.0, 0.0),) * 2), Price(kernels=((3e-6, 0.5, 0.0),)))
