"""lark with the grammar of PLIR: built once, kept in the user's cache folder, driven by the tokens of `tokens.py`.

The cached form is checked by a digest and only read by the same lark, Python and grammar; a folder that cannot be read or written, or a file
that is damaged, costs the half second of building the tables anew and nothing else.
"""
from __future__ import annotations

import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lark
from lark.common import LexerConf
from lark.lexer import Lexer, PatternStr

from pipelink_ir.grammar.builder import shared_builder
from pipelink_ir.grammar.tokens import Token
from pipelink_ir.ir import environment
from pipelink_ir.ir.functions import RESERVED

GRAMMAR_FILE = Path(__file__).with_name("plir.lark")


class TokenFeed(Lexer):
    """Hands cut tokens to lark. A word that is not reserved is a keyword exactly where the parser's state admits that keyword."""

    __future_interface__ = 2    # lark's name for lexers that see the parser's state

    def __init__(self, lexer_conf: LexerConf) -> None:
        self.soft = {word: name for word, name in literal_terminals(lexer_conf.terminals).items() if word.isalpha() and word not in RESERVED}

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Any]:
        soft, states, stack = self.soft, parser_state.parse_conf.states, parser_state.state_stack
        for token in lexer_state.text:
            if token.type == "NAME" and token.value in soft and (keyword := soft[token.value]) in states[stack[-1]]:
                yield token._replace(type=keyword)
            else:
                yield token


def literal_terminals(terminals: Any) -> dict[str, str]:
    """The terminals that are written in the grammar as text, by that text: `->`, `op`."""
    return {t.pattern.value: t.name for t in terminals if isinstance(t.pattern, PatternStr)}


@cache
def engine() -> lark.Lark:
    """The parser, from the cache if it is there."""
    grammar = GRAMMAR_FILE.read_text(encoding="utf-8")
    path = _cache_file(grammar)
    parser = _load(path)
    if parser is None:
        parser = lark.Lark(grammar, start="module", parser="lalr", lexer=TokenFeed, transformer=shared_builder(), keep_all_tokens=True,
                           maybe_placeholders=False)
        _store(path, parser)
    return parser


@cache
def terminal_names() -> dict[str, str]:
    """The terminal of each punctuation mark and keyword."""
    return literal_terminals(engine().terminals)


def _cache_file(grammar: str) -> Path:
    """Where the tables of this grammar are kept."""
    key = "\0".join((grammar, lark.__version__, sys.version, __name__))
    name = f"grammar-{hashlib.sha256(key.encode()).hexdigest()[:32]}.bin"
    return environment.cache_dir() / name


def _load(path: Path) -> lark.Lark | None:
    try:
        data = path.read_bytes()
        digest, body = data[:32], data[32:]
        if hashlib.sha256(body).digest() != digest:
            return None
        return lark.Lark.load(io.BytesIO(body))
    except Exception:   # whatever is wrong with a cached file, the grammar is at hand
        return None


def _store(path: Path, parser: lark.Lark) -> None:
    """Write the tables beside their place and move them there, so that a reader never sees a part of them."""
    buffer = io.BytesIO()
    parser.save(buffer)
    body = buffer.getvalue()
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


__all__ = ["Token", "engine", "terminal_names"]
