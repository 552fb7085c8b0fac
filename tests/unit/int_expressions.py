"""Integer expressions for tests, written in Python's syntax: `//` is floordiv, `%` mod, `x[i]` a read of %x, `and`, `or`, `not` as they are."""
from __future__ import annotations

import ast

from pipelink_ir.ir.dtypes import BOOL, DTYPES, DType
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name, Read

_INFIX = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "**", ast.Div: "/",
          ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_JOIN = {"f64": 4, "f32": 3, "i64": 2, "i32": 1}


def expr(text: str, reads: dict[str, str] | None = None, typed: bool = False) -> Expr:
    """The expression of a text. `reads` gives dtypes of tensors (as they are read); `typed` writes dtypes on all nodes."""
    return _expr(ast.parse(text.strip(), mode="eval").body, reads or {}, typed)


def _expr(node: ast.AST, reads: dict[str, str], typed: bool) -> Expr:
    def sub(n: ast.AST) -> Expr:
        return _expr(n, reads, typed)

    def apply(fn: str, *args: Expr) -> Expr:
        if not typed:
            return Apply(fn, args)
        if fn in ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not"):
            return Apply(fn, args, dtype=BOOL)
        return Apply(fn, args, dtype=_join(args[1:] if fn == "select" else args))

    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            return Const("true" if node.value else "false", dtype=BOOL if typed else None)
        return FloatLit(node.value) if isinstance(node.value, float) else IntLit(node.value)
    if isinstance(node, ast.Name):
        if node.id in reads:
            return Name(node.id, dtype=DTYPES[reads[node.id]])
        return Name(node.id, dtype=DTYPES["i64"] if typed else None)
    if isinstance(node, ast.Subscript):
        assert isinstance(node.value, ast.Name)
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        dtype = reads.get(node.value.id)
        return Read(node.value.id, tuple(sub(p) for p in places), dtype=DTYPES[dtype] if dtype else None)
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int):
            return IntLit(-node.operand.value)
        return apply("neg" if isinstance(node.op, ast.USub) else "not", sub(node.operand))
    if isinstance(node, ast.BinOp):
        return apply(_INFIX[type(node.op)], sub(node.left), sub(node.right))
    if isinstance(node, ast.Compare):
        assert len(node.ops) == 1
        return apply(_INFIX[type(node.ops[0])], sub(node.left), sub(node.comparators[0]))
    if isinstance(node, ast.BoolOp):
        out = sub(node.values[0])
        for v in node.values[1:]:
            out = apply("and" if isinstance(node.op, ast.And) else "or", out, sub(v))
        return out
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    name, args = node.func.id, [sub(a) for a in node.args]
    plain = name.removeprefix("sat_")
    if plain in DTYPES:
        return Cast(plain, args[0], saturate=name != plain, dtype=DTYPES[plain].compute)
    return apply(name, *args)


def _join(args: tuple[Expr, ...] | list[Expr]) -> DType:
    names = [a.dtype.compute.name for a in args if a.dtype is not None and not isinstance(a, IntLit)]
    return DTYPES[max(names, key=lambda n: _JOIN.get(n, 0))] if names else DTYPES["i32"]


def show(e: Expr) -> str:
    """A text of an expression, fully in brackets where needed to read it."""
    if isinstance(e, IntLit):
        return str(e.value)
    if isinstance(e, Name):
        return e.name
    if isinstance(e, Const):
        return e.name
    if isinstance(e, Cast):
        return f"{'sat_' if e.saturate else ''}{e.to}({show(e.arg)})"
    if isinstance(e, Read):
        return f"{e.tensor}[{', '.join(show(i) for i in e.indices)}]"
    assert isinstance(e, Apply), e
    if e.fn in ("neg", "not"):
        return f"{'-' if e.fn == 'neg' else 'not '}{_wrapped(e.args[0])}"
    if e.fn in ("+", "-"):
        return f"{show(e.args[0])} {e.fn} {_wrapped(e.args[1]) if e.args[1].__class__ is Apply and e.args[1].fn in ('+', '-') else show(e.args[1])}"
    if e.fn == "*":
        return f"{show(e.args[0]) if isinstance(e.args[0], Apply) and e.args[0].fn == '*' else _wrapped(e.args[0])} * {_wrapped(e.args[1])}"
    if e.fn in ("floordiv", "mod", "ceildiv", "<", "<=", ">", ">=", "==", "!=", "and", "or", "/", "**"):
        return f" {e.fn} ".join(_wrapped(a) for a in e.args)
    return f"{e.fn}({', '.join(show(a) for a in e.args)})"


def _wrapped(e: Expr) -> str:
    return f"({show(e)})" if isinstance(e, Apply) and e.fn not in ("select", "min", "max", "clamp", "abs") else show(e)
