"""How many plans are mutated, and what came of it."""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

_KEY = "mutants of plans"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("plans").addoption("--plan-graphs", type=int, default=100, help="mutate the plans of so many random graphs")


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Callable[[str, Counter[str]], None]:
    """Takes what a test found to the summary, also from another process."""
    def take(what: str, found: Counter[str]) -> None:
        record_property(_KEY, json.dumps([what, found]))
    return take


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    lines = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY and getattr(report, "when", "") == "call":
                    what, found = json.loads(value)
                    lines.append(f"{what}: {', '.join(f'{n} {kind}' for kind, n in sorted(found.items()))}")
    if lines:
        terminalreporter.section("mutants of plans: all harmful ones refused, no harmless one")
        for line in lines:
            terminalreporter.write_line(line)
