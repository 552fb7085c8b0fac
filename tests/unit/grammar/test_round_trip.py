"""Every `.plir` of the repository: what is printed parses to the same module, and printing that gives the same text."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelink_ir.grammar import format_text, parse, print_module

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = sorted(p for folder in ("tests", "examples", "pipelink_ir/std", "docs", "benchmarks") for p in (ROOT / folder).rglob("*.plir")
                  if not re.search(r"error syntax|PL1001", p.read_text(encoding="utf-8")))


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 60
    assert ROOT / "tests/cases/edge_gamma.plir" in PROGRAMS


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: str(p.relative_to(ROOT)))
def test_prints_and_parses_back(path: Path) -> None:
    data = path.read_bytes()
    module = parse(data, str(path))
    text = print_module(module)
    again = parse(text, "printed")
    assert again == module
    assert print_module(again) == text
    # Counted in another way: items begin at the beginning of a line.
    heads = re.findall(r"^(op|pipeline|target|import)\b", data.decode(), re.MULTILINE)
    assert [len(module.operators), len(module.pipelines), len(module.targets), len(module.imports)] == [
        heads.count(w) for w in ("op", "pipeline", "target", "import")]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: str(p.relative_to(ROOT)))
def test_formats_to_the_same_program(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tidy = format_text(text, str(path))
    assert parse(tidy, "tidy") == parse(text, str(path))
    assert format_text(tidy, "tidy") == tidy
    assert re.sub(r"\s+", "", tidy) == re.sub(r"\s+", "", text)


def test_spans_cover_what_they_stand_for() -> None:
    """Of every node of a program, the text of its span begins and ends like the node."""
    text = (ROOT / "tests/cases/attention.plir").read_text(encoding="utf-8")
    module = parse(text, "attention.plir")
    op = module.operators[0]
    assert text[op.span.start:op.span.end].startswith("op @attention(")
    assert text[op.span.start:op.span.end].endswith("}")
    assert text[op.signature.start:op.signature.end].endswith("-> (%o: tensor<BxHxSxDxT>)")
    assert text[op.name_span.start:op.name_span.end] == "@attention"
    assert op.compute is not None
    define = op.compute.body[1]
    assert text[define.span.start:define.span.end] == "%s[b, h, i, j] = scale * sum[d < D](%q[b, h, i, d] * %k[b, h, j, d])"
    key = op.sections[0].entries[1]
    assert text[key.span.start:key.span.end] == "align = 128"
    node = module.pipelines[0].nodes[0]
    assert text[node.span.start:node.span.end] == "%o = @attention(%q, %k, %v, %mask) as attn"
