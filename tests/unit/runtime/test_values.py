"""Values checked at run time: the first that breaks `range` or `finite` on an edge, wherever the edge is."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.cli.command import Done

PROGRAM = """\
op @scale(%x: tensor<HxWxf32>, by: f32 = 2.0) -> (%y: tensor<HxWxf32>) {
  compute { %y[h, w] = by * %x[h, w] }
}
op @root(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  semantic { %x { range = [0, 1] }, %y { finite = true } }
  compute { %y[h, w] = sqrt(%x[h, w]) }
}
op @inverse(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  semantic { %y { range = [-100, 100] } }
  compute { %y[h, w] = 1 / %x[h, w] }
}
pipeline @main(%img: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  %double = @scale(%img) as double
  %root = @root(%double) as root
  %y = @inverse(%root) as inverse
}
"""


@pytest.fixture(scope="module", params=["cpu", "reference"])
def checked(request: pytest.FixtureRequest) -> pl.Compiled:
    return pl.compile(PROGRAM, request.param, check_values=True)


def broken(compiled: pl.Compiled, **arrays: Any) -> pl.ContractViolationError:
    with pytest.raises(pl.ContractViolationError) as caught:
        compiled(**arrays)
    return caught.value


def test_values_that_keep_every_contract(checked: pl.Compiled) -> None:
    x = np.array([[0.1, 0.25], [0.3, 0.5]], np.float32)
    np.testing.assert_allclose(checked(img=x).y, 1 / np.sqrt(2 * x), rtol=1e-6)
    assert checked(img=np.zeros((0, 3), np.float32)).y.shape == (0, 3)


def test_a_range_on_an_edge_inside(checked: pl.Compiled) -> None:
    error = broken(checked, img=np.array([[0.1, 0.2, 0.3], [0.4, 0.75, 0.9]], np.float32))
    assert (error.field, error.operator, error.edge, error.expected, error.got) == ("range", "root", "double", "values in [0, 1]", "1.5 at [1, 1]")
    assert "(2 such values)" in str(error)
    assert [n.span.line for n in error.locations] == [14, 13, 5]
    assert error.diagnostics[0].code == "PL3701"


def test_values_below_a_range(checked: pl.Compiled) -> None:
    error = broken(checked, img=np.array([[0.1, -0.25]], np.float32))
    assert (error.field, error.got) == ("range", "-0.5 at [0, 1]")
    # The root of it is NaN, which the operator promised not to make: both are told.
    assert ["finite" in d.field for d in error.diagnostics] == [False, True]
    assert "'%root' is nan at [0, 1], but '@root' promises finite values" in str(error)


def test_a_promise_of_a_result(checked: pl.Compiled) -> None:
    error = broken(checked, img=np.array([[0.5, 0.0]], np.float32))
    assert (error.field, error.edge, error.got) == ("range", "y", "inf at [0, 1]")
    assert "'@inverse' promises values in [-100, 100]" in str(error)


def test_nan_is_no_matter_of_range(checked: pl.Compiled) -> None:
    error = broken(checked, img=np.array([[np.nan]], np.float32))
    assert {d.field for d in error.diagnostics} == {"finite"}


def test_without_checks_nothing_is_checked() -> None:
    assert np.isnan(pl.compile(PROGRAM)(img=np.array([[-1]], np.float32)).y).all()


def test_an_input_names_the_line_that_made_it() -> None:
    direct = PROGRAM.replace("@root(%double)", "@root(%img)").replace("  %double = @scale(%img) as double\n", "")
    compiled = pl.compile(direct, check_values=True)
    view = pl.as_view(np.array([[2]], np.float32))      # too large
    error = broken(compiled, img=view)
    assert error.edge == "img"
    assert any("# too large" in (n.span.source.line(n.span.line) or "") for n in error.locations if n.span.source.path == __file__)


GRAPH = PROGRAM.split("pipeline")[0] + """\
op @safe_root(%v: tensor<HxWxf32>) -> (%w: tensor<HxWxf32>) {
  semantic { %w { range = [0, 1] } }
  graph {
    %d = @scale(%v) as d
    %w = @root(%d) as r
  }
}
pipeline @main(%img: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  %y = @safe_root(%img) as safe
}
"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_edges_inside_graphs_and_promises_of_graphs(target: str) -> None:
    compiled = pl.compile(GRAPH, target, check_values=True)
    error = broken(compiled, img=np.array([[0.25, 0.75]], np.float32))
    found = [(d.about.edge, d.about.operator) for d in error.diagnostics if d.about]
    assert found == [("y.d", "root"), ("y", "safe_root")]
    np.testing.assert_allclose(compiled(img=np.array([[0.25]], np.float32)).y, [[np.sqrt(0.5)]], rtol=1e-6)


def test_simplification_hides_no_edge() -> None:
    """An operator that does nothing is removed when a program is compiled; its contract is checked all the same."""
    program = ("op @same(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  semantic { %x { range = [0, 1] } }\n  compute { %y[n] = %x[n] }\n}\n"
               "pipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  %unused = @same(%x)\n  %y = @same(%x)\n}\n")
    assert broken(pl.compile(program, check_values=True), x=np.array([3], np.float32)).field == "range"


def test_results_in_given_arrays_are_not_touched_before_the_check(checked: pl.Compiled) -> None:
    target = np.full((1, 1), 7, np.float32)
    with pytest.raises(pl.ContractViolationError):
        checked(img=np.array([[0.75]], np.float32), out=target)
    assert target[0, 0] == 7
    assert checked(img=np.array([[0.5]], np.float32), out=target).y is target
    assert target[0, 0] == 1


@pytest.mark.parametrize(("dtype", "value", "field"), [
    ("i64", 200, "range"), ("i32", -5, "range"), ("f16", 60000, "range"), ("bf16", np.inf, "finite"), ("f64", np.nan, "finite"),
])
def test_every_kind_of_number(dtype: str, value: float, field: str) -> None:
    from pipelink_ir.ir.dtypes import DTYPES
    contract = "range = [0, 100]" if field == "range" else "finite = true"
    program = (f"op @same(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{\n  semantic {{ %x {{ {contract} }} }}\n  compute {{ %y[n] = %x[n] }}\n}}\n"
               f"pipeline @main(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{\n  %y = @same(%x)\n}}\n")
    compiled = pl.compile(program, check_values=True)
    x = np.array([1, 2, value]).astype(DTYPES[dtype].numpy())
    error = broken(compiled, x=x)
    assert error.field == field
    assert "at [2]" in error.got
    compiled(x=x[:2])


def test_the_command(pipelinkc: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "p.plir").write_text(PROGRAM)
    np.save(tmp_path / "x.npy", np.array([[0.5, 0.75]], np.float32))
    assert pipelinkc("run", "p.plir", "--in", "img=x.npy").status == 0
    done = pipelinkc("run", "p.plir", "--in", "img=x.npy", "--check-values")
    assert done.status == 1
    assert "p.plir:14:17: error[PL3701]: range: '%double' is 1.5 at [0, 1], but '@root' asks for values in [0, 1] as '%x'" in done.err
