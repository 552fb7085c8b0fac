"""A `Module`, or a part of it, into text: `parse(print_module(m)) == m`, and printing what was parsed from it gives the same text again.

Comments are no part of a module (`docs/decisions/comments.md`); inferred types and implicit casts are not printed. Expressions are written with an
explicit stack, so that no depth is too deep.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Union

from pipelink_ir.ir import nodes
from pipelink_ir.ir.functions import FUNCTIONS
from pipelink_ir.ir.nodes import Apply, Expr, Module, Operator, Pipeline, Section, TensorType, Value

WIDTH = 120
"""Signatures and sections longer than this are broken."""
_ALIGNED = 28
"""Left sides up to this length have their `=` aligned."""

_ATOM = 9
_ARITH, _UNARY = FUNCTIONS["+"].infix, FUNCTIONS["neg"].infix
_COMPARE = FUNCTIONS["<"].infix
_PREFIX = {"neg": "-", "not": "not "}
_SYMBOL = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[0-9]+)*")

_Piece = Union[str, tuple[Value, int]]
"""A bit of text, or a value that stands where at least this precedence is needed."""


def print_module(module: Module) -> str:
    """The whole program. Declarations of one line stand together, operators and pipelines are set apart."""
    out: list[str] = []
    previous: object = None
    for item in module.items:
        if previous is not None and not (type(previous) is type(item) and isinstance(item, (nodes.Import, nodes.Target))):
            out.append("")
        out.append(_item(item))
        previous = item
    return "\n".join(out) + "\n" if out else ""


def _item(item: nodes.Import | nodes.Target | Operator | Pipeline) -> str:
    if isinstance(item, Operator):
        return print_operator(item)
    if isinstance(item, Pipeline):
        return print_pipeline(item)
    if isinstance(item, nodes.Target):
        return f"target @{item.name} {_braced(item.settings)}"
    return f"import {item.module}" if item.file is None else f"import {_string(item.file)}"


# ------------------------------------------------------------------------------------------------------------------ expressions


def print_expr(value: Value) -> str:
    """An expression, or any other value of a setting, with no more parentheses than it needs."""
    out: list[str] = []
    stack: list[_Piece] = [(value, 0)]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            out.append(piece)
            continue
        inner, needed = piece
        while isinstance(inner, nodes.Cast) and inner.implicit:
            inner = inner.arg
        pieces = _pieces(inner)
        if _precedence(inner) < needed:
            pieces = ["(", *pieces, ")"]
        stack += reversed(pieces)
    return "".join(out)


def _infix(e: Apply) -> bool:
    row = FUNCTIONS.get(e.fn)
    return row is not None and row.infix > 0 and len(e.args) == row.arity


def _precedence(value: Value) -> int:
    if isinstance(value, Apply):
        return FUNCTIONS[value.fn].infix if _infix(value) else _ATOM
    if isinstance(value, (nodes.IntLit, nodes.FloatLit)) and _number(value).startswith("-"):
        return _UNARY
    return _COMPARE if isinstance(value, nodes.Range) else _ATOM


def _number(value: nodes.IntLit | nodes.FloatLit) -> str:
    return repr(value.value)


def _pieces(value: Value) -> list[_Piece]:
    """What a value consists of, from left to right."""
    if isinstance(value, Apply):
        return _apply(value)
    if isinstance(value, (nodes.Name, nodes.Const)):
        return [value.name]
    if isinstance(value, nodes.Read):
        return ["%" + value.tensor, *(["[", *_listed(value.indices), "]"] if value.indices else [])]
    if isinstance(value, (nodes.IntLit, nodes.FloatLit)):
        return [_number(value)]
    if isinstance(value, nodes.Cast):
        return [f"sat_{value.to}(" if value.saturate else f"{value.to}(", (value.arg, 0), ")"]
    if isinstance(value, nodes.Reduce):
        return _reduce(value)
    if isinstance(value, nodes.Range):
        if value.lo is None:
            return [f"{value.index} < ", (value.hi, _ARITH)]
        return [f"{value.index} in ", (value.lo, _ARITH), "..", (value.hi, _ARITH)]
    if isinstance(value, nodes.Text):
        return [_string(value.value)]
    if isinstance(value, nodes.Items):
        return ["[", *_listed(value.items), "]"]
    return ["?" if isinstance(value, nodes.Dynamic) else "..."]


def _apply(e: Apply) -> list[_Piece]:
    if not _infix(e):
        return [e.fn + "(", *_listed(e.args), ")"]
    level = FUNCTIONS[e.fn].infix
    if len(e.args) == 1:
        # A minus right before a number would become part of it.
        literal = e.fn == "neg" and isinstance(e.args[0], (nodes.IntLit, nodes.FloatLit)) and _number(e.args[0])[0].isdigit()
        return [_PREFIX[e.fn], (e.args[0], _ATOM + 1 if literal else level)]
    left, right = (_ATOM, _UNARY) if e.fn == "**" else (level + 1, level + 1) if level == _COMPARE else (level, level + 1)
    return [(e.args[0], left), f" {e.fn} ", (e.args[1], right)]


def _reduce(e: nodes.Reduce) -> list[_Piece]:
    where: list[_Piece] = [" where ", (e.where, 0)] if e.where is not None else []
    rank: list[_Piece] = [", ", (e.rank, 0)] if e.rank is not None else []
    return [e.kind + "[", *_listed(e.ranges), *where, "](", (e.body, 0), *rank, ")"]


def _listed(values: Iterable[Value]) -> list[_Piece]:
    """Values with commas between them. A range is listed as it is, whatever its precedence."""
    pieces: list[_Piece] = []
    for value in values:
        pieces += [", ", (value, 0)]
    return pieces[1:]


def _string(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):X}}}") for c in text) + '"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


# ------------------------------------------------------------------------------------------------------------ types, contracts


def print_type(type: TensorType) -> str:
    """`tensor<NxHx(W + 1)xf32, NHW>`."""
    shape = "x".join([*(_dim(d) for d in type.dims), type.dtype])
    return f"tensor<{shape}>" if type.layout is None else f"tensor<{shape}, {type.layout}>"


def _dim(dim: Expr) -> str:
    text = print_expr(dim)
    plain = text.isdigit() or text in ("?", "...") or _SYMBOL.fullmatch(text)
    return text if plain else f"({text})"


def _setting(entry: nodes.Setting | nodes.Scoped) -> str:
    if isinstance(entry, nodes.Scoped):
        return f"%{entry.tensor} {_braced(entry.settings)}"
    return f"{entry.key} = {print_expr(entry.value)}"


def _braced(entries: Sequence[nodes.Setting | nodes.Scoped]) -> str:
    return f"{{ {', '.join(map(_setting, entries))} }}" if entries else "{ }"


def _section(head: str, entries: Sequence[nodes.Setting | nodes.Scoped], pad: int, indent: str) -> str:
    """`head { … }` on one line, or an entry a line where that is too long; `pad` is how long the first word is made."""
    word, _, rest = head.partition(" ")
    line = f"{indent}{word:<{pad}} {rest + ' ' if rest else ''}{_braced(entries)}"
    if len(line) <= WIDTH or len(entries) < 2:
        return line
    inner = f",\n{indent}  ".join(map(_setting, entries))
    return f"{indent}{head} {{\n{indent}  {inner}\n{indent}}}"


# -------------------------------------------------------------------------------------------------------------------- operators


def print_operator(op: Operator) -> str:
    """`op @name(…) -> (…) { … }` with its doc comment, without a final newline."""
    sections: list[_AnySection] = [*op.sections, *op.downgrades, *([op.kernel] if op.kernel else [])]
    computes = [(word, body) for word, body in (("compute", op.compute), ("gradient", op.gradient)) if body is not None]
    words = [_section_head(s).partition(" ")[0] for s in sections] + [word for word, body in computes if _one_line(body) is not None]
    pad = max(map(len, words), default=0)
    out = [_doc(op.doc) + _signature(f"op @{op.name}(", op.params, op.results) + " {", *_where(op.where)]
    out += [_section_text(section, pad) for section in sections]
    if op.graph is not None:
        out += ["  graph {", *_nodes(op.graph.nodes, "    "), "  }"]
    out += [_compute(word, body, pad) for word, body in computes]
    return "\n".join([*out, "}"])


_AnySection = Union[Section, nodes.Downgrade, nodes.Kernel]


def _section_head(section: _AnySection) -> str:
    if isinstance(section, Section):
        return section.name
    if isinstance(section, nodes.Kernel):
        return f"kernel {section.language} {_string(section.file)}"
    return f"downgrade {section.target}"


def _section_text(section: _AnySection, pad: int) -> str:
    head = _section_head(section)
    if isinstance(section, nodes.Downgrade):
        return f"  {head} unsupported" if section.settings is None else _section(head, section.settings, pad, "  ")
    return _section(head, section.entries if isinstance(section, Section) else section.settings, pad, "  ")


def _one_line(compute: nodes.Compute) -> str | None:
    """The inside of a body that fits on the line of its word."""
    if len(compute.body) > 1:
        return None
    text = " ".join(f"{left} = {right}" for left, right in map(_definition, compute.body))
    return text if len(text) <= WIDTH - 16 else None


def _compute(word: str, compute: nodes.Compute, pad: int) -> str:
    inside = _one_line(compute)
    if inside is not None:
        return f"  {word:<{pad}} {{ {inside} }}" if inside else f"  {word:<{pad}} {{ }}"
    return "\n".join([f"  {word} {{", *_assignments(map(_definition, compute.body), "    "), "  }"])


def _definition(definition: nodes.Let | nodes.Define) -> tuple[str, str]:
    """The two sides of a definition."""
    if isinstance(definition, nodes.Let):
        return f"let {definition.name}", print_expr(definition.value)
    axes = f"[{', '.join(map(_axis, definition.axes))}]" if definition.axes else ""
    return f"%{definition.tensor}{axes}", print_expr(definition.value)


def _axis(axis: nodes.Axis | nodes.Position | nodes.Dots) -> str:
    if isinstance(axis, nodes.Dots):
        return "..."
    if isinstance(axis, nodes.Position):
        return str(axis.value)
    if axis.hi is None:
        return axis.index
    return print_expr(nodes.Range(axis.index, axis.lo, axis.hi))


def _assignments(sides: Iterable[tuple[str, str]], indent: str) -> list[str]:
    """`left = right`, a line each, with the `=` of short left sides aligned."""
    pairs = list(sides)
    pad = max((len(left) for left, _ in pairs if len(left) <= _ALIGNED), default=0)
    return [f"{indent}{left:<{pad}} = {right}" for left, right in pairs]


def _where(conditions: Sequence[Expr]) -> list[str]:
    texts = [print_expr(c) for c in conditions]
    line = "  where " + ", ".join(texts)
    if not texts:
        return []
    return [line] if len(line) <= WIDTH else [f"  where {t}" for t in texts]


def _doc(doc: str | None) -> str:
    return "" if doc is None else "".join(f"/// {line}".rstrip() + "\n" for line in doc.split("\n"))


def _signature(head: str, params: Sequence[nodes.Operand | nodes.Attribute], results: Sequence[nodes.Operand], tail: str = "") -> str:
    left, right = [_param(p) for p in params], [_param(r) for r in results]
    line = f"{head}{', '.join(left)}) -> ({', '.join(right)}){tail}"
    if len(line) + 2 <= WIDTH:
        return line
    return f"{_filled(head, left, len(head) if len(head) <= 40 else 8)})\n{_filled('    -> (', right, 8)}){tail}"


def _filled(head: str, parts: Sequence[str], indent: int) -> str:
    """Parts with commas, as many on a line as fit."""
    lines, line = [], head
    for i, part in enumerate(parts):
        piece = part + ("," if i + 1 < len(parts) else "")
        if line.strip() and line != head and len(line) + 1 + len(piece) > WIDTH:
            lines.append(line)
            line = " " * indent + piece
        else:
            line += piece if line == head else " " + piece
    return "\n".join([*lines, line])


def _param(param: nodes.Operand | nodes.Attribute) -> str:
    if isinstance(param, nodes.Operand):
        return f"{'param ' if param.param else ''}%{param.name}: {print_type(param.type)}"
    words = f" in [{', '.join(param.words)}]" if param.words else ""
    return f"{param.name}: {param.type}{words}" + ("" if param.default is None else f" = {print_expr(param.default)}")


# -------------------------------------------------------------------------------------------------------------------- pipelines


def print_pipeline(pipeline: Pipeline) -> str:
    """`pipeline @name(…) -> (…) { … }` with its doc comment, without a final newline."""
    tail = f" on {_device(pipeline.device)}" if pipeline.device else ""
    head = _signature(f"pipeline @{pipeline.name}(", pipeline.params, pipeline.results, tail)
    return "\n".join([f"{_doc(pipeline.doc)}{head} {{", *_where(pipeline.where), *_nodes(pipeline.nodes, "  "), "}"])


def print_node(node: nodes.Node | nodes.Alias) -> str:
    """`%a, %b = @op(%x) {k = v} on cuda:1 as label after %c`, or an alias, without indentation."""
    left, right = _node(node)
    return f"{left} = {right}"


def _nodes(body: Sequence[nodes.Node | nodes.Alias], indent: str) -> list[str]:
    return _assignments(map(_node, body), indent)


def _node(node: nodes.Node | nodes.Alias) -> tuple[str, str]:
    """The two sides of a node."""
    if isinstance(node, nodes.Alias):
        return f"%{node.name.name}", f"%{node.of.name}"
    parts = [f"@{node.op}({', '.join(map(_argument, node.args))})"]
    if node.attrs:
        parts.append("{" + ", ".join(map(_setting, node.attrs)) + "}")
    if node.device is not None:
        parts.append(f"on {_device(node.device)}")
    if node.label is not None:
        parts.append(f"as {node.label}")
    if node.after:
        parts.append(f"after {_edges(node.after)}")
    if node.plan is not None:
        parts.append(f"plan {_braced(node.plan.entries)}")
    if node.reason is not None:
        parts.append(f"reason = {_string(node.reason)}")
    if node.loc is not None:
        parts.append(f"loc({_string(node.loc.source.path)}:{node.loc.line}:{node.loc.column})")
    return _edges(node.results), " ".join(parts)


def _edges(edges: Sequence[nodes.Edge]) -> str:
    return ", ".join("%" + e.name for e in edges)


def _argument(arg: nodes.Edge | nodes.Pack) -> str:
    if isinstance(arg, nodes.Edge):
        return "%" + arg.name
    return f"[{_edges(arg.items)}]" + ("" if arg.along is None else f" along {arg.along}")


def _device(device: nodes.Device) -> str:
    if device.kind == "target":
        return f"@{device.name}"
    return f"{device.kind}:{device.index}" if device.kind == "cuda" or device.index else device.kind
