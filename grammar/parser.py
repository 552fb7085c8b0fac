"""Text into a `Module`."""
from __future__ import annotations

import codecs
import gc
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import cast

from lark.exceptions import UnexpectedToken

from pipelink_ir.grammar.builder import shared_builder
from pipelink_ir.grammar.engine import engine, terminal_names
from pipelink_ir.grammar.syntax_errors import Stop, explain
from pipelink_ir.grammar.tokens import Token, Tokens, tokenize
from pipelink_ir.ir.diagnostics import Report, internal_error
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.source import Source, Span

_LOCK = threading.Lock()     # lark holds one builder, so one text is parsed at a time


def parse(text: str | bytes, path: str) -> Module:
    """The module that `text` spells; `path` is the name under which messages speak of it. Raises `ProgramError` with every error found."""
    report = Report()
    source = Source(path, _decoded(text, path, report))
    tokens = tokenize(source.text or "", terminal_names())
    with _LOCK, _no_collector():
        try:
            module = _build(source, tokens, tokens.tokens, report)
        except UnexpectedToken:
            report = Report()
            _find_errors(source, tokens, report)
    report.stop_if_failed()
    return module


def _build(source: Source, tokens: Tokens, part: Sequence[Token], report: Report) -> Module:
    builder = shared_builder()
    builder.begin(source, tokens, report)
    # lark calls the builder, so what comes back is what its rule `module` returns.
    module = cast(Module, engine().parse(cast(str, part)))
    builder.finish()
    return module


# ---------------------------------------------------------------------------------------------------------------------- errors


def _find_errors(source: Source, tokens: Tokens, report: Report) -> None:
    """Parse each item by itself, so that a mistake in one does not hide those in others; of each the first wrong token is reported."""
    starts = [0, *_item_starts(tokens), len(tokens.tokens)]
    for first, last in pairwise(starts):
        part = tokens.tokens[first:last]
        try:
            _build(source, tokens, part, report)
        except UnexpectedToken as e:
            beyond = tokens.tokens[last] if last < len(tokens.tokens) else None
            index = len(part) if e.token.type == "$END" else bisect_left(part, e.token.start_pos, key=lambda t: t.start_pos)
            fault = tokens.faults.get(part[index].start_pos) if index < len(part) else None
            said = explain(Stop(source, part, index, beyond, _acceptable(part[:index]), fault, tokens.comments))
            report.error(said.code, said.span, said.message, said.notes, said.help)
    if not report.failed:
        internal_error("an item that parses alone does not parse among the others")


def _acceptable(good: Sequence[Token]) -> frozenset[str]:
    """What may come after these tokens. They are fed once more, up to here: the wrong token has already led to reductions."""
    builder = shared_builder()
    builder.begin(Source("<nothing>", ""), Tokens(" " * (good[-1].end_pos if good else 0)), Report())
    parser = engine().parse_interactive(cast(str, good))
    parser.exhaust_lexer()
    texts = {name: text for text, name in terminal_names().items()}
    return frozenset(texts.get(name, name) for name in parser.accepts())   # type: ignore[no-untyped-call]


def _item_starts(tokens: Tokens) -> Iterator[int]:
    """Where items begin: a word like `op` that is the first on its line and is followed by a name."""
    for i, (token, after) in enumerate(pairwise(tokens.tokens)):
        if token.value in _AFTER_WORD and i > 0 and after.type in _AFTER_WORD[token.value]:
            line = tokens.text.rfind("\n", 0, token.start_pos) + 1
            if not tokens.text[line:token.start_pos].strip():
                yield i


_AFTER_WORD = {"op": ("SYMBOL",), "pipeline": ("SYMBOL",), "target": ("SYMBOL",), "import": ("STRING", "NAME")}


# ------------------------------------------------------------------------------------------------------------------------ text


@contextmanager
def _no_collector() -> Iterator[None]:
    """The cyclic collector would go through the growing module over and over, and finds nothing: nodes hold no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _decoded(text: str | bytes, path: str, report: Report) -> str:
    """The characters, without a byte order mark. A byte that is not UTF-8, or a NUL, is an error at its place."""
    if isinstance(text, bytes):
        data = text.removeprefix(codecs.BOM_UTF8)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as e:
            before = data[:e.start].decode("utf-8")
            rest = before + data[e.start:].decode("utf-8", "replace")
            report.error("PL1001", Span(Source(path, rest), len(before), len(before) + 1), f"the byte 0x{data[e.start]:02x} is not UTF-8",
                         help="save the file as UTF-8")
            report.stop_if_failed()
    assert isinstance(text, str)
    text = text.removeprefix("\ufeff")
    if bad := re.search("[\0\ud800-\udfff]", text):
        what = "a NUL character" if bad[0] == "\0" else f"U+{ord(bad[0]):04X}, half of a character,"
        shown = re.sub("[\0\ud800-\udfff]", "\ufffd", text)
        report.error("PL1001", Span(Source(path, shown), bad.start(), bad.end()), f"{what} cannot stand in a program", help="remove it")
        report.stop_if_failed()
    return text
