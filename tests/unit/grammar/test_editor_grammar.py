"""The TextMate grammar knows the words that the tables know, and colours lines as one expects."""
from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pipelink_ir.grammar import engine
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import CONSTANTS, FUNCTIONS, REDUCTIONS, RESERVED

GRAMMAR = json.loads(engine.GRAMMAR_FILE.with_name("plir.tmLanguage.json").read_text(encoding="utf-8"))
PARTS: dict[str, Any] = GRAMMAR["repository"]


def words(pattern: str) -> set[str]:
    """The words of the largest alternation in a pattern."""
    alternations: list[list[str]] = [m.split("|") for m in re.findall(r"\(\?:([\w|]+)\)", pattern)]
    return set(sorted(alternations, key=len)[-1])


def named(scope: str) -> str:
    return next(str(p["match"]) for p in PARTS["words"]["patterns"] if p["name"] == scope)


def test_words() -> None:
    infix = {f.name for f in FUNCTIONS.values() if f.infix and f.name.isalpha() and f.name != "neg"}
    called = {f.name for f in FUNCTIONS.values() if not f.infix}
    assert words(PARTS["casts"]["match"]) == set(DTYPES)
    assert words(next(p["match"] for p in PARTS["types"]["patterns"] if p.get("name") == "storage.type.dtype.plir")) == set(DTYPES)
    assert words(PARTS["functions"]["match"]) == called
    assert words(PARTS["reductions"]["match"]) == set(REDUCTIONS)
    assert words(named("keyword.operator.word.plir")) == infix
    assert words(named("keyword.control.plir")) == RESERVED - infix - called
    assert words(named("constant.language.plir")) == set(CONSTANTS)


def test_keywords_are_those_of_the_grammar() -> None:
    spelled = {w for w in engine.terminal_names() if w.isalpha()}
    assert words(named("keyword.other.plir")) == spelled - RESERVED - {"tensor"} | {"dim", "dtype"}


def test_every_pattern_is_valid_and_included() -> None:
    def patterns(part: Any) -> list[str]:
        if isinstance(part, dict):
            own = [part[k] for k in ("match", "begin", "end") if k in part]
            return own + [p for v in part.values() for p in patterns(v)]
        return [p for v in part for p in patterns(v)] if isinstance(part, list) else []
    for pattern in patterns(GRAMMAR):
        re.compile(pattern)
    assert [p["include"][1:] for p in GRAMMAR["patterns"]] == list(PARTS)


@pytest.mark.parametrize(("part", "text", "found"), [
    ("numbers", "x1 + 2.5e-3 * %a3", ["2.5e-3"]), ("numbers", "0..4", ["0", "4"]), ("values", "%outer.inner + %x", ["%outer.inner", "%x"]),
    ("symbols", "@sobel_3x3.gamma(%x)", ["@sobel_3x3.gamma"]), ("reductions", "max(a, b) + max[k < K](c)", ["max"]), ("casts", "sat_u8(f32(x))", ["sat_u8", "f32"]),
    ("functions", "sqrt(x) + sqrt", ["sqrt"]), ("items", "op @relu(", ["op @relu"])])
def test_what_is_coloured(part: str, text: str, found: list[str]) -> None:
    assert [m[0] for m in re.finditer(PARTS[part]["match"], text)] == found
