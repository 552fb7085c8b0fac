"""Files as they come: bytes, line ends, Unicode, strings, size and depth."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelink_ir.grammar import format_text, parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Let, Name, Setting, Text

CASE = (Path(__file__).resolve().parents[2] / "cases" / "edge_gamma.plir").read_text(encoding="utf-8")


@pytest.fixture
def deep() -> Iterator[None]:
    """Comparing deep trees recurses inside Python."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


def failing(text: str | bytes) -> tuple[int, int, str]:
    with pytest.raises(ProgramError) as e:
        parse(text, "t")
    (error,) = e.value.diagnostics
    assert error.code == "PL1001"
    return error.span.line, error.span.column, error.message


@pytest.mark.parametrize("other", [
    CASE.replace("\n", "\r\n"), "\ufeff" + CASE, CASE.rstrip("\n"), CASE.replace("\n", "\n\f\n"), CASE.replace("  ", "\t"), CASE.replace("\n", "\r\n", 7),
    CASE + "// no newline"], ids=["crlf", "bom", "no newline", "form feeds", "tabs", "mixed", "comment at the end"])
def test_same_module(other: str) -> None:
    module = parse(CASE, "t")
    for text in (other, other.encode()):
        assert parse(text, "t") == module
    assert print_module(parse(other, "t")) == print_module(module)
    assert "\r" not in format_text(other, "t")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_same_place_of_errors(end: str) -> None:
    text = CASE.replace("[0, 1] }", "[0, 1,] }").replace("\n", end)
    assert failing(text)[:2] == (17, 33)
    assert failing("\ufeff" + text)[:2] == (17, 33)
    assert failing(b"\xef\xbb\xbf" + text.encode())[:2] == (17, 33)


def test_columns_count_characters() -> None:
    assert failing('import "größe 😀" =')[:2] == (1, 18)
    assert failing("import a\n/// é\n\t\t%")[:2] == (3, 3)


@pytest.mark.parametrize(("text", "place"), [(b"import a\n// \xff", (2, 4)), (b"import a \xc3\x28", (1, 10)), (b"\xef\xbb\xbf\xe2\x82", (1, 1)), (b"op\n\xed\xa0\x80", (2, 1))])
def test_bytes_that_are_no_utf8(text: bytes, place: tuple[int, int]) -> None:
    line, column, message = failing(text)
    assert (line, column) == place
    assert "UTF-8" in message


@pytest.mark.parametrize("text", ["import a\n \0", "import a\n// \0", "import a\n \ud800"])
def test_nul_and_surrogates(text: str) -> None:
    assert failing(text)[0] == 2


@pytest.mark.parametrize(("text", "place"), [("import größe", (1, 10)), ("import a\u00a0", (1, 9)), ("import é", (1, 8)), ("target @t { a = ٣ }", (1, 17)), ("\u2028", (1, 1))])
def test_only_ascii_outside_strings_and_comments(text: str, place: tuple[int, int]) -> None:
    assert failing(text)[:2] == place


@pytest.mark.parametrize("value", ['say "hi"', "back\\slash", "line\nbreak\ttab", "\0\x01\x7f", "😀 ü 中", "*/ %s // ???/", "\r\n", "\u2028\ufeff", "", "\\u{41}", "'"])
def test_strings_survive(value: str) -> None:
    module = parse('target @t { a = "" }', "t")
    target = module.targets[0]
    written = print_module(type(module)((type(target)("t", (Setting("a", Text(value)),)),)))
    assert "\n" not in written.rstrip("\n")
    assert parse(written, "t").targets[0].settings[0].value == Text(value)


@pytest.mark.parametrize(("text", "value"), [(r"\u{41}\u{1F600}", "A😀"), (r"\n\t\\\"", '\n\t\\"'), ("//no comment", "//no comment")])
def test_escapes(text: str, value: str) -> None:
    assert parse(f'target @t {{ a = "{text}" }}', "t").targets[0].settings[0].value == Text(value)


@pytest.mark.parametrize(("text", "at"), [(r"a\q", 2), (r"\x41", 1), (r"\u0041", 1), (r"\u{110000}", 1), (r"\u{d800}", 1), (r"ab\0", 3)])
def test_wrong_escapes(text: str, at: int) -> None:
    assert failing(f'import "{text}"')[:2] == (1, len('import "') + at)


def test_strings_close_on_their_line() -> None:
    assert failing('import a\nimport "b\nimport c')[:2] == (2, 8)
    assert failing('import "b\\"')[:2] == (1, 8)
    assert failing('import "')[:2] == (1, 8)


def wrapped(expr: str) -> str:
    return f"op @f() -> () {{ compute {{ let v = {expr} }} }}"


def let(text: str) -> Expr:
    op = parse(text, "t").operators[0]
    assert op.compute is not None
    assert isinstance(op.compute.body[0], Let)
    return op.compute.body[0].value


@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("-(", ")"), ("(1 - ", ")"), ("f(", ")"), ("%x[", "]"), ("sum[k < 2](", ")"), ("not (", ")"), ("(2 ** ", ")"), ("f16(", ")")])
def test_254_brackets_work(before: str, after: str) -> None:
    """Two more are open around the expression."""
    text = wrapped(before * 254 + "a" + after * 254)
    module = parse(text, "t")
    printed = print_module(module)
    assert parse(printed, "t") == module
    assert print_module(parse(printed, "t")) == printed
    assert parse(format_text(text, "t"), "t") == module


@pytest.mark.parametrize("depth", [255, 500, 5_000, 100_000])
@pytest.mark.parametrize("bracket", ["(", "f(", "%x[", "sum[k < 2]("])
def test_more_brackets_are_one_error(depth: int, bracket: str) -> None:
    line, column, message = failing(wrapped(bracket * depth + "a"))
    first = next(i for i, c in enumerate(bracket) if c in "([")
    assert (line, column) == (1, len(wrapped("").split(" }")[0]) + 254 * len(bracket) + first + 1)
    assert "256" in message


def test_nested_lists_and_shapes() -> None:
    assert "256" in failing("target @t { a = " + "[" * 300 + "]" * 300 + " }")[2]
    assert "256" in failing("op @f(%x: tensor<" + "(" * 300 + "N" + ")" * 300 + "xf32>) -> () { }")[2]
    module = parse("target @t { a = " + "[" * 255 + "]" * 255 + " }", "t")
    assert print_module(module).count("[") == 255


def test_brackets_left_open_do_not_add_up() -> None:
    """300 operators whose brace is missing are 300 errors about braces, none about depth."""
    text = "op @f() -> () {\n" * 300
    with pytest.raises(ProgramError) as e:
        parse(text, "t")
    assert len(e.value.diagnostics) == 300
    assert not any("256" in d.message for d in e.value.diagnostics)


@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize("join", [" + ", " and ", " ** ", " * ", " - "])
def test_a_thousand_levels(join: str) -> None:
    module = parse(wrapped(join.join(["a"] * 1000)), "t")
    assert parse(print_module(module), "t") == module
    value, levels = let(print_module(module)), 1
    while isinstance(value, Apply):
        value, levels = max(value.args, key=lambda e: isinstance(e, Apply)), levels + 1
    assert (levels, value) == (1000, Name("a"))


@pytest.mark.parametrize("expr", [" + ".join(["a"] * 1001), "-" * 1000 + "a", " ** ".join(["a"] * 100_000), "not " * 1500 + "a", "[" + " + ".join(["a"] * 1001) + "]"])
def test_more_levels_are_one_error(expr: str) -> None:
    text = f"target @t {{ a = {expr} }}" if expr.startswith("[") else wrapped(expr)
    _, _, message = failing(text)
    assert "levels deep" in message


def test_large_texts() -> None:
    comments = "// a comment\n" * 100_000
    assert parse(comments + "import a", "t").imports[0].span.line == 100_001
    long = "target @t { a = [" + ", ".join(["1"] * 300_000) + "] } // " + "x" * 5_000_000
    assert print_module(parse(long, "t")).count("1") == 300_000


def test_many_nodes() -> None:
    text = "pipeline @p(%n0: tensor<f32>) -> (%y: tensor<f32>) {\n" + "".join(f"%n{i + 1} = @f(%n{i})\n" for i in range(20_000)) + "}"
    module = parse(text, "t")
    assert len(module.pipelines[0].nodes) == 20_000
    assert module.pipelines[0].nodes[-1].span.line == 20_001
    assert parse(print_module(module), "t") == module


def test_values_take_the_short_way() -> None:
    """A literal followed by an operator is an expression all the same."""
    settings = parse('target @t { a = 1 + 2, b = 3, c = "s", d = x * 2, e = f(1), g = -4, h = [1, 2 * 3] }', "t").targets[0].settings
    assert settings[0].value == Apply("+", (IntLit(1), IntLit(2)))
    assert settings[1].value == IntLit(3)
    assert settings[3].value == Apply("*", (Name("x"), IntLit(2)))
    assert settings[5].value == IntLit(-4)
