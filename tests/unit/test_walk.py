"""Substitution: what it replaces, what it leaves, and that no name is captured."""
from __future__ import annotations

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.nodes import Define, Expr
from pipelink_ir.ir.walk import substitute


def expression(text: str) -> Expr:
    (op,) = parse(f"op @f(%x: tensor<NxMxf32>) -> (%y: tensor<Nxf32>) {{ compute {{ %y[n] = {text} }} }}".encode(), "t.plir").operators
    assert op.compute is not None
    (item,) = op.compute.body
    assert isinstance(item, Define)
    return item.value


@pytest.mark.parametrize(("before", "names", "after"), [
    ("a + %x[a, 0]", {"a": "n + 1"}, "(n + 1) + %x[n + 1, 0]"),
    ("a + b", {"a": "b", "b": "a"}, "b + a"),                                                          # at once, not one after the other
    ("sum[j < M](%x[j, a])", {"j": "n"}, "sum[j < M](%x[j, a])"),                                      # bound inside
    ("sum[j < j](%x[j, a])", {"j": "n"}, "sum[j < n](%x[j, a])"),                                      # the bound itself is outside
    ("sum[j < M](%x[j, a])", {"a": "j"}, "sum[j_ < M](%x[j_, j])"),                                    # no capture
    ("sum[j < M](%x[j, a] + j_)", {"a": "j"}, "sum[j__ < M](%x[j__, j] + j_)"),                        # nor of what was free already
    ("sum[i < M, j in i..M](%x[i, j] + a)", {"a": "i"}, "sum[i_ < M, j in i_..M](%x[i_, j] + i)"),     # a later range sees an earlier index
    ("nth[j < M](%x[j, 0], a)", {"a": "j"}, "nth[j_ < M](%x[j_, 0], j)"),
    ("sum[j < M where j > a](1 + j)", {"a": "2", "M": "3"}, "sum[j < 3 where j > 2](1 + j)"),
])
def test_substitute(before: str, names: dict[str, str], after: str) -> None:
    assert substitute(expression(before), {k: expression(v) for k, v in names.items()}) == expression(after)


def test_what_has_nothing_to_replace_stays_the_same_object() -> None:
    e = expression("sum[j < M where j > 2](%x[j, 0] + nth[k < 2](%x[k, j], 0))")
    assert substitute(e, {"q": expression("1"), "j": expression("2")}) is e
