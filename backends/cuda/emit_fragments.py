"""Statements about matrix fragments, and about copies under way, as C++: calls of what `prelude/fragments.cuh` offers."""
from __future__ import annotations

from pipelink_ir.backends.cuda.emit_expr import Expressions, memory_type
from pipelink_ir.backends.loops.form import Await, Block, Commit, CopyAsync, Factor, For, Fragment, If, Multiply, Stmt, StoreFragment

MACRO = "PIPELINK_FRAGMENTS"
"""Is defined before the prelude by a text that uses fragments."""

Statement = Fragment | Multiply | StoreFragment | CopyAsync | Commit | Await


def has_fragments(body: Block) -> bool:
    """Whether fragments occur in a block or in those inside."""
    return any(isinstance(s, Statement) or (isinstance(s, For) and has_fragments(s.body))
               or (isinstance(s, If) and (has_fragments(s.then) or has_fragments(s.other))) for s in body)


def fragment_line(s: Stmt, e: Expressions, fragments: dict[str, str]) -> str:
    """One statement; `fragments` has the names of declared ones in C++."""
    if isinstance(s, Fragment):
        t = s.tiles
        types = ", ".join(memory_type(d) for d in (t.left, t.right, t.sums))
        return f"pl::Fragment<{types}, {t.warps[0]}, {t.warps[1]}, {t.tiles[0]}, {t.tiles[1]}> {fragments[s.name]};"
    if isinstance(s, Multiply):
        words = ", ".join((str(s.depth), *_layout(s.left), *_layout(s.right)))
        return f"{fragments[s.fragment]}.multiply<{words}>({_place(s.left, e)}, {_place(s.right, e)});"
    if isinstance(s, StoreFragment):
        return f"{fragments[s.fragment]}.store<{s.pitch}>({e.address(s.part)}, {e.places[s.buffer].name});"
    if isinstance(s, CopyAsync):
        to, source = e.place(s.buffer, s.memory).name, e.place(s.origin, s.memory).name
        return f"pl::copy_async(&{to}[{e.address(s.index)}], &{source}[{e.address(s.source)}], {e.data(s.inside)});"
    return f"pl::copies_await<{s.pending}>();" if isinstance(s, Await) else "pl::copies_commit();"


def _layout(f: Factor) -> tuple[str, str]:
    return "true" if f.along else "false", str(f.pitch)


def _place(f: Factor, e: Expressions) -> str:
    return f"&{e.places[f.buffer].name}[{e.address(f.index)}]"
