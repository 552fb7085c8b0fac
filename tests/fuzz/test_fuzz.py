"""Random programs on the reference backend, in f32 and in float64, and on the cpu backend.

What may differ. The meaning of a program is evaluated once more with intervals in place of floats (`intervals.py`, `enclosure.py`): an interval holds every
value that the accuracy stated in the language admits, no more. `+ - *`, casts, `floor`, comparisons and whatever is exact are points, on which the backends
must agree to the bit, signed zeros included; `/`, `sqrt` and other functions are as wide as their ulps in `ir/functions.py`; sums and products of floats as
wide as any order of their terms makes them; widths go on through everything that is computed of them. Both backends must lie inside; integers and bools
must be equal. The float64 mode must lie inside the intervals that leave f32 unrounded, too.

What is excluded. Where an interval does not decide a comparison, an integer cast or the place of a maximum, results may differ for good reason: such
samples are run and counted, not compared. Each test asserts that they are few, and that everything it is there for occurred; `--fuzz-report` prints counts.

A program that fails is minimised by hypothesis and printed whole, with the arrays; a test of its own in `tests/unit` keeps it from coming back.
"""
from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from tests.fuzz import gathers, graphs, pointwise, recurrences, reductions, stencils
from tests.fuzz.census import ALL_BORDERS, ALL_CASTS, ALL_DTYPES, ALL_FUNCTIONS, ALL_REDUCTIONS, Census
from tests.fuzz.check import check
from tests.fuzz.data import Program
from tests.fuzz.tape import Tape, from_tape

Profile = Callable[[int], settings]


def _run(build: Callable[[Tape], Program], usual: int, profile: Profile, census: Census) -> None:
    """Generate and check; few samples may be excluded for ties, few elements may be anything."""
    chosen = profile(usual)

    @chosen
    @given(from_tape(build))
    def programs(program: Program) -> None:
        check(program, census)

    programs()
    outcome, elements = census.counts["outcome"], census.counts["elements"]
    assert outcome["programs"] >= 0.95 * min(usual, chosen.max_examples)
    assert outcome["samples excluded for a tie"] <= 0.1 * outcome["samples"]
    assert elements["anything"] <= 0.1 * elements.total()
    assert elements["exact"] > 0
    assert elements["in an interval"] > 0


def _occurred(census: Census, **groups: tuple[str, ...]) -> None:
    missing = [m for group, names in groups.items() for m in census.missing(group.replace("_", " "), names)]
    assert missing == []


def test_pointwise(profile: Profile, census: Census) -> None:
    _run(pointwise.program, 220, profile, census)
    _occurred(census, dtype=ALL_DTYPES, function=ALL_FUNCTIONS, cast=ALL_CASTS,
              node=("Let", "Define", "Attribute", "Setting", "IntLit", "FloatLit", "Const", "Name", "Read", "Apply", "Cast", "Reduce", "Range", "Axis"))


def test_stencils(profile: Profile, census: Census) -> None:
    _run(stencils.program, 130, profile, census)
    _occurred(census, border=ALL_BORDERS, border_of=("operand", "local"), access=("inside", "guarded", "border"), node=("Position", "Scoped", "Section", "Items"))


def test_reductions(profile: Profile, census: Census) -> None:
    _run(reductions.program, 130, profile, census)
    _occurred(census, reduction=ALL_REDUCTIONS, tag=("empty = unwritten", "empty = zero", "empty = nan"), access=("check",),
              reduction_of=("1 ranges", "1 ranges where", "2 ranges", "2 ranges where"), outcome=("samples that cannot run",))


def test_gathers(profile: Profile, census: Census) -> None:
    _run(gathers.program, 120, profile, census)
    _occurred(census, border=ALL_BORDERS, access=("check", "border"), outcome=("samples that cannot run",))


def test_recurrences(profile: Profile, census: Census) -> None:
    _run(recurrences.program, 120, profile, census)
    _occurred(census, recurrence=("upwards, 1 tensors", "downwards, 1 tensors", "upwards, 2 tensors", "downwards, 2 tensors"), tag=("lag 1", "lag 2"),
              access=("guarded",))


def test_graphs(profile: Profile, census: Census) -> None:
    _run(graphs.program, 110, profile, census)
    _occurred(census, node=("Pack", "Alias", "Graph", "Dots", "Node", "Edge", "Attribute"), border=("replicate", "reflect", "wrap"))


@pytest.mark.parametrize("build", [pointwise.program, stencils.program, reductions.program, gathers.program, recurrences.program, graphs.program])
def test_the_simplest_program_of_each_area(build: Callable[[Tape], Program], census: Census) -> None:
    """What minimising ends at: an empty tape is a program, too."""
    program = build(Tape(b""))
    check(program, census)
    assert len(program.text) < 600
