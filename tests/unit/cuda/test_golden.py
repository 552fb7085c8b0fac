"""Whole texts as they are: what people read when they look at what was made of their program."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.cuda.forms import ROOT, pipelines

PROGRAMS = {"edge_gamma": "a stencil with borders, a power", "rows": "reductions of rows by blocks", "ctc": "a recurrence, checks of data"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    path = f"tests/cases/{name}.plir"
    code, = pipelines(path, (ROOT / path).read_text(encoding="utf-8"))
    golden(f"cuda/{name}.cu", "\n".join(u.text for u in code.units))
