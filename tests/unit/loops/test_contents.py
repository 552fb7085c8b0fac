"""The table of what statements are made of: nothing is forgotten in it, and it says what is true."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import pytest

from pipelink_ir.backends.loops import contents, form
from pipelink_ir.backends.loops.check import check_program
from pipelink_ir.backends.loops.contents import Contents, exprs, forgotten, makes, places, put, reads
from pipelink_ir.backends.loops.print import program_text
from pipelink_ir.backends.loops.tidy import tidy
from pipelink_ir.ir.dtypes import BOOL, F16, F32, I64, U8

X = form.Buffer("x", "operand", F32, (form.Const(8, I64),))
TILES = form.Tiles(F16, F16, F32, (1, 1), (1, 2))
STRIP = form.Strip(F16, F16, F32, 1, 64, 4, 1, 64)
WINDOW = form.Window(F16, F16, F32, 1, 1, (3, 1), (3, 1), 1, 1152, 64)


def i(name: str) -> form.Ref:
    return form.Ref(name, I64)


def yes(name: str) -> form.Ref:
    return form.Ref(name, BOOL)


LEFT, RIGHT = form.Factor("a", i("e0"), True, 8), form.Factor("b", i("e1"), True, 8)
A, B = (form.Panel(n, (i(f"{n}0"), i(f"{n}1"), i(f"{n}2")), (i(f"{n}3"), i(f"{n}4")), f"{n}6", yes(f"{n}5")) for n in "ab")
SAMPLES: list[tuple[form.Stmt, str, str, str]] = [
    # a statement, the names in its places, those in its data, and what it makes
    (form.Let("v", i("e0")), "", "e0", "v"),
    (form.Var("v", I64, i("e0")), "", "e0", "v"),
    (form.Assign("v", i("e0")), "", "e0", "v"),
    (form.Store("t", i("e0"), i("e1"), I64), "e0", "e1", "%t"),
    (form.Move("t", i("e0"), "u", i("e1"), 2), "e0 e1", "", "%t"),
    (form.For("k", i("e0"), i("e1"), i("e2"), (form.Let("q", i("e9")),)), "e0 e1 e2", "", ""),
    (form.If(yes("e0"), (form.Let("q", i("e9")),)), "", "e0", ""),
    (form.Alloc("t", I64, i("e0")), "e0", "", "%t"),
    (form.Fail(0, (i("e0"), i("e1"))), "", "e0 e1", ""),
    (form.Barrier(), "", "", ""),
    (form.Combine("sum", ("v",), None, i("e0")), "e0", "", "v"),
    (form.Combine("argmax", ("v", "w"), yes("e0"), i("e1")), "e1", "e0", "v w"),
    (form.Signal("t", i("e0")), "e0", "", "%t"),
    (form.AwaitCount("t", i("e0"), i("e1")), "e0 e1", "", "%t"),
    (form.Fragment("f", TILES), "", "", "#f"),
    (form.Multiply("f", LEFT, RIGHT, 16), "e0 e1", "", "#f"),
    (form.StoreFragment("f", i("e0"), "t", 8), "e0", "", "%t"),
    (form.Trade("t", "u"), "", "", "%t"),
    (form.CopyAsync("t", i("e0"), "u", i("e1"), yes("e2"), I64), "e0 e1", "e2", "%t"),
    (form.StripLine("t", 0, "u", i("e0"), yes("e1"), STRIP), "e0", "e1", "%t"),
    (form.StripMultiply("t", "u", "w", i("e0"), STRIP), "e0", "", "%t"),
    (form.WindowMultiply("t", "u", i("e0"), i("e1"), "w", i("e2"), WINDOW), "e0 e1 e2", "", "%t"),
    (form.TakeWords("t", "u", i("e0"), 8, yes("e1")), "e0", "e1", "%t"),
    (form.TakeWords("t", "u", i("e0"), 8, at=i("e1")), "e0 e1", "", "%t"),
    (form.Words("t", 0, "u", i("e0"), 16, F16), "e0", "", "%t"),
    (form.Pack("t", 0, "u", 16), "", "", "%t"),
    (form.FewMultiply("t", 0, "u", "w", F16, F16, 2, 16, U8, True, (form.Ref("e0", F32),)), "", "e0", "%t"),
    (form.Commit(), "", "", ""),
    (form.Await(1), "", "", ""),
    (form.Contract("t", form.Ring(F16, F16, F32, 1, 64, (True, True)), A, B, i("e0"), i("e1"), i("e2"), i("e3"), "u"),
     "e0 e1 e2 e3 a0 a1 a2 a3 a4 b0 b1 b2 b3 b4", "a5 b5", "%t"),
    (form.Dot("t", TILES, LEFT, RIGHT, 16), "e0 e1", "", "%t"),
    (form.Online("t", "u", "w", None, 1, 2, 0, form.Ref("e0", F32)), "", "e0", "%t %u %w"),
    (form.AcrossRow("t", "sum", 2), "", "", "%t"),
]


def names(found: tuple[form.Expr, ...]) -> list[str]:
    assert all(isinstance(x, form.Ref) for x in found)
    return sorted(x.name for x in found if isinstance(x, form.Ref))


@pytest.mark.parametrize(("s", "where", "what", "made"), SAMPLES, ids=lambda x: type(x).__name__ if not isinstance(x, str) else "")
def test_what_a_statement_is_made_of(s: form.Stmt, where: str, what: str, made: str) -> None:
    assert names(places(s)) == sorted(where.split())
    assert names(exprs(s)) == sorted([*where.split(), *what.split()])
    assert list(makes(s)) == made.split()
    other = put(s, lambda x: form.Ref(x.name + "_", x.dtype) if isinstance(x, form.Ref) else x)
    assert type(other) is type(s)
    assert names(exprs(other)) == sorted(n + "_" for n in [*where.split(), *what.split()])
    assert put(other, lambda x: form.Ref(x.name.removesuffix("_"), x.dtype) if isinstance(x, form.Ref) else x) == s
    assert contents.blocks(other) == contents.blocks(s)


def test_all_statements_have_a_sample() -> None:
    """But for those that tell it themselves, and stand in one kernel alone."""
    assert {k for k in get_args(form.Stmt) if k not in get_args(form.Own)} <= {type(s) for s, *_ in SAMPLES}


def test_memory_that_is_read_by_no_expression() -> None:
    found = {type(s): set(reads(s)) for s, *_ in SAMPLES}
    assert found[form.Move] == found[form.Trade] == found[form.CopyAsync] == {"%u"}
    assert found[form.Multiply] == found[form.Dot] == {"%a", "%b"}
    assert found[form.Contract] == {"%a", "%a6", "%b", "%b6"}
    assert found[form.StoreFragment] == {"#f"}
    assert (found[form.StripLine], found[form.StripMultiply]) == ({"%u"}, {"%u", "%w"})
    assert found[form.WindowMultiply] == {"%u", "%w"}
    assert found[form.Store] == found[form.Barrier] == set()


@dataclass(frozen=True, slots=True)
class Unknown:
    """A statement that nobody knows."""

    value: form.Expr


def test_what_is_forgotten_is_found() -> None:
    assert not list(forgotten(contents.TABLE, get_args(form.Stmt)))
    assert list(forgotten(contents.TABLE, (form.Let, Unknown))) == ["Unknown"]
    assert list(forgotten({Unknown: Contents()}, (Unknown,))) == ["Unknown.value"]
    assert list(forgotten({form.Multiply: Contents(places=("left.index",))}, (form.Multiply,))) == ["Multiply.right.index"]
    assert list(forgotten({form.If: Contents(data=("cond",), blocks=("then",))}, (form.If,))) == ["If.other"]


def test_an_unknown_statement_is_refused() -> None:
    unknown: Any = Unknown(i("N"))
    program = form.Program("p", (form.Kernel("k", (X,), ("N",), (), (unknown,)),), (X,), (), (), ("N",), (), ())
    for look in (check_program, program_text, lambda p: tidy(p.kernels[0].body)):
        with pytest.raises((AssertionError, KeyError)):
            look(program)


def test_what_nobody_needs_is_gone() -> None:
    """Scratch goes with all that is stored to it; memory of the caller's and failures stay."""
    seven = form.Const(7, I64)
    body = (form.Alloc("t", I64, seven), form.Store("t", form.Const(0, I64), i("N"), I64), form.Var("v", I64, seven), form.Combine("sum", ("v",)), form.Barrier(),
            form.Store("y", form.Const(0, I64), i("N"), I64), form.Fail(0, (i("N"),)))
    assert tidy(body) == body[4:]
