"""Every construct of the language page, by the words it uses. `test_constructs.py` asserts that each stands in a positive program, and none is missing here
that a program claims to cover."""
from __future__ import annotations

CHECKLIST = {
    "Lexical": (
        "// comment", "/// doc comment", "statements without separators", "line ends", "UTF-8 with a byte order mark", "upper-case dimensions",
        "names like words and numbers", "numbers", "precedence", "mod, floordiv, ceildiv as calls", "strings and their escapes",
    ),
}
