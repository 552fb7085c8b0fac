"""Every pass has a page, and the page of all passes in the documentation is the one that they make."""
from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

from pipelink_ir.passes.manager import find_pass, parse_passes
from pipelink_ir.passes.options import explain_options
from pipelink_ir.passes.pipeline import ALIASES, PASSES, module_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_explains_itself(name: str) -> None:
    found = find_pass(name)
    page = importlib.import_module(module_of(name)).__doc__ or ""
    for word in ("before", "after", "requires:", "keeps:", "adds:"):
        assert word in page.lower(), word
    assert found.description
    assert all(said for _, _, said in explain_options(found.options))


def test_aliases_are_pipelines_in_the_order_of_the_page() -> None:
    for name in ALIASES:
        steps = [s.name for s in parse_passes(name)]
        assert steps == sorted(steps, key=PASSES.index)


def test_the_page_of_passes_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert (ROOT / "docs" / "generated" / "passes.md").read_text(encoding="utf-8") == build.passes(), "run `make docs`"
