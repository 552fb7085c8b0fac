"""How operators are run: where each definition lives, what is computed together, and over which threads. Analyses only, nothing here writes loops."""
from __future__ import annotations
