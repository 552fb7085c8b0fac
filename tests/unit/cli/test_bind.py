"""Arrays against signatures, through the Python interface."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir
from pipelink_ir import ExecutionError, ProgramError, UsageError
from tests.unit.cli.command import SCALE

Compiled = pipelink_ir.Compiled

ADD = """\
op @add(%a: tensor<HxWxf32>, %b: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  compute { %y[h, w] = %a[h, w] + %b[h, w] }
}

pipeline @main(%image: tensor<HxWxf32>, %bias: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) {
  where W mod 2 == 0
  %y = @add(%image, %bias)
}
"""


def f32(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.fixture(scope="module")
def add() -> Compiled:
    return pipelink_ir.compile(ADD, target="reference")


def refused(compiled: Compiled, **arrays: Any) -> list[Any]:
    with pytest.raises(ExecutionError) as caught:
        compiled(**arrays)
    assert all(d.code == "PL6001" for d in caught.value.diagnostics)
    return list(caught.value.diagnostics)


def test_arrays_that_fit(add: Compiled) -> None:
    np.testing.assert_array_equal(add(image=f32(2, 4), bias=f32(2, 4)).y, 2 * f32(2, 4), strict=True)


def test_missing_inputs_name_everything(add: Compiled) -> None:
    one = refused(add, image=f32(2, 4))
    assert len(one) == 1
    assert "'%bias' is missing" in one[0].message
    assert "%image: tensor<HxWxf32>, %bias: tensor<HxWxf32>" in one[0].message
    assert "given: image: f32[2, 4]" in one[0].message
    assert (one[0].span.line, one[0].span.column) == (5, 41)
    assert len(refused(add)) == 2


def test_unknown_names(add: Compiled) -> None:
    found = refused(add, imge=f32(2, 4), bias=f32(2, 4))
    assert len(found) == 1
    assert found[0].help == "did you mean '%image'?"
    assert "leave 'extra' out" in refused(add, image=f32(2, 4), bias=f32(2, 4), extra=f32(1))[0].help


@pytest.mark.parametrize(("array", "said"), [
    (np.zeros((2, 4)), "f64[2, 4]"), (np.zeros((2, 4), np.uint8), "u8[2, 4]"), (np.zeros((2, 4), ">f4"), ">f4[2, 4]"),
    (np.zeros((2, 4), complex), "complex128[2, 4]"),
    (np.zeros((2, 4), np.uint32), "uint32[2, 4]"), ([[1.0, 2.0]], "f64[1, 2]"), (np.array([["a"]]), "<U1[1, 1]"),
])
def test_dtypes_are_not_converted(add: Compiled, array: Any, said: str) -> None:
    found = refused(add, image=array, bias=f32(2, 4))
    assert len(found) == 1
    assert f"the array is {said}" in found[0].message
    assert (found[0].span.line, found[0].span.column) == (5, 16)
    assert ".astype(numpy.float32)" in found[0].help


def test_several_mismatches_are_told_together(add: Compiled) -> None:
    found = refused(add, image=f32(2), bias=np.zeros((2, 4)))
    assert ["2 dimensions, but the array f32[2] has 1" in d.message for d in found] == [True, False]


def test_the_python_line_is_named(add: Compiled) -> None:
    note = refused(add, image=f32(2), bias=f32(2, 4))[0].notes[-1]
    assert note.span.source.path == __file__
    assert note.span.line == refused.__code__.co_firstlineno + 2


def test_sizes_that_disagree(add: Compiled) -> None:
    found = refused(add, image=f32(2, 4), bias=f32(2, 6))[0]
    assert "axis 1 is 6, but W is 4" in found.message
    assert found.span.column == 41
    assert found.notes[0].message == "W comes from '%image', whose array has the shape [2, 4]"
    assert found.notes[0].span.column == 16


def test_conditions_are_checked(add: Compiled) -> None:
    found = refused(add, image=f32(2, 3), bias=f32(2, 3))[0]
    assert "'W mod 2 == 0' does not hold for H = 2, W = 3" in found.message
    assert (found.span.line, found.span.column) == (6, 9)


def test_sizes_zero_and_one(add: Compiled) -> None:
    assert add(image=f32(0, 4), bias=f32(0, 4)).y.shape == (0, 4)
    assert add(image=f32(1, 0), bias=f32(1, 0)).y.shape == (1, 0)
    assert "axis 0 is 1" in refused(add, image=f32(2, 4), bias=f32(1, 4))[0].message      # nothing is broadcast


@pytest.mark.parametrize("view", [
    f32(4, 2).T, f32(2, 8)[:, ::2], f32(2, 4)[::-1], f32(2, 4)[:, ::-1], np.broadcast_to(f32(1, 4), (2, 4)), f32(3, 4)[1:], np.asfortranarray(f32(2, 4)),
])
def test_views_are_read_as_they_are(add: Compiled, view: Any) -> None:
    before = view.copy()
    np.testing.assert_array_equal(add(image=view, bias=np.zeros((2, 4), np.float32)).y, before, strict=True)
    np.testing.assert_array_equal(view, before)
    notes = add.check({"image": view, "bias": f32(2, 4)}).notes
    assert len(notes) == (not view.flags.c_contiguous)


def test_contiguity_is_asked_for() -> None:
    dense = pipelink_ir.compile(ADD.replace("  compute", "  memory  { %a { contiguity = dense }, %b { contiguity = rows } }\n  compute"), target="reference")
    found = refused(dense, image=f32(4, 2).T, bias=f32(2, 4))[0]
    assert "takes 'dense' memory" in found.message
    assert "strides [4, 8]" in found.message
    assert found.notes[0].span.line == 2
    bound = dense.check({"image": f32(4, 2).T, "bias": f32(2, 4)}, copies="allow")
    np.testing.assert_array_equal(bound.arrays["image"], f32(4, 2).T)
    assert "is copied, 32 bytes" in bound.notes[0]
    pitched = f32(2, 8)[:, :4]
    np.testing.assert_array_equal(dense(image=f32(2, 4), bias=pitched).y, f32(2, 4) + pitched)
    assert "takes 'rows' memory" in refused(dense, image=f32(2, 4), bias=f32(2, 8)[:, ::2])[0].message


def test_narrow_floats_in_memory() -> None:
    double = pipelink_ir.compile(SCALE.replace("xf32>", "xbf16>"), target="reference")
    x = np.array([[1.0, 2.5]], ml_dtypes.bfloat16)
    y = double(x=x).y
    assert y.dtype == ml_dtypes.bfloat16
    assert y.tolist() == [[2.0, 5.0]]
    assert ".view(ml_dtypes.bfloat16)" in refused(double, x=x.view(np.uint16))[0].help


def test_foreign_arrays(add: Compiled) -> None:
    class Foreign:
        """Hands out a NumPy array by DLPack, and nothing else."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **more: Any) -> Any:
            return self.array.__dlpack__(**more)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    np.testing.assert_array_equal(add(image=Foreign(f32(2, 4)), bias=f32(2, 4)).y, 2 * f32(2, 4))

    class Elsewhere(Foreign):
        def __dlpack_device__(self) -> Any:
            return (2, 0)

        def __dlpack__(self, **more: Any) -> Any:
            raise BufferError("on a GPU")

    assert "no array here" in refused(add, image=Elsewhere(f32(2, 4)), bias=f32(2, 4))[0].message


def test_rank_zero() -> None:
    scalar = pipelink_ir.compile("op @f(%x: tensor<f32>) -> (%y: tensor<f32>) {\n  compute { %y = %x + 1 }\n}\n"
                                 "pipeline @main(%x: tensor<f32>) -> (%y: tensor<f32>) {\n  %y = @f(%x)\n}\n", target="reference")
    assert scalar(x=np.float32(2)).y == 3
    assert scalar(x=np.array(2, np.float32)).y.shape == ()
    assert "0 dimensions" in refused(scalar, x=f32(1))[0].message


class TestCompile:
    """`pipelink_ir.compile` and what it returns."""

    def test_results(self) -> None:
        scale = pipelink_ir.compile(SCALE, target="reference")
        out = scale(x=f32(2, 3))
        for got in (out.y, out["y"], out[0], *out, dict(out)["y"], np.asarray(out)):
            np.testing.assert_array_equal(got, 2 * f32(2, 3), strict=True)
        assert list(out.keys()) == ["y"]
        assert len(out) == 1
        assert "y" in out
        assert repr(out) == "Results(y: float32[2, 3])"
        assert out.__array__(np.float64).dtype == np.float64
        assert not np.shares_memory(out.__array__(copy=True), out.y)
        with pytest.raises(ValueError, match="float32 as float64 needs a copy"):
            out.__array__(np.float64, copy=False)
        with pytest.raises(AttributeError, match="'z'"):
            _ = out.z
        with pytest.raises(KeyError, match="there are y"):
            _ = out["z"]

    def test_attributes(self) -> None:
        np.testing.assert_array_equal(pipelink_ir.compile(SCALE, target="reference", by=0.5)(x=f32(2, 3)).y, 0.5 * f32(2, 3))
        np.testing.assert_array_equal(pipelink_ir.compile(SCALE, target="reference", by=np.float32(3))(x=f32(2, 3)).y, 3 * f32(2, 3))
        with pytest.raises(UsageError, match="did you mean 'by'"):
            pipelink_ir.compile(SCALE, target="reference", bye=1)

    def test_float64(self) -> None:
        program = SCALE.replace("by * %x[n, k]", "(%x[n, k] + 1e-9) - %x[n, k]")
        ones = np.ones((1, 2), np.float32)
        np.testing.assert_allclose(pipelink_ir.compile(program, target="reference", float64=True)(x=ones).y, 1e-9, rtol=1e-6)
        np.testing.assert_array_equal(pipelink_ir.compile(program, target="reference")(x=ones).y, 0)
        with pytest.raises(UsageError, match="reference"):
            pipelink_ir.compile(SCALE, float64=True)

    def test_files_and_texts(self, tmp_path: Any) -> None:
        path = tmp_path / "scale.plir"
        path.write_text(SCALE)
        for program in (path, str(path)):
            assert pipelink_ir.compile(program, target="reference").pipeline.name == "main"
        with pytest.raises(ProgramError, match=r"missing\.plir:.*PL9101"):
            pipelink_ir.compile(tmp_path / "missing.plir")
        with pytest.raises(ProgramError, match="<text>:"):
            pipelink_ir.compile("op @f(\n")

    def test_artifacts(self) -> None:
        reference = pipelink_ir.compile(SCALE, target="reference")
        assert "pipeline @main" in reference.as_text("plir")
        assert reference.asm["plir"] == reference.artifacts["plir"]
        with pytest.raises(KeyError, match="there is no artifact 'ptx'; there are plir"):
            reference.as_text("ptx")

    def test_targets(self) -> None:
        with pytest.raises(UsageError, match=r"no device 'cuda:99'|NVIDIA driver|no GPU|CuPy"):
            pipelink_ir.compile(SCALE, target="cuda:99")
        with pytest.raises(UsageError, match="there is no target 'gpu'"):
            pipelink_ir.compile(SCALE, target="gpu")

    def test_pipelines(self) -> None:
        two = SCALE + "pipeline @other" + SCALE.split("pipeline @main")[1]
        assert pipelink_ir.compile(two, "reference", "@other").pipeline.name == "other"
        with pytest.raises(UsageError, match="several pipelines"):
            pipelink_ir.compile(two, "reference")
        with pytest.raises(UsageError, match="no pipeline"):
            pipelink_ir.compile(SCALE.split("pipeline")[0], "reference")

    def test_warnings_are_kept(self) -> None:
        program = SCALE.replace("pipeline @main(", "pipeline @main(%unused: tensor<Mxf32>, ")
        assert [d.severity for d in pipelink_ir.compile(program, "reference").diagnostics] == ["warning"]

    def test_a_parameter_may_be_called_self(self) -> None:
        compiled = pipelink_ir.compile(SCALE.replace("%x", "%self"), "reference")
        np.testing.assert_array_equal(compiled(self=f32(1, 2)).y, 2 * f32(1, 2))

    @pytest.mark.parametrize("target", ["cpu", "reference"])
    def test_calls_leave_the_caller_s_arrays_alone(self, target: str) -> None:
        scale = pipelink_ir.compile(SCALE, target)
        x = f32(2, 3)
        first = scale(x=x).y
        second = scale(x=x + 1).y
        np.testing.assert_array_equal(x, f32(2, 3))
        np.testing.assert_array_equal(first, 2 * f32(2, 3))
        np.testing.assert_array_equal(second, 2 * f32(2, 3) + 2)
