"""What each construct of the language becomes, against nodes written by hand."""
from __future__ import annotations

from typing import Any

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.grammar.printer import print_expr, print_module, print_node, print_type
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.nodes import (
    Alias,
    Apply,
    Attribute,
    Axis,
    Cast,
    Const,
    Define,
    Device,
    Dots,
    Downgrade,
    Dynamic,
    Edge,
    Expr,
    FloatLit,
    Import,
    IntLit,
    Items,
    Kernel,
    Let,
    Module,
    Name,
    Node,
    Operand,
    Operator,
    Pack,
    Pipeline,
    Position,
    Range,
    Read,
    Reduce,
    Scoped,
    Section,
    Setting,
    TensorType,
    Text,
)

A, B, C = Name("a"), Name("b"), Name("c")


def the_op(inside: str, params: str = "%x: tensor<f32>") -> Operator:
    module = parse(f"op @f({params}) -> (%y: tensor<f32>) {{ {inside} }}", "t")
    assert parse(print_module(module), "printed") == module
    return module.operators[0]


def the_expr(text: str) -> Expr:
    op = the_op(f"compute {{ let v = {text} }}")
    assert op.compute is not None
    let = op.compute.body[0]
    assert isinstance(let, Let)
    return let.value


def the_pipeline(inside: str, head: str = "") -> Pipeline:
    module = parse(f"pipeline @p(%x: tensor<f32>) -> (%y: tensor<f32>) {head} {{ {inside} }}", "t")
    assert parse(print_module(module), "printed") == module
    return module.pipelines[0]


def op2(fn: str, a: Any, b: Any) -> Apply:
    return Apply(fn, (a, b))


@pytest.mark.parametrize(("text", "node"), [
    ("a + b - c", op2("-", op2("+", A, B), C)),
    ("a - (b - c)", op2("-", A, op2("-", B, C))),
    ("a + b * c", op2("+", A, op2("*", B, C))),
    ("a * b / c", op2("/", op2("*", A, B), C)),
    ("a floordiv b mod c", op2("mod", op2("floordiv", A, B), C)),
    ("a ** b ** c", op2("**", A, op2("**", B, C))),
    ("(a ** b) ** c", op2("**", op2("**", A, B), C)),
    ("-a ** b", Apply("neg", (op2("**", A, B),))),
    ("a ** -b", op2("**", A, Apply("neg", (B,)))),
    ("-2 ** 2", Apply("neg", (op2("**", IntLit(2), IntLit(2)),))),
    ("(-2) ** 2", op2("**", IntLit(-2), IntLit(2))),
    ("2 ** -1", op2("**", IntLit(2), IntLit(-1))),
    ("-3", IntLit(-3)),
    ("- 3", IntLit(-3)),
    ("-(3)", Apply("neg", (IntLit(3),))),
    ("--3", Apply("neg", (IntLit(-3),))),
    ("-0.0", FloatLit(-0.0)),
    ("a - 3", op2("-", A, IntLit(3))),
    ("a -3", op2("-", A, IntLit(3))),
    ("a - -3", op2("-", A, IntLit(-3))),
    ("-a * b", op2("*", Apply("neg", (A,)), B)),
    ("not a and b or c", op2("or", op2("and", Apply("not", (A,)), B), C)),
    ("not a == b", Apply("not", (op2("==", A, B),))),
    ("a or b and c", op2("or", A, op2("and", B, C))),
    ("(a or b) and c", op2("and", op2("or", A, B), C)),
    ("a < b and b <= c", op2("and", op2("<", A, B), op2("<=", B, C))),
    ("(a < b) == c", op2("==", op2("<", A, B), C)),
    ("floordiv(a, b)", op2("floordiv", A, B)),
    ("mod(a, b) mod c", op2("mod", op2("mod", A, B), C)),
    ("ceildiv(a, b)", op2("ceildiv", A, B)),
    ("a mod (b)", op2("mod", A, B)),
    ("select(a, b, c)", Apply("select", (A, B, C))),
    ("constant(0)", Apply("constant", (IntLit(0),))),
    ("frobnicate()", Apply("frobnicate", ())),
    ("f16(a)", Cast("f16", A)),
    ("T(a)", Cast("T", A)),
    ("sat_u8(a)", Cast("u8", A, True)),
    ("sat_f32(a)", Apply("sat_f32", (A,))),
    ("-inf", Apply("neg", (Const("inf"),))),
    ("pi", Const("pi")),
    ("true", Const("true")),
    ("%q", Read("q")),
    ("%q[a, ..., %i[b]]", Read("q", (A, Dots(), Read("i", (B,))))),
    ("sum[k < K](a)", Reduce("sum", (Range("k", None, Name("K")),), None, A)),
    ("any[i < 2, j in a..b + 1 where i < j](c)",
     Reduce("any", (Range("i", None, IntLit(2)), Range("j", A, op2("+", B, IntLit(1)))), op2("<", Name("i"), Name("j")), C)),
    ("max[...](a)", Reduce("max", (Dots(),), None, A)),
    ("sum[..., c < 4](a)", Reduce("sum", (Dots(), Range("c", None, IntLit(4))), None, A)),
    ("nth[i < 3](a, -1)", Reduce("nth", (Range("i", None, IntLit(3)),), None, A, IntLit(-1))),
    ("argnth[i < 3 where b](a, c)", Reduce("argnth", (Range("i", None, IntLit(3)),), B, A, C)),
    ("sum[j in %o[b]..%o[b + 1]](a)",
     Reduce("sum", (Range("j", Read("o", (B,)), Read("o", (op2("+", B, IntLit(1)),))),), None, A)),
    ("0.5", FloatLit(0.5)),
    ("1e3", FloatLit(1000.0)),
    ("9223372036854775807", IntLit(2**63 - 1)),
    ("-9223372036854775808", IntLit(-(2**63))),
    ("memory + op * dim", op2("+", Name("memory"), op2("*", Name("op"), Name("dim")))),
])
def test_expressions(text: str, node: Expr) -> None:
    assert the_expr(text) == node


@pytest.mark.parametrize("text", ["a + b - c", "a - (b - c)", "(a + b) * c", "a * (b * c)", "(a ** b) ** c", "a ** b ** c", "-a ** b", "(-a) ** b", "(-2) ** 2",
                                  "-(3)", "--3", "a - -3", "not (a or b)", "(not a) == b", "a == (b < c)", "a * -b", "(a mod b) ** c", "-(a + b)", "-%x[n - 1, ...]",
                                  "sum[k < K where a or b](c)", "nth[i in a + 1..b - 1](c, 0)", "sat_i8(a)", "not not a"])
def test_expressions_print_as_they_were(text: str) -> None:
    """These have just the parentheses that they need."""
    assert print_expr(the_expr(text)) == text


@pytest.mark.parametrize(("text", "printed"), [("((a))", "a"), ("(a * b) + c", "a * b + c"), ("a+(b)", "a + b"), ("mod(a+1, b)", "(a + 1) mod b"), ("a**2", "a ** 2")])
def test_needless_parentheses_go(text: str, printed: str) -> None:
    assert print_expr(the_expr(text)) == printed


@pytest.mark.parametrize(("text", "node"), [
    ("tensor<f32>", TensorType((), "f32")),
    ("tensor<T>", TensorType((), "T")),
    ("tensor<NxHxWx3xf32, NHWC>", TensorType((Name("N"), Name("H"), Name("W"), IntLit(3)), "f32", "NHWC")),
    ("tensor<?x?xbf16>", TensorType((Dynamic(), Dynamic()), "bf16")),
    ("tensor<Nx...xCxT>", TensorType((Name("N"), Dots(), Name("C")), "T")),
    ("tensor<...xf8e4m3>", TensorType((Dots(),), "f8e4m3")),
    ("tensor<(H floordiv 2)x(W + V)x2xu8>", TensorType((op2("floordiv", Name("H"), IntLit(2)), op2("+", Name("W"), Name("V")), IntLit(2)), "u8")),
    ("tensor<1x224xf8e5m2>", TensorType((IntLit(1), IntLit(224)), "f8e5m2")),
    ("tensor<H2xC_1xf32>", TensorType((Name("H2"), Name("C_1")), "f32")),
    ("tensor<Nxfloat>", TensorType((Name("N"),), "float")),
])
def test_types(text: str, node: TensorType) -> None:
    operand = the_op("", f"%x: {text}").operands[0]
    assert operand == Operand("x", node)
    assert print_type(node) == text


def test_types_with_spaces_and_comments() -> None:
    assert the_op("", "%x: tensor < N x 3 // rows\n x (H+1) x f32 , NHW >").operands[0].type == TensorType(
        (Name("N"), IntLit(3), op2("+", Name("H"), IntLit(1))), "f32", "NHW")


def test_attributes() -> None:
    op = the_op("", "%x: tensor<f32>, OH: dim = 224, gamma: f32 = 2.2, mode: word in [half, aligned] = half, U: dtype, e: f64 = -1 / 3, V: dim")
    assert op.attributes == (
        Attribute("OH", "dim", (), IntLit(224)), Attribute("gamma", "f32", (), FloatLit(2.2)), Attribute("mode", "word", ("half", "aligned"), Name("half")),
        Attribute("U", "dtype"), Attribute("e", "f64", (), op2("/", IntLit(-1), IntLit(3))), Attribute("V", "dim"))


def test_sections() -> None:
    op = the_op('where a > 0, b\n where c\n memory { dtypes = [f16, f32], align = 64, border = [constant(0), wrap], %y { inplace = %x, q = [] } } memory { }\n'
                'compile { arch = ">= sm_80" } execution { async = true } semantic { range = [-1.5, inf], empty = nan } schedule { %g { place = register } }\n'
                'downgrade sm_75 { precision = mixed, ffn.up = i8 } downgrade cpu unsupported')
    assert op.where == (op2(">", A, IntLit(0)), B, C)
    assert op.sections == (
        Section("memory", (Setting("dtypes", Items((Name("f16"), Name("f32")))), Setting("align", IntLit(64)),
                           Setting("border", Items((Apply("constant", (IntLit(0),)), Name("wrap")))),
                           Scoped("y", (Setting("inplace", Read("x")), Setting("q", Items(())))))),
        Section("memory", ()),
        Section("compile", (Setting("arch", Text(">= sm_80")),)),
        Section("execution", (Setting("async", Const("true")),)),
        Section("semantic", (Setting("range", Items((FloatLit(-1.5), Const("inf")))), Setting("empty", Const("nan")))),
        Section("schedule", (Scoped("g", (Setting("place", Name("register")),)),)))
    assert op.downgrades == (Downgrade("sm_75", (Setting("precision", Name("mixed")), Setting("ffn.up", Name("i8")))), Downgrade("cpu", None))


def test_definitions() -> None:
    op = the_op("compute { let s = 1 %y[n, 0, t < T, c in 0..A - 1, ...] = s %z = %y } gradient { %dx = %dy }")
    assert op.compute is not None
    assert op.compute.body == (
        Let("s", IntLit(1)),
        Define("y", (Axis("n"), Position(0), Axis("t", None, Name("T")), Axis("c", IntLit(0), op2("-", Name("A"), IntLit(1))), Dots()), Name("s")),
        Define("z", (), Read("y")))
    assert op.gradient is not None
    assert op.gradient.body == (Define("dx", (), Read("dy")),)


def test_kernel_and_graph() -> None:
    op = the_op('kernel cuda "a b.cu" { entry = "k", grid = [ceildiv(N*H, 256)] } graph { %a = @g(%x) as up %y = %a }')
    assert op.kernel == Kernel("cuda", "a b.cu", (
        Setting("entry", Text("k")), Setting("grid", Items((op2("ceildiv", op2("*", Name("N"), Name("H")), IntLit(256)),)))))
    assert op.graph is not None
    assert op.graph.nodes == (Node((Edge("a"),), "g", (Edge("x"),), label="up"), Alias(Edge("y"), Edge("a")))


NODES = [
    ("%y = @f()", Node((Edge("y"),), "f", ())),
    ("%a, %b = @f(%x, [%x, %y], [%x] along C)", Node((Edge("a"), Edge("b")), "f", (Edge("x"), Pack((Edge("x"), Edge("y"))), Pack((Edge("x"),), "C")))),
    ("%y = @f(%x) {CA = C floordiv 2, m = wrap, U = f32, q = -1}", Node((Edge("y"),), "f", (Edge("x"),), (
        Setting("CA", op2("floordiv", Name("C"), IntLit(2))), Setting("m", Name("wrap")), Setting("U", Name("f32")), Setting("q", IntLit(-1))))),
    ("%y = @f(%x) on cuda:1 as halves after %a, %b", Node((Edge("y"),), "f", (Edge("x"),), (), Device("cuda", 1), "halves", (Edge("a"), Edge("b")))),
    ("%y = @f(%x) on @t4", Node((Edge("y"),), "f", (Edge("x"),), (), Device("target", 0, "t4"))),
    ("%y = @f(%x) on cpu", Node((Edge("y"),), "f", (Edge("x"),), (), Device("cpu"))),
    ('%outer.inner = @sobel.gamma(%x) plan { stream = 1, wait = [3], record = 4, %e { arena = "cuda:0", bytes = 248832000000 } } reason = "a \\"b\\""',
     Node((Edge("outer.inner"),), "sobel.gamma", (Edge("x"),), plan=Section("plan", (
         Setting("stream", IntLit(1)), Setting("wait", Items((IntLit(3),))), Setting("record", IntLit(4)),
         Scoped("e", (Setting("arena", Text("cuda:0")), Setting("bytes", IntLit(248832000000)))))), reason='a "b"')),
    ("%y = %x", Alias(Edge("y"), Edge("x"))),
]


@pytest.mark.parametrize(("text", "node"), NODES)
def test_nodes(text: str, node: Node | Alias) -> None:
    assert the_pipeline(text).nodes == (node,)
    assert print_node(node) == text


def test_clauses_in_any_order() -> None:
    one = the_pipeline('%y = @f(%x) {a = 1} on cuda:0 as l after %x plan { stream = 0 } reason = "r" loc("m.plir":12:3)').nodes[0]
    two = the_pipeline('%y = @f(%x) {a = 1} loc("m.plir":12:3) reason = "r" plan { stream = 0 } after %x as l on cuda:0').nodes[0]
    assert one == two
    assert isinstance(two, Node)
    assert two.loc is not None
    assert str(two.loc) == "m.plir:12:3"
    assert print_node(two).endswith('loc("m.plir":12:3)')


def test_pipeline_head_and_where() -> None:
    module = parse("/// Does it.\n///\n///   indented\npipeline @p(param %w: tensor<f32>, g: f32 = 2.0) -> (%y: tensor<f32>, %z: tensor<f32>) on cuda:0 {\n"
                   "%y = %w\nwhere a\n%z = %w where b, c }", "t")
    p = module.pipelines[0]
    assert (p.doc, p.where, p.device) == ("Does it.\n\n  indented", (A, B, C), Device("cuda", 0))
    assert p.params == (Operand("w", TensorType((), "f32"), param=True), Attribute("g", "f32", (), FloatLit(2.0)))
    assert [r.name for r in p.results] == ["y", "z"]
    assert parse(print_module(module), "t") == module


def test_modules() -> None:
    module = parse('import std.image\nimport "ops/mine.plir" import memory target @t4 { arch = sm_75 } // done', "t")
    assert module.items[:3] == (Import(module="std.image"), Import(file="ops/mine.plir"), Import(module="memory"))
    assert module.targets[0].settings == (Setting("arch", Name("sm_75")),)
    assert parse(print_module(module), "t") == module
    assert parse("", "t") == Module(())
    assert parse(" \n// nothing", "t") == Module(())


def test_doc_comments_belong_to_what_follows() -> None:
    module = parse("/// one\n// no doc\n/// two\nop @a() -> () { /// inside\n }\n//// none\npipeline @p() -> () { }\n/// lost", "t")
    assert module.operators[0].doc == "one\ntwo"
    assert module.pipelines[0].doc is None


@pytest.mark.parametrize("name", ["inf", "info", "nan1", "e5", "x1e5", "f32", "stream", "where", "_", "tensor", "x", "a.1", "outer.inner"])
def test_any_word_names_a_tensor(name: str) -> None:
    pipeline = the_pipeline(f"%{name} = @f(%{name})")
    assert pipeline.nodes == (Node((Edge(name),), "f", (Edge(name),)),)


@pytest.mark.parametrize("word", ["memory", "op", "pipeline", "graph", "dtype", "word", "dim", "target", "import", "compute", "kernel", "unsupported", "along",
                                  "reason", "loc", "tensor", "x", "execution", "downgrade"])
def test_words_of_sections_are_names_elsewhere(word: str) -> None:
    op = the_op(f"where {word} > 0 compute {{ let {word} = sum[{word} < 3]({word}) %y[{word}] = %x[{word}] - {word} }}", f"{word}: f32 = 1.0")
    assert op.attributes[0].name == word
    assert op.compute is not None
    assert op.compute.body[1] == Define("y", (Axis(word),), op2("-", Read("x", (Name(word),)), Name(word)))
    assert isinstance(the_pipeline(f"%y = @f(%x) {{{word} = {word}}} as {word}").nodes[0], Node)


def test_duplicate_clauses_and_bodies() -> None:
    with pytest.raises(ProgramError) as e:
        parse("op @a() -> () { compute { }\n compute { } }\npipeline @p() -> () { %y = @a() as l\n as m }", "t")
    assert [(d.code, d.span.line, d.notes[0].span.line) for d in e.value.diagnostics] == [("PL1201", 2, 1), ("PL1201", 4, 3)]
