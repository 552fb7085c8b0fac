"""The version, written in the code so that the command need not search installed metadata to print it."""
from __future__ import annotations

__version__ = "0.1.0"
