"""Operators from text, as programs of the loop-level form, run by the interpreter of these tests."""
from __future__ import annotations

from typing import Any

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.build import build
from pipelink_ir.grammar.parser import parse
from pipelink_ir.passes.infer.operator import typed_operator
from tests.unit.loops.interpreter import run


def program(text: str) -> form.Program:
    """The program of the one operator in `text`."""
    return build(typed_operator(parse(text, "test.plir").operators[0]))


def results(text: str, symbols: dict[str, int] | None = None, scalars: dict[str, Any] | None = None, **arrays: Any) -> dict[str, Any]:
    """What the operator makes of arrays."""
    return run(program(text), arrays, symbols, scalars)


def op(signature: str, body: str, sections: str = "") -> str:
    """The text of an operator."""
    return f"op @f({signature.partition('->')[0].strip()}) -> ({signature.partition('->')[2].strip()}) {{ {sections} compute {{ {body} }} }}"
