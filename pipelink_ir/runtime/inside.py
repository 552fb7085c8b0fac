"""An arena of the caller's that was checked."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Inside:
    """The caller's object, which is kept until the run is done, and where its memory begins."""

    arena: Any
    address: int
