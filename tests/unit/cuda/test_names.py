"""Names of emitted code: valid, alike, and never the same for two things."""
from __future__ import annotations

import itertools
import re

import pytest

from pipelink_ir.backends.cuda.emit import emit_unit
from pipelink_ir.backends.cuda.names import RESERVED, Names, kernel_names, readable
from pipelink_ir.backends.loops.form import Let, Ref, Store
from pipelink_ir.ir.dtypes import F32, I64
from tests.unit.cuda.forms import ONE, I, buffer, emitted, grid, i64, kernel, load, op, program

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
WORDS = ["int", "for", "double", "class", "asm", "half", "float4", "threadIdx", "min", "tanh", "main", "NULL", "tmp0", "__global__", "i64", "pl", "status", "index_t",
         "PL_LANES", "PIPELINK_WIDE", "a.b", "a_b", "a__b", "a___b", "_a", "a", "1a", "é", "u00e9", "", " ", "a b", "a-b", "a\nb", "a*/b", "own", "common", "ulonglong2"]


def test_names_are_identifiers_and_differ() -> None:
    names = Names()
    given = [names.new(w) for w in (*WORDS, *WORDS)]
    assert len(set(given)) == 2 * len(WORDS)
    assert all(IDENTIFIER.fullmatch(n) and "__" not in n for n in given)
    assert not RESERVED.intersection(given)
    assert not [n for n in given if n.startswith(("PL_", "PIPELINK_"))]


@pytest.mark.parametrize(("text", "name"), [("a.b", "a_b"), ("a__b", "a_b"), ("x", "x"), ("H", "H"), ("sobel_3x3.1.gx", "sobel_3x3_1_gx"), ("é", "ue9"), ("_x", "x")])
def test_names_are_like_those_of_the_program(text: str, name: str) -> None:
    assert readable(text) == name
    assert Names().new(text) == name


@pytest.mark.parametrize("order", list(itertools.permutations(["a.b", "a_b", "a_b_2"])))
def test_no_order_makes_two_alike(order: tuple[str, ...]) -> None:
    names = Names()
    given = [names.new(t) for t in order]
    assert len(set(given)) == 3


def test_kernels_avoid_functions_of_the_global_name_space() -> None:
    names = kernel_names()
    assert names.new("exp") == "exp_2"
    assert names.new("sinf") == "sinf_2"
    assert Names().new("exp") == "exp"


def test_a_buffer_and_a_value_of_one_name_are_two() -> None:
    text = emitted(kernel(grid(Let("x", load("x")), Store("y", I, op("+", Ref("x", F32), Ref("x", F32)), F32))))
    assert "const float x_2 = x[i];" in text
    assert "y[i] = x_2 + x_2;" in text


def test_every_word_may_name_anything() -> None:
    """Scalars, locals, loops and buffers of these names: what the declarations bind is distinct."""
    lets = tuple(Let(f"{w}", op("+", I, i64(n))) for n, w in enumerate(WORDS))
    k = kernel(grid(*lets, Store("float", I, load("int"), F32)), buffer("int"), buffer("float", kind="result"), scalars=(("double", F32), ("asm", I64)),
               symbols=("N",))
    text = emitted(k)
    bound = re.findall(r"const index_t (\w+) = ", text)
    assert len(bound) == len(set(bound)) == len(WORDS)
    assert re.search(r"int_2\[i\]", text)
    assert not RESERVED.intersection(bound)


def test_kernels_of_one_text_differ() -> None:
    k = [kernel(grid(Store("y", I, load("x"), F32)), name=n) for n in ("a.b", "a_b", "a__b", "a.b")]
    unit = emit_unit([(program(*k[:2]), None), (program(*k[2:]), None)])
    symbols = [c.symbol for c in unit.kernels]
    assert symbols == ["a_b", "a_b_2", "a_b_3", "a_b_4"]
    assert all(unit.text.count(f"\n{s}(") == 1 for s in symbols)


def test_a_name_is_not_the_kernel_s() -> None:
    text = emitted(kernel(grid(Let("test_y", op("+", I, ONE)), Store("y", Ref("test_y", I64), load("x"), F32))))
    assert "const index_t test_y_2 = i + 1;" in text


def test_text_depends_on_nothing_but_the_program() -> None:
    k = kernel(grid(Store("y", I, load("x"), F32)))
    assert emitted(k) == emitted(k)
