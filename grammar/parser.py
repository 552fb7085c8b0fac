"""Text into a `Module`."""
from __future__ import annotations

import codecs
import gc
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lark.exceptions import UnexpectedToken

from pipelink_ir.grammar.builder import shared_builder
from pipelink_ir.grammar.engine import engine, terminal_names
from pipelink_ir.grammar.tokens import tokenize
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.source import Source, Span

_LOCK = threading.Lock()     # lark holds one builder, so one text is parsed at a time


def parse(text: str | bytes, path: str) -> Module:
    """The module that `text` spells; `path` is the name under which messages speak of it. Raises `ProgramError` with every error found."""
    report = Report()
    source = Source(path, _decoded(text, path, report))
    assert source.text is not None
    tokens = tokenize(source.text, terminal_names())
    with _LOCK, _no_collector():
        builder = shared_builder()
        builder.begin(source, tokens, report)
        try:
            module: Module = engine().parse(tokens.tokens)  # type: ignore
            builder.finish()
        except UnexpectedToken as e:
            report.error("PL1001", Span(source, e.token.start_pos, e.token.end_pos), f"'{e.token.value}' cannot stand here")
    report.stop_if_failed()
    return module


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
