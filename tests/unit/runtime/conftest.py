"""The command, as the tests of the command run it."""
from __future__ import annotations

from tests.unit.cli.conftest import pipelinkc

__all__ = ["pipelinkc"]
