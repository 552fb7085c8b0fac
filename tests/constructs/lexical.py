"""Text: comments, names, numbers, precedence, line ends."""
from __future__ import annotations

import numpy as np

from tests.constructs.case import Case, op, program

COPY = "op @same(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] } }\n"
X = np.array([1.0, -2.0, 3.0])


def scalar(name: str, covers: str | tuple[str, ...], value: str, want: float, dtype: str = "f32", ulp: float = 0.0) -> Case:
    """One expression without operands, in a result of rank 0."""
    text = op(f"%x: tensor<f32> -> %y: tensor<{dtype}>", f"let unused = 0\n%y = {value} + 0 * {dtype}(%x)" if dtype != "bool" else f"%y = {value}")
    return Case(name, covers, text, {"x": 1.0}, {"y": want}, ulp=ulp)


PRECEDENCE = [
    ("2 + 3 * 4", 14), ("(2 + 3) * 4", 20), ("2 - 3 - 4", -5), ("2 - (3 - 4)", 3), ("-3 ** 2", -9), ("(-3) ** 2", 9), ("2 ** 3 ** 2", 512),
    ("2 * 3 floordiv 4", 1), ("2 * (3 floordiv 4)", 0), ("-7 floordiv 2", -4), ("-(7 floordiv 2)", -3), ("-7 mod 3", 2), ("7 - 2 mod 3", 5),
    ("10 mod 4 * 3", 6), ("7 ceildiv 2 * 2", 8), ("2 ** 2 * 3", 12), ("- - 4", 4), ("8 floordiv 2 floordiv 2", 2), ("-2 ** 2 + 1", -3),
    ("mod(-7, 3) + 1", 3), ("floordiv(7, 2) * 2", 6), ("ceildiv(7, 2)", 4), ("ceildiv(-7, 2)", -3), ("mod(floordiv(17, 3), ceildiv(7, 3))", 2),
]
LOGIC = [
    ("true or false and false", True), ("(true or false) and false", False), ("not false and false", False), ("not (false and false)", True),
    ("not 1 > 2", True), ("1 + 1 == 2", True), ("2 * 3 > 5 and 1 < 2", True), ("not true or true", True), ("false == not true or false", None),
    ("1 < 2 or 1 floordiv 1 == 2", True), ("not not true", True), ("-1 < 0 and 3 mod 2 >= 1", True),
]
NUMBERS = [("3", 3), ("0.5", 0.5), ("1e-5", 1e-5), ("2.5e3", 2500), ("1e3", 1000), ("00012", 12), ("123456789.0", 123456789.0), ("1e-45", 1e-45), ("3.4028235e38", 3.4028235e38),
           ("0.1", 0.1), ("1E2", 100)]
NAMES = ["inf", "info", "nan1", "e5", "x1e5", "f32", "stream", "sum", "x", "in_", "op", "tensor", "int", "double", "half", "threadIdx", "main", "NULL", "a_b", "a__b", "_"]

CASES = [
    *(scalar(f"precedence {t}", "precedence", t, v) for t, v in PRECEDENCE),
    *(scalar(f"precedence {t}", "precedence", t, v, "bool") for t, v in LOGIC if v is not None),
    *(scalar(f"number {t}", "numbers", t, v) for t, v in NUMBERS),
    scalar("calls of infix words", "mod, floordiv, ceildiv as calls", "mod(-8, 5) * 100 + floordiv(-8, 5) * 10 + ceildiv(-8, 5)", 179),
    Case("comments", ("// comment", "/// doc comment"),
         "// first: ünïcode, \"quotes\", %x @f tensor<\n/// What it does.\n/// On two lines.\n" + COPY.replace("{ compute", "{ // here\n compute")
         + "/// The pipeline.\npipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @same(%x) }//end without a line end", {"x": X}, {"y": X}),
    Case("no separators", "statements without separators",
         "op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) { where N >= 1 compute { let a = 2 let b = 3 %l[n] = a * %x[n] %y[n] = %l[n] - b %z[n] = -%l[n] } } "
         "pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>, %z: tensor<Nxf32>) { where N >= 1 %y, %t = @f(%x) %u, %z = @f(%x) after %y }",
         {"x": X}, {"y": 2 * X - 3, "z": -2 * X}),
    Case("CRLF", "line ends", (COPY + program("", "%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "// a comment\n%y = @same(%x)")).replace("\n", "\r\n").encode(), {"x": X}, {"y": X}),
    Case("line ends of several kinds, tabs, form feeds", "line ends",
         (COPY.replace(" ", "\t") + "\f\n" + program("", "%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "// a comment\r\n%y = @same(%x)\v")).encode(), {"x": X}, {"y": X}),
    Case("byte order mark", "UTF-8 with a byte order mark", b"\xef\xbb\xbf" + program(COPY, "%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y = @same(%x)").encode(), {"x": X}, {"y": X}),
    Case("dimensions before x", "upper-case dimensions", op("%x: tensor<NxHxWx3xf32> -> %y: tensor<3xWxHxNxf32>", "%y[c, w, h, n] = %x[n, h, w, c]"),
         {"x": np.arange(36).reshape(2, 3, 2, 3)}, {"y": np.arange(36).reshape(2, 3, 2, 3).T}),
    *(Case(f"%{n} @{n} is a name", "names like words and numbers",
           f"op @{n}(%{n}: tensor<Nxf32>) -> (%{n}y: tensor<Nxf32>) {{ compute {{ %{n}{n}[n] = 2 * %{n}[n] %{n}y[n] = %{n}{n}[n] }} }}\n"
           f"pipeline @{n}(%{n}: tensor<Nxf32>) -> (%{n}y: tensor<Nxf32>) {{ %{n}y = @{n}(%{n}) }}", {n: X}, {n + "y": 2 * X}) for n in NAMES),
    Case("words as indices and attributes", "names like words and numbers",
         "op @f(%x: tensor<HxWxf32>, word: f32 = 2.0, memory: f32, DIM: dim = 1) -> (%y: tensor<HxWxf32>) {\n"
         "compute { let graph = word * memory  %y[op, kernel] = graph * %x[op, kernel] + DIM } }\n"
         "pipeline @main(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { %y = @f(%x) {memory = 3} }", {"x": [X]}, {"y": [6 * X + 1]}),
    Case("strings", "strings and their escapes",
         op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = 2 * %x[n]",
            call='reason = "a \\"b\\" \\\\ \\n\\t\\u{1F600} */ %s //" loc("other \\u{e9}.plir":12:3)'), {"x": X}, {"y": 2 * X}),
]
