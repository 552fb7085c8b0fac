"""The reported faults of `tests/unit/test_faults.py` on a GPU, fused and apart."""
from __future__ import annotations

import pytest

from tests.unit import test_faults as reported

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("apart", [False, True], ids=["fused", "apart"])
@pytest.mark.parametrize("case", reported.CASES, ids=lambda c: c.name.replace(" ", "-"))
def test_reported_fault(case: reported.Case, apart: bool) -> None:
    reported.test_reported_fault(case, apart, "cuda")
