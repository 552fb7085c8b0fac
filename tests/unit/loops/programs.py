"""Operators from text, as programs of the loop-level form, run by the interpreter of these tests."""
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import build
from pipelink_ir.backends.loops.gpu.build import build_gpu
from pipelink_ir.grammar.parser import parse
from pipelink_ir.passes.infer.operator import typed_operator
from tests.unit.loops.interpreter import Failed, run


def program(text: str) -> form.Program:
    """The program of the one operator in `text`."""
    return build(typed_operator(parse(text, "test.plir").operators[0]))


def results(text: str, symbols: dict[str, int] | None = None, scalars: dict[str, Any] | None = None, **arrays: Any) -> dict[str, Any]:
    """What the operator makes of arrays: on a CPU, after kernels for a GPU were seen to make the same of them."""
    typed = typed_operator(parse(text, "test.plir").operators[0])
    try:
        out = run(build(typed), arrays, symbols, scalars)
    except Failed as fault:
        with pytest.raises(Failed, match=re.escape(str(fault))):
            run(build_gpu(typed), arrays, symbols, scalars)
        raise
    for name, value in run(build_gpu(typed), arrays, symbols, scalars).items():
        if value.dtype.kind == "f":
            rtol, finite = {2: 2e-3, 4: 1e-5, 8: 1e-13}[value.dtype.itemsize], np.abs(out[name][np.isfinite(out[name])])
            np.testing.assert_allclose(value, out[name], rtol=rtol, atol=0.1 * rtol * finite.max(initial=1.0))
        else:
            np.testing.assert_array_equal(value, out[name])
    return out


def op(signature: str, body: str, sections: str = "") -> str:
    """The text of an operator."""
    return f"op @f({signature.partition('->')[0].strip()}) -> ({signature.partition('->')[2].strip()}) {{ {sections} compute {{ {body} }} }}"
