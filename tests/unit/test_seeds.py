"""The seeded faults of tests/mutation fit the code that they are put into: a seed whose place has changed would be found by no test, and look as if it were."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.faults import Fault
from tests.mutation.seeded import ALL

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("fault", ALL, ids=lambda f: f.name)
def test_a_seed_has_one_place(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1
    assert fault.old != fault.new


def test_seeds_have_names_of_their_own() -> None:
    assert len({f.name for f in ALL}) == len(ALL) >= 151
