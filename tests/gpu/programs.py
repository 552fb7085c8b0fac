"""Programs that the tests of a GPU share."""
from __future__ import annotations

import itertools

UNIT = "op @u(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = %x[n] + 1 } }\n"
JOIN = "op @j(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { schedule { target = cuda } compute { %y[n] = %x[n] + %z[n] } }\n"
"""Operators with a schedule of their own are not fused: each is a kernel."""

SUM = UNIT + JOIN + """pipeline @p(%x: tensor<Nxf32>, %z: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {
  %a = @u(%x)
  %b = @u(%a)
  %y = @j(%b, %z)
}
"""
"""x + 2 + z in three kernels."""

GATHER = """op @gather(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) { compute { %y[m] = %x[%i[m]] } }
op @more(%x: tensor<Mxf32>) -> (%y: tensor<Mxf32>) { schedule { target = cuda } compute { %y[m] = %x[m] + 1 } }
pipeline @p(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) {
  %a = @gather(%x, %i)
  %y = @more(%a)
}
"""


def chain(kernels: int) -> str:
    """x + kernels, in as many kernels one behind the other."""
    edges = ["x", *(f"e{k}" for k in range(1, kernels)), "y"]
    nodes = "\n".join(f"  %{b} = @u(%{a})" for a, b in itertools.pairwise(edges))
    return UNIT + f"pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{\n{nodes}\n}}\n"


def diamonds(count: int) -> str:
    """Two ways from each join to the next, which may run at the same time: 2 ** count * x + the ones on the ways."""
    nodes, edge = [], "x"
    for k in range(count):
        target = "y" if k == count - 1 else f"d{k}"
        nodes += [f"  %a{k} = @u(%{edge})", f"  %b{k} = @u(%a{k})", f"  %c{k} = @u(%{edge})", f"  %{target} = @j(%b{k}, %c{k})"]
        edge = target
    return UNIT + JOIN + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n" + "\n".join(nodes) + "\n}\n"


def of_diamonds(count: int, x: float) -> float:
    """What `diamonds` makes of a value."""
    for _ in range(count):
        x = (x + 2) + (x + 1)
    return x
