"""Every program in the documentation parses and passes all checks; every link in it leads somewhere."""
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.passes.manager import parse_passes, run_passes

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", ROOT / "examples" / "data" / "README.md",
         *sorted((ROOT / "docs").rglob("*.md"))]


def _programs() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```plir\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 2}", block.group(1)


PROGRAMS = list(_programs())


def test_the_documentation_has_programs() -> None:
    assert len(PROGRAMS) >= 20


@pytest.mark.parametrize(("place", "program"), PROGRAMS, ids=[place for place, _ in PROGRAMS])
def test_program(place: str, program: str) -> None:
    module = parse(program, place)
    assert parse(print_module(module), place) == module
    report = Report()
    try:
        run_passes(module, parse_passes("cpu"), report)
    except ProgramError as error:
        pytest.fail(str(error))
    assert [d.text() for d in report.diagnostics] == []


def _anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken
