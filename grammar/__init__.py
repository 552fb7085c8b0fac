"""The text form of PLIR, and nothing else knows it: text -> `Module` (`parse`), `Module` -> text (`print_module`), text -> tidy text (`format_text`).

    plir.lark         the syntax, read by lark (LALR)
    tokens.py         what names, numbers, strings and comments look like
    builder.py        what each rule builds
    engine.py         lark with this grammar, kept in the user's cache folder
    parser.py         parse, with recovery at the next item
    syntax_errors.py  what a message about a wrong token says
    printer.py        print_module, and the printers of its parts
    formatter.py      format_text, for `pipelinkc fmt`

Imports are lazy, so that importing this package does not import lark.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelink_ir.grammar.formatter import format_text
    from pipelink_ir.grammar.parser import parse
    from pipelink_ir.grammar.printer import print_module

_HOMES = {"parse": "parser", "print_module": "printer", "format_text": "formatter"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = ["format_text", "parse", "print_module"]
