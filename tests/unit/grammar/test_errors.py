"""Where messages about syntax point, what they say, and that one mistake is one message."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Diagnostic, ProgramError

BAD = sorted((Path(__file__).resolve().parents[2] / "cases" / "bad").glob("syntax-*.plir"))


def errors(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(ProgramError) as e:
        parse(text, "t")
    return e.value.diagnostics


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_marked_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    marks = [(n, code, *re.match(r"(error|note)(?: syntax at (.*))?", mark.strip()).groups())  # type: ignore[union-attr]
             for n, line in enumerate(text.split("\n"), 1) for code, *rest in [line.split("//~")] for mark in rest]
    (error,) = errors(text)
    assert error.code == "PL1001"
    notes = {n.span.line for n in error.notes}
    for number, code, kind, target in marks:
        if kind == "note":
            assert number in notes
        else:
            first = code.index(target.replace("\\q", '"')) + 1
            assert error.span.line == number
            assert first <= error.span.column < first + len(target)


def test_there_are_marked_files() -> None:
    assert len(BAD) == 8


def messages(text: str) -> tuple[Diagnostic, ...]:
    """Those of a text that may be right."""
    try:
        parse(text, "t")
    except ProgramError as e:
        return e.diagnostics
    return ()


def op(body: str) -> str:
    return f"op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{\n{body}\n}}\n"


def body(text: str) -> str:
    return op("compute {\n" + text + "\n}")


def pipe(text: str) -> str:
    return f"pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{\n{text}\n}}\n"


# The place is written as «…» around the token.
CASES = [
    # what is missing or too much
    (body("%y[n] = max(%x[n], 0\n«%z»[n] = 3"), "expected an operator, ',' or ')'", ""),
    (body("%y[n] = (1«]»"), "cannot close '('", "')'"),
    (body("%y[n] «3»"), "expected '=', found '3'", ""),
    (body("%y[n] = «}»"), "expected an expression", ""),
    (body("%y[n] = f(a «b»)"), "expected an operator, ',' or ')'", "','"),
    (body("%y[n] = f(«,»)"), "comma too many", "remove"),
    (body("%y[n] = f(a, «)»"), "comma right before ')'", "remove"),
    (op("where a, «memory» { }"), "comma right before 'memory'", ""),
    (op("where a, «}»"), "comma right before '}'", ""),
    ("op @f(%x: tensor<f32>, «)» -> () { }", "comma right before ')'", ""),
    ("op @f() «(»%y: tensor<f32>) { }", "'->' is missing", "->"),
    ("pipeline @f() «{» }", "'->' is missing", "->"),
    ("«}»", "too many", ""),
    ("op @f() -> () { } «}»", "too many", ""),
    (op("memory «a» = 3"), "expected '{'", ""),
    (pipe("%y = @f(%x) {a = 1 «b» = 2}"), "','", ""),
    (pipe("%y = @f(%x) {a = 1\n«b» = 2}"), "','", "','"),
    (pipe("%y = @f(%x) on\n«%z» = @f(%x)"), "expected a name or '@name', found '%z'", ""),
    # signs and words of other languages
    (body("%y[n] = 0 < n «<» 3"), "comparisons do not chain", "and"),
    (op("where 0 < K «<=» 3"), "comparisons do not chain", "and"),
    (op("where C «=» 3"), "'=='", "=="),
    (body("%y[n] = select(a «=» 1, 2, 3)"), "'=='", "=="),
    (pipe("%y = @f(%x) {a «==» 1}"), "'='", "="),
    (pipe("%y = @f(%x) {a«:» 1}"), "expected '='", "'='"),
    (body("%y[n] = a «&&» b"), "'&&'", "'and'"),
    (body("%y[n] = a «||» b"), "'||'", "'or'"),
    (body("%y[n] = «!»a"), "'!'", "'not'"),
    (body("%y[n] = a «^» b"), "'^'", "'**'"),
    (body("%y[n] = a «%» b"), "'%'", "'mod'"),
    (body("%y[n] = «+»1"), "leading '+'", ""),
    (body("%y[n] = 3«;»"), "';'", ""),
    (body("%y[n] = «'»a'"), "double quotes", ""),
    (body("«/*» a */"), "block comments", "//"),
    (body("%y[n] = 3 «if» a else 4"), "found 'if'", "select"),
    (body("%y[i in 0«:»3] = 1"), "found ':'", "a..b"),
    (op("compute { %y[n] = (%x[n] // 2) * 3\n«}»"), "expected", "floordiv"),
    # names
    (body("let «mod» = 3"), "reserved word", ""),
    (body("%y[n] = 1 - «mod»\n"), "reserved word", ""),
    (body("%y[«where»] = 1"), "reserved word", ""),
    (body("let «f16» = 3"), "dtype and cannot be a name", ""),
    (body("let «pi» = 3"), "constant and cannot be a name", ""),
    (body("%y[n] = sum[«nan» < 3](1)"), "constant", ""),
    ("op @f(%x: tensor<f32>, «select»: f32) -> () { }", "reserved word", ""),
    ("op @f(«param» %x: tensor<f32>) -> () { }", "'param' marks inputs of a pipeline", ""),
    (pipe("%y = @f(%x) as «on»"), "reserved word", ""),
    (body("%y[gr«ö»ße] = 3"), "ASCII", ""),
    (pipe("%y = «f»(%x)"), "'@f'", "@f"),
    (pipe("%y = @f(«x»)"), "'%x'", "%x"),
    (pipe("«y» = @f(%x)"), "'%y'", "%y"),
    (body("«y»[n] = 3"), "'%y'", "%y"),
    ("op «relu»() -> () { }", "'@relu'", "@relu"),
    ("op @f(x: «tensor»<f32>) -> () { }", "'%x'", "%x"),
    (body("%y[n] = x[n«]»"), "found ']'", "%x["),
    (body("%y[n] = x[«0»]"), "found '0'", "%x["),
    (body("%y[n] = «%3»"), "no name", ""),
    # types
    ("op @f(%x: tensor<«nxhx3xf32»>) -> () { }", "upper case", "NxHx3xf32"),
    ("op @f(%x: tensor<«Nhx3xf32»>) -> () { }", "upper case", ""),
    ("op @f(%x: tensor<«nxhxT»>) -> () { }", "upper case", ""),
    ("op @f(«oh»: dim) -> () { }", "upper case", "OH"),
    ("op @f(%x: tensor<H«+»1xf32>) -> () { }", "parentheses", ""),
    ("op @f(%x: tensor<N, H«,» f32>) -> () { }", "separated by 'x'", ""),
    ("op @f(%x: tensor<3«>») -> () { }", "dtype", ""),
    ("op @f(%x: tensor«[»3]) -> () { }", "expected '<'", ""),
    ("op @f(a: word«)» -> () { }", "expected 'in'", ""),
    # casts and reductions
    (body("%y[n] = «T(1, 2)»"), "one value", ""),
    (body("%y[n] = «f16()»"), "one value", ""),
    (body("%y[n] = sum[k < K](1, «2»)"), "of one expression", ""),
    (body("%y[n] = «nth[k < K](1)»"), "rank", ""),
    # items and sections
    ("«fn» @f() -> () { }", "expected 'op', 'pipeline', 'target' or 'import', found 'fn'", ""),
    ("«opp» @f() -> () { }", "found 'opp'", "'op'"),
    (op("«memry» { a = 3 }"), "expected a section", "'memory'"),
    (op("downgrade sm_75 «memory» { }"), "expected 'unsupported' or '{'", ""),
    (pipe("%a, %b = «%x»"), "2 edges", ""),
    ("import «=»", "expected a name or a string", ""),
    ("op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) «where» N > 2 { compute { %y[n] = %x[n] } }", "stands inside the braces", "{ where"),
    ("pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) «where» N > 2 { %y = @f(%x) }", "stands inside the braces", "{ where"),
]


@pytest.mark.parametrize(("text", "says", "helps"), CASES, ids=[c[0].replace("\n", " ")[-50:] for c in CASES])
def test_one_message_at_the_first_wrong_token(text: str, says: str, helps: str) -> None:
    start, end = text.index("«"), text.index("»") - 1
    (error,) = errors(text.replace("«", "").replace("»", ""))
    assert error.code == "PL1001"
    assert error.span.start == start
    assert error.span.end == end or "tensor<" in text
    assert says in error.message
    assert helps in (error.help or "")


@pytest.mark.parametrize(("text", "bracket", "says"), [
    ("op @f() -> () «{»\n memory { a = 3 }\n", "{", "never closed"),
    ("op @f() -> () { compute «{» ", "{", "never closed"),
    ("op @f«(»", "(", "never closed"),
    ("target @t4 «{» arch = sm_75 // comment", "{", "never closed"),
    (pipe("%y = @f«(»%x").rstrip("}\n"), "(", "never closed"),
])
def test_brackets_that_are_never_closed(text: str, bracket: str, says: str) -> None:
    (error,) = errors(text.replace("«", "").replace("»", ""))
    assert error.span.start == text.index("«")
    assert error.message == f"'{bracket}' is {says}"
    assert error.notes[0].span.start == len(text.replace("«", "").replace("»", "").split(" //")[0].rstrip())


@pytest.mark.parametrize("text", ["op", "import", "op @f", "target", "pipeline @p", "op @f() ->"])
def test_text_that_ends_too_early(text: str) -> None:
    (error,) = errors(text)
    assert error.span.start == len(text)
    assert error.message.endswith("found the end of the file") or "->" in error.message


def test_a_new_item_inside_an_open_bracket() -> None:
    text = op("compute { %y[n] = (1 + \n}").replace("}\n", "") + "\n\nop @g() -> () { }\n"
    (error,) = errors(text)
    assert (error.span.line, error.span.column) == (text[:text.index("op @g")].count("\n") + 1, 1)
    assert "cannot begin here" in error.message
    assert error.notes[0].span.start == text.index("(1 +")


def test_two_mistakes_in_two_items_are_two_messages() -> None:
    text = body("%y[n] = 1 +* 2") + body("%y[n] = %x[n]") + pipe("%y = @f(%x") + "target @t { a = 2.2.1 }\n" + op("memory { a = 1, }")
    found = errors(text)
    assert [text[e.span.start:e.span.end] for e in found] == ["*", "}", "2.2.1", "}"]
    assert [e.span.line for e in found] == sorted(e.span.line for e in found)


def test_one_mistake_hides_none_of_the_same_item_that_is_no_matter_of_order() -> None:
    found = errors("op @f(%x: tensor<nxf32>, oh: dim) -> () { compute { let v = T(1, 2) } }")
    assert [e.span.column for e in found] == [18, 26, 61]


@pytest.mark.parametrize("text", ["op @f() -> () { compute { %y = 1 } } }", body("%y[n] = 1 1"), body("%y[n] = ((((1)"), body(") ) ) ] }"), "a b c d", "op op op"])
def test_no_message_about_what_follows(text: str) -> None:
    assert len(errors(text + "\n" + body("%y[n] = 1") + pipe("%y = @f(%x)"))) == 1


def test_messages_speak_no_grammar() -> None:
    """No terminal or rule of the grammar is named."""
    for text in (c[0].replace("«", "").replace("»", "") for c in CASES):
        for error in errors(text):
            assert not re.search(r"\b(?!ASCII)[A-Z]{4,}\b|__|\$END", error.message)


def test_every_prefix_of_a_program_is_answered() -> None:
    """Cut anywhere, a program either parses or gives located messages."""
    text = (BAD[0].parents[1] / "extern_sobel.plir").read_text(encoding="utf-8")
    for cut in range(0, len(text), 7):
        found = messages(text[:cut])
        assert len(found) <= 2
        assert all(0 <= d.span.start <= cut for d in found)


def test_every_token_left_out_is_answered() -> None:
    text = "op @f(%x: tensor<Nx3xf32, NH>, a: f32 = 1.0) -> (%y: tensor<Nxf32>) {\n  memory { align = 64, %y { inplace = %x } }\n" \
           "  compute { %y[n] = sum[k < 3 where k > 1](%x[n, k]) * a }\n}\n" \
           "pipeline @p(%x: tensor<Nx3xf32>) -> (%y: tensor<Nxf32>) {\n  %y = @f(%x) {a = 2.0} on cuda:0 as l after %x\n}\n"
    for mo in re.finditer(r"[%@]?\w+|->|[^\s\w]", text):
        assert len(messages(text[:mo.start()] + text[mo.end():])) <= 1
