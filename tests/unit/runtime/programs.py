"""Programs that the tests of arrays share."""
from __future__ import annotations

from typing import Any

import numpy as np

SHARES = """op @shares(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  compute { %m[n] = max[k < K](%x[n, k])
            %e[n, k] = exp(%x[n, k] - %m[n])
            %s[n] = sum[k < K](%e[n, k])
            %y[n, k] = %e[n, k] / %s[n] }
}
pipeline @p(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { %y = @shares(%x) }
"""

TWICE = """\
op @twice(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  compute { %y[h, w] = 2 * %x[h, w] }
}
pipeline @main(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  %y = @twice(%x)
}
"""


def twice(dtype: str = "f32", contiguity: str | None = None, layout: str | None = None, inplace: bool = False) -> str:
    """Twice the values of a matrix, of another dtype or with a contract."""
    text = TWICE.replace("xf32>", f"x{dtype}{', ' + layout if layout else ''}>")
    if dtype in ("u8", "i8", "u16", "i16"):
        text = text.replace("2 * %x[h, w]", f"{dtype}(2 * %x[h, w])")
    said = [*([f"%x {{ contiguity = {contiguity} }}"] if contiguity else []), *(["%y { inplace = %x }"] if inplace else [])]
    return text.replace("  compute", f"  memory {{ {', '.join(said)} }}\n  compute") if said else text


ADD = """\
op @add(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  compute { %y[n] = %a[n] + %b[n] }
}
pipeline @main(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %y = @add(%a, %b)
}
"""

SPLIT = """\
op @split(%x: tensor<Nxf32>) -> (%lo: tensor<Nxf32>, %hi: tensor<Nxf32>) {
  compute {
    %lo[n] = floor(%x[n])
    %hi[n] = %x[n] - floor(%x[n])
  }
}
pipeline @main(%x: tensor<Nxf32>) -> (%lo: tensor<Nxf32>, %hi: tensor<Nxf32>) {
  %lo, %hi = @split(%x)
}
"""


def matrix(rows: int, columns: int, dtype: Any = np.float32) -> Any:
    """0, 1, 2, … in rows."""
    return np.arange(rows * columns).astype(dtype).reshape(rows, columns)
