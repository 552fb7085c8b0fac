"""Profile, options and report of the generated programs.

    pytest tests/fuzz                        the same programs each time, about a minute on two cores
    pytest tests/fuzz --fuzz-programs=5000   so many for each area, other ones each time; a failing one is minimised and printed
    pytest tests/fuzz --fuzz-report          prints what occurred how often
"""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.cache import cache_folder as cache_folder
from tests.fuzz.census import Census

_KEY = "fuzz census"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-programs", type=int, default=0, help="generate so many random programs for each area, instead of the fixed ones")
    group.addoption("--fuzz-unshrunk", action="store_true", help="print the program that fails as it is, without minimising it")
    group.addoption("--fuzz-report", action="store_true", help="print how often each node kind, function, reduction, border and dtype occurred")


@pytest.fixture
def profile(request: pytest.FixtureRequest) -> Callable[[int], settings]:
    """The settings for an area: `usual` programs that are always the same, or as many others as the command asks for."""
    def settings_for(usual: int) -> settings:
        asked = request.config.getoption("--fuzz-programs")
        phases = (Phase.generate,) if request.config.getoption("--fuzz-unshrunk") else (Phase.generate, Phase.shrink)
        return settings(max_examples=asked or usual, derandomize=not asked, database=None, deadline=None, phases=phases, print_blob=False,
                        suppress_health_check=list(HealthCheck))
    return settings_for


@pytest.fixture
def census(record_property: Callable[[str, object], None]) -> Iterator[Census]:
    """Counts what one test generates; the report of the test carries it to the summary, also from another process."""
    found = Census()
    yield found
    record_property(_KEY, json.dumps(found.counts))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The sum over all areas: one line, or everything with `--fuzz-report`."""
    total = Census()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY and getattr(report, "when", "") == "teardown":
                    for group, counts in json.loads(value).items():
                        total.counts.setdefault(group, Counter()).update(counts)
    outcome = total.counts.get("outcome")
    if not outcome:
        return
    terminalreporter.section("generated programs")
    for line in total.lines() if config.getoption("--fuzz-report") else [f"outcome: {', '.join(f'{n} {c}' for n, c in outcome.most_common())}"]:
        terminalreporter.write_line(line)
