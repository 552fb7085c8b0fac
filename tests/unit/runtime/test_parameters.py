"""Parameters bound once: what depends on them alone is computed then, and each call asks for the other inputs."""
from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ContractViolationError, ExecutionError

OPS = """
op @deq(%q: tensor<KxMxi8>, scale: f32 = 0.5) -> (%w: tensor<KxMxf32>) { compute { %w[k, m] = %q[k, m] * scale } }
op @unit(%w: tensor<KxMxf32>) -> (%u: tensor<KxMxf32>) { compute { %u[k, m] = %w[k, m] / (1 + sum[i < K](%w[i, m] * %w[i, m])) } }
op @lin(%x: tensor<NxKxf32>, %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) } }
op @relu(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = max(%x[...], 0) } }
op @aligned(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { memory { contiguity = dense } compute { %y[n, k] = %x[n, k] + 1 } }
"""
NET = OPS + """pipeline @net(%x: tensor<NxKxf32>, param %q: tensor<KxMxi8>, param %b: tensor<MxMxf32>) -> (%y: tensor<NxMxf32>, %u: tensor<KxMxf32>) {
  %w = @deq(%q)  %u = @unit(%w)  %h = @lin(%x, %u)  %r = @relu(%h)  %g = @unit(%b)  %y = @lin(%r, %g)
}"""
TARGETS = ["reference", "cpu", "cuda-emulated"]


@pytest.fixture
def arrays() -> dict[str, Any]:
    draw = np.random.default_rng(7)
    return {"x": draw.standard_normal((5, 8)).astype(np.float32), "q": draw.integers(-9, 9, (8, 6), dtype=np.int8),
            "b": draw.standard_normal((6, 6)).astype(np.float32)}


def worked_out(x: Any, q: Any, b: Any) -> tuple[Any, Any]:
    def unit(w: Any) -> Any:
        return w / (1 + (w * w).sum(0))
    u = unit(q * 0.5)
    return np.maximum(x.astype(np.float64) @ u, 0) @ unit(b.astype(np.float64)), u


@pytest.mark.parametrize("target", TARGETS)
def test_results_with_and_without_binding(arrays: dict[str, Any], target: str) -> None:
    p = pl.compile(NET, target)
    x, q, b = arrays["x"], arrays["q"], arrays["b"]
    f = p.bind(q=q, b=b)
    assert [o.name for o in f.inputs] == ["x"]
    for scale in (1, 3):
        y, u = worked_out(scale * x, q, b)
        for got in (p(x=scale * x, q=q, b=b), f(x=scale * x)):
            np.testing.assert_allclose(got.y, y, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(got.u, u, rtol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "cuda-emulated"])
def test_calls_do_less(arrays: dict[str, Any], target: str) -> None:
    p = pl.compile(NET, target, passes="resolve,infer-types,flatten,simplify,assign-streams,alias-buffers,verify-plan")
    f = p.bind(q=arrays["q"], b=arrays["b"])
    assert {n.op.split(".")[0] for n in f.rest.pipeline.nodes if hasattr(n, "op")} == {"lin", "relu"}
    assert f.kept_bytes == 4 * (8 * 6 + 6 * 6)
    assert f.arena_bytes(x=arrays["x"]) < p.arena_bytes(**arrays)


def test_the_results_of_earlier_calls_are_kept(arrays: dict[str, Any]) -> None:
    f = pl.compile(NET, "cpu").bind(q=arrays["q"], b=arrays["b"])
    first = f(x=arrays["x"])
    y, u = first.y.copy(), first.u.copy()
    second = f(x=2 * arrays["x"])
    second.u[...] = 0
    np.testing.assert_array_equal(first.y, y)
    np.testing.assert_array_equal(first.u, u)
    np.testing.assert_array_equal(f(x=arrays["x"]).u, u)


def test_other_sizes_and_several_bindings(arrays: dict[str, Any]) -> None:
    p = pl.compile(NET, "cpu")
    one, two = p.bind(q=arrays["q"], b=arrays["b"]), p.bind(q=-arrays["q"], b=arrays["b"])
    for n in (1, 4, 9):
        x = np.ones((n, 8), np.float32)
        for f, q in ((one, arrays["q"]), (two, -arrays["q"])):
            np.testing.assert_allclose(f(x=x).y, worked_out(x, q, arrays["b"])[0], rtol=1e-4, atol=1e-5)


def test_results_go_where_they_are_wanted(arrays: dict[str, Any]) -> None:
    f = pl.compile(NET, "cpu").bind(q=arrays["q"], b=arrays["b"])
    out = {"y": np.empty((5, 6), np.float32), "u": np.empty((8, 6), np.float32)}
    f(x=arrays["x"], out=out)
    y, u = worked_out(**arrays)
    np.testing.assert_allclose(out["y"], y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out["u"], u, rtol=1e-5)


def test_what_waits_for_an_input_is_not_computed_before() -> None:
    text = OPS + """op @tile(%w: tensor<Kxf32>, N: dim) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %w[k] + n } }
    op @add(%a: tensor<NxKxf32>, %b: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %a[n, k] + %b[n, k] } }
    pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<Kxf32>) -> (%y: tensor<NxKxf32>) { %r = @relu(%w) %t = @tile(%r) {N = N} %y = @add(%x, %t) }"""
    p = pl.compile(text, "cpu", passes="resolve,infer-types,flatten,simplify")
    f = p.bind(w=np.array([-1, 2], np.float32))
    assert f.kept_bytes == 8
    np.testing.assert_array_equal(f(x=np.zeros((3, 2), np.float32)).y, np.maximum([-1, 2], 0) + np.arange(3)[:, None])


def test_parameters_that_nothing_is_computed_from() -> None:
    text = OPS + "pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @lin(%x, %w) }"
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    for target in TARGETS:
        f = pl.compile(text, target).bind(w=w)
        assert f.kept_bytes == 0
        np.testing.assert_array_equal(f(x=np.eye(3, dtype=np.float32)).y, w)


def test_float64(arrays: dict[str, Any]) -> None:
    p = pl.compile(NET, "reference", float64=True)
    f = p.bind(q=arrays["q"], b=arrays["b"])
    # One rounding, that of the result.
    np.testing.assert_array_equal(f(x=arrays["x"]).y, worked_out(**arrays)[0].astype(np.float32))


def test_values_are_checked(arrays: dict[str, Any]) -> None:
    text = OPS + """op @pos(%w: tensor<KxMxf32>) -> (%u: tensor<KxMxf32>) { semantic { %w { range = [0, 9] } } compute { %u[k, m] = %w[k, m] } }
    pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %u = @pos(%w) %y = @lin(%x, %u) }"""
    p = pl.compile(text, "cpu", check_values=True)
    assert p.bind(w=np.ones((2, 2), np.float32))(x=np.ones((1, 2), np.float32)).y.tolist() == [[2, 2]]
    with pytest.raises(ContractViolationError, match="range"):
        p.bind(w=-np.ones((2, 2), np.float32))


def test_wrong_arrays_are_refused_when_they_are_bound(arrays: dict[str, Any]) -> None:
    p, q, b = pl.compile(NET, "cpu"), arrays["q"], arrays["b"]
    for wrong, message in (({"q": q}, "the parameter '%b' is missing"), ({"q": q, "b": b, "x": arrays["x"]}, "'%x' is no parameter"),
                           ({"q": q, "c": b}, "no parameter '%c'"), ({"q": q.astype(np.int32), "b": b}, "i32"), ({"q": q, "b": b[:3]}, "axis"),
                           ({"q": q[:, :3], "b": b}, "axis")):
        with pytest.raises(ExecutionError, match=message):
            p.bind(**wrong)
    with pytest.raises(ExecutionError, match="no parameters to bind"):
        pl.compile(OPS + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @relu(%x) }", "cpu").bind()


def test_contracts_of_parameters_hold() -> None:
    text = OPS + "pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxKxf32>) -> (%y: tensor<NxKxf32>) { %u = @aligned(%w) %y = @lin(%x, %u) }"
    with pytest.raises(ContractViolationError, match="contiguity"):
        pl.compile(text, "cpu").bind(w=np.ones((3, 3), np.float32).T[::-1])


def test_wrong_calls(arrays: dict[str, Any]) -> None:
    f = pl.compile(NET, "cpu").bind(q=arrays["q"], b=arrays["b"])
    for wrong, message in (({}, "'%x' is missing"), ({"x": arrays["x"], "q": arrays["q"]}, "bound already"), ({"z": arrays["x"]}, "no input '%z'"),
                           ({"x": arrays["x"][:, :3]}, "axis"), ({"x": arrays["x"].astype(np.float64)}, "f64")):
        with pytest.raises(ExecutionError, match=message):
            f(**wrong)


def test_an_input_that_is_called_like_an_option() -> None:
    text = OPS + "pipeline @p(%out: tensor<NxKxf32>, param %w: tensor<KxMxf32>) -> (%y: tensor<NxMxf32>) { %y = @lin(%out, %w) }"
    f = pl.compile(text, "cpu").bind(w=np.eye(2, dtype=np.float32))
    assert f(out=np.ones((1, 2), np.float32)).y.tolist() == [[1, 1]]


def test_it_says_what_it_is(arrays: dict[str, Any]) -> None:
    f = pl.compile(NET, "cpu").bind(q=arrays["q"], b=arrays["b"])
    assert repr(f) == "<pipeline @net for cpu: %x, with %q, %b bound>"
    assert "peak" in f.explain(x=arrays["x"])


def test_shapes_of_a_bound_pipeline_are_those_of_the_other_inputs(arrays: dict[str, Any]) -> None:
    f = pl.compile(NET, "cpu").bind(q=arrays["q"], b=arrays["b"])
    assert f.arena_bytes(x=(5, 8)) == f.arena_bytes(x=arrays["x"])
    for ask in (f.arena_bytes, f.explain):
        with pytest.raises(ExecutionError, match="the parameter '%q' is bound already"):
            ask(x=(5, 8), q=(8, 6))
        with pytest.raises(ExecutionError, match="has no input '%X'; it asks for %x"):
            ask(X=(5, 8))


@pytest.mark.parametrize("target", TARGETS)
def test_copies_and_pickles_run(arrays: dict[str, Any], target: str) -> None:
    p = pl.compile(NET, target)
    f = p.bind(q=arrays["q"], b=arrays["b"])
    y = f(x=arrays["x"]).y
    for again in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        np.testing.assert_array_equal(again(x=arrays["x"]).y, y)
    for whole in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        np.testing.assert_allclose(whole(**arrays).y, y, rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_parameters_called_like_options(target: str) -> None:
    p = pl.compile(OPS + "pipeline @p(%x: tensor<NxKxf32>, param %out: tensor<KxMxf32>, param %arena: tensor<MxMxf32>) -> (%y: tensor<NxMxf32>) {\n"
                   "  %u = @unit(%out)  %h = @lin(%x, %u)  %y = @lin(%h, %arena)\n}\n", target)
    x, w, v = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32), np.eye(3, dtype=np.float32)
    f = p.bind(out=w, arena=v)
    np.testing.assert_allclose(f(x=x).y, np.full((2, 3), 4 / 5), rtol=1e-6)
    given: list[dict[str, Any]] = [{"out": np.zeros((2, 3), np.float32)}, {"arena": v}]
    for more in given:
        with pytest.raises(ExecutionError, match=f"the parameter '%{next(iter(more))}' is bound already"):
            f(x=x, **more)
