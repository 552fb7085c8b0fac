"""PipeLink IR: a compiler for tensor operators that compose. Importing the package is cheap: what a name needs is loaded when it is used."""
from __future__ import annotations

__version__ = "0.1.0"
