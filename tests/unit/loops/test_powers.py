"""Integers to powers that are not known: a negative one is an error, where it is asked for."""
from __future__ import annotations

import numpy as np
import pytest

from tests.unit.loops.interpreter import Failed
from tests.unit.loops.programs import op, results

SIGNATURE = "%x: tensor<Nxi32>, %n: tensor<Nxi32> -> %y: tensor<Nxi32>"


def test_a_negative_power_of_an_integer_is_an_error() -> None:
    text = op(SIGNATURE, "%y[i] = %x[i] ** %n[i]")
    assert results(text, x=np.array([2, -3, 7], np.int32), n=np.array([5, 3, 0], np.int32))["y"].tolist() == [32, -27, 1]
    with pytest.raises(Failed, match="an integer to the power -2 is no integer"):
        results(text, x=np.array([2, 1, 1], np.int32), n=np.array([0, 1, -2], np.int32))


def test_what_is_not_asked_for_cannot_fail() -> None:
    x, n = np.array([2, 3], np.int32), np.array([-1, 2], np.int32)
    assert results(op(SIGNATURE, "%y[i] = select(%n[i] >= 0, %x[i] ** %n[i], -1)"), x=x, n=n)["y"].tolist() == [-1, 9]
    stored = op(SIGNATURE, "%p[i] = %x[i] ** %n[i]\n%y[i] = select(%n[i] < 0, 7, sum[k < 9](%p[i] * i32(k)))")
    assert results(stored, x=x, n=n)["y"].tolist() == [7, 9 * 36]
    assert results(op(SIGNATURE, "%y[i] = sum[j < N where %n[j] > 0](%x[i] ** %n[j])"), x=x, n=n)["y"].tolist() == [4, 9]


def test_a_remainder_is_no_negative_power() -> None:
    text = op(SIGNATURE, "%y[i] = %x[i] ** (%n[i] mod 3)")
    assert results(text, x=np.array([2, 3], np.int32), n=np.array([-1, 2], np.int32))["y"].tolist() == [4, 9]
