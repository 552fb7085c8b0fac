"""PipeLink IR: a compiler for tensor operators that compose. Importing the package is cheap: what a name needs is loaded when it is used."""
from __future__ import annotations

from pipelink_ir.version import __version__

__all__ = ["__version__"]
