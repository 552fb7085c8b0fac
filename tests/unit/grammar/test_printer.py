"""Printing what no text was: random expressions and modules built from Python, long signatures, implicit casts."""
from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.grammar.printer import print_expr, print_operator, print_pipeline
from pipelink_ir.ir.functions import FUNCTIONS, REDUCTIONS
from pipelink_ir.ir.nodes import (
    Apply,
    Cast,
    Compute,
    Const,
    Define,
    Dots,
    Edge,
    Expr,
    FloatLit,
    IntLit,
    Let,
    Module,
    Name,
    Node,
    Operand,
    Operator,
    Pipeline,
    Range,
    Read,
    Reduce,
    Section,
    Setting,
    TensorType,
)

NAMES = st.sampled_from(["a", "k", "N", "op", "memory", "x", "e5", "inf1", "x.1"])
LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(IntLit),
    st.floats(allow_nan=False, allow_infinity=False).map(FloatLit),
    NAMES.map(Name),
    st.sampled_from(["inf", "nan", "pi", "true"]).map(Const),
    st.sampled_from(["x", "y.1", "inf"]).map(Read))


def inner(e: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    functions = st.sampled_from([f for f in FUNCTIONS.values() if f.name != "neg"])
    ranges = st.lists(st.one_of(st.builds(Range, NAMES, st.none() | e, e), st.just(Dots())), min_size=1, max_size=2).map(tuple)
    return st.one_of(
        functions.flatmap(lambda f: st.tuples(*[e] * f.arity).map(lambda args: Apply(f.name, args))),
        # A minus before a literal belongs to it, so `neg` of one is written -(3).
        e.map(lambda a: Apply("neg", (a,))),
        st.builds(Cast, st.sampled_from(["f16", "i32", "T"]), e),
        st.builds(Cast, st.sampled_from(["u8", "i64"]), e, st.just(True)),
        st.builds(Read, st.just("x"), st.lists(e | st.just(Dots()), min_size=1, max_size=3).map(tuple)),
        st.builds(lambda kind, r, w, b, n: Reduce(kind, r, w, b, n if REDUCTIONS[kind].ranked else None),
                  st.sampled_from(sorted(REDUCTIONS)), ranges, st.none() | e, e, e))


EXPRS = st.recursive(LEAVES, inner, max_leaves=25)


def module_of(value: Expr) -> Module:
    return Module((Operator("f", (), (Operand("y", TensorType((), "f32")),), compute=Compute((Let("v", value), Define("y", (), Name("v"))))),))


@settings(max_examples=400, deadline=None)
@given(EXPRS)
def test_random_expressions_survive(value: Expr) -> None:
    module = module_of(value)
    text = print_module(module)
    assert parse(text, "t") == module
    assert print_module(parse(text, "t")) == text


@settings(max_examples=200, deadline=None)
@given(EXPRS)
def test_no_parenthesis_is_needless(value: Expr) -> None:
    """Whichever pair of parentheses is left out, the text means something else, or nothing."""
    text = print_expr(value)
    for start, end in _pairs(text):
        if start and (text[start - 1].isalnum() or text[start - 1] in "])_"):
            continue    # of a call
        without = text[:start] + " " + text[start + 1:end] + " " + text[end + 1:]
        try:
            other = parse(print_module(module_of(Name("V"))).replace("= V", f"= {without}"), "t")
        except Exception:
            continue
        assert other != module_of(value)


def _pairs(text: str) -> list[tuple[int, int]]:
    stack, pairs = [], []
    for i, c in enumerate(text):
        if c == "(":
            stack.append(i)
        elif c == ")":
            pairs.append((stack.pop(), i))
    return pairs


def test_implicit_casts_are_not_printed() -> None:
    a = Cast("f32", Apply("+", (Name("a"), Name("b"))), implicit=True)
    assert print_expr(Apply("*", (a, Name("c")))) == "(a + b) * c"
    assert print_expr(replace(a, implicit=False)) == "f32(a + b)"


def test_long_signatures_are_broken() -> None:
    params = tuple(Operand(f"operand{i}", TensorType((Name("N"), Name("K")), "f32")) for i in range(9))
    op = Operator("many", params, params[:4])
    lines = print_operator(op).split("\n")
    assert all(len(line) <= 122 for line in lines)
    assert lines[1].startswith("         %operand")
    assert any(line.startswith("    -> (%operand0") for line in lines)
    text = print_pipeline(Pipeline("p" * 60, params, params, ()))
    assert all(len(line) <= 122 for line in text.split("\n"))
    assert parse(text, "t").pipelines[0].params == params
    assert parse(print_operator(op), "t").operators[0] == op


def test_long_sections_are_broken() -> None:
    section = Section("memory", tuple(Setting(f"key{i}", IntLit(10**9)) for i in range(12)))
    op = Operator("f", (), (), sections=(section,))
    assert "\n    key3 = 1000000000,\n" in print_operator(op)
    assert parse(print_operator(op), "t").operators[0] == op


def test_columns_are_aligned() -> None:
    nodes = (Node((Edge("a"),), "f", ()), Node((Edge("long"), Edge("b")), "f", ()), Node((Edge("e" * 50),), "f", ()))
    assert print_pipeline(Pipeline("p", (), (), nodes)).split("\n")[1:4] == [
        "  %a        = @f()", "  %long, %b = @f()", f"  %{'e' * 50} = @f()"]


def test_a_deep_tree_of_a_pass_is_printed() -> None:
    """A pass may build what no text could say; it can still be shown."""
    value: Expr = Name("a")
    for _ in range(30_000):
        value = Apply("exp", (value,))
    assert print_expr(value).count("exp(") == 30_000


def test_empty_things() -> None:
    assert print_module(Module(())) == ""
    op = Operator("f", (), (), doc="", sections=(Section("memory", ()),), compute=Compute(()))
    assert print_operator(op) == "///\nop @f() -> () {\n  memory  { }\n  compute { }\n}"
    assert parse(print_operator(op), "t").operators[0] == op
