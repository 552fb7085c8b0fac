"""The programs of this folder with what they are called with and what has to come out: arrays beside them, compared as `check_run.py` says."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.cases.check_run import compare

HERE = Path(__file__).resolve().parent
PROGRAMS = sorted(p.stem for p in HERE.glob("*.plir"))


@dataclass(frozen=True)
class Stored:
    """The arrays of one program: its inputs, its results, how far these may be off."""

    inputs: dict[str, Any]
    results: dict[str, Any]
    tolerances: dict[str, Any]

    def wrong(self, got: Mapping[str, Any]) -> list[str]:
        """What is wrong with results."""
        assert sorted(got) == sorted(self.results)
        found = [compare(k, want, np.asarray(got[k]), self.tolerances.get(k))[0] for k, want in self.results.items()]  # type: ignore[no-untyped-call]
        return [problem for problem in found if problem]


def stored(name: str) -> Stored:
    """The arrays of the program of that name."""
    with np.load(HERE / f"{name}.npz") as data:
        kinds = {kind: {k.removeprefix(kind): data[k] for k in data.files if k.startswith(kind)} for kind in ("in.", "out.", "tol.")}
    return Stored(kinds["in."], kinds["out."], kinds["tol."])
