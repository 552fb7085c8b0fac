"""`python -m pipelink_ir.cli`: the command without its script."""
from __future__ import annotations

import sys

from pipelink_ir.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
