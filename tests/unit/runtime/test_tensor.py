"""Views: what they say of memory, how they are made, what other libraries see of them."""
from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.runtime.forms import dtype_of


def test_a_view_describes_an_array() -> None:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    view = pl.as_view(base.transpose(0, 2, 1)[:, ::-1], layout="NCL")
    assert (view.shape, view.strides, view.byte_strides) == ((2, 4, 3), (12, -1, 4), (48, -4, 16))
    assert (str(view.dtype), view.device, view.layout, view.readonly, view.ndim, view.size, view.nbytes) == ("f32", "cpu", "NCL", False, 3, 24, 96)
    assert view.address == base.ctypes.data + 12
    assert view.contiguity == "any"
    assert view.pitch is None
    np.testing.assert_array_equal(np.asarray(view), base.transpose(0, 2, 1)[:, ::-1])
    assert np.shares_memory(np.asarray(view), base)


def test_a_view_remembers_its_line() -> None:
    view = pl.as_view(np.zeros(3))
    made = view.made
    assert made is not None
    assert made.path == __file__
    assert "pl.as_view(np.zeros(3))" in (made.span().source.line(made.line) or "")
    assert made.line == test_a_view_remembers_its_line.__code__.co_firstlineno + 1
    assert f"{__file__}:{made.line}" in repr(view)


def test_a_view_keeps_the_owner() -> None:
    class Owner:
        pass
    owner = Owner()
    gone = weakref.ref(owner)
    base = np.arange(4, dtype=np.int32)
    view = pl.from_raw_ptr(base.ctypes.data, (4,), "i32", owner=owner)
    array = np.asarray(view)
    del owner, view
    gc.collect()
    assert gone() is not None
    del array
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_to_numpy_and_back(dtype: str) -> None:
    kind = DTYPES[dtype].numpy()
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    view = pl.as_view(array)
    assert str(view.dtype) == dtype
    assert view.numpy().dtype == kind
    np.testing.assert_array_equal(np.asarray(view).astype(float), array.astype(float))
    assert np.shares_memory(view.numpy(), array)
    np.testing.assert_array_equal(np.asarray(view, dtype=np.float64), array.astype(np.float64))


@pytest.mark.parametrize(("name", "dtype"), [
    ("f32", "f32"), (np.float32, "f32"), (np.dtype("uint8"), "u8"), ("float64", "f64"), ("bfloat16", "bf16"), (ml_dtypes.bfloat16, "bf16"), (bool, "bool"),
    ("float8_e4m3fn", "f8e4m3"),
])
def test_dtypes_by_many_names(name: Any, dtype: str) -> None:
    assert dtype_of(name) is DTYPES[dtype]


@pytest.mark.parametrize("name", ["f33", complex, np.uint32, "datetime64", None])
def test_dtypes_that_are_none(name: Any) -> None:
    with pytest.raises(ValueError, match="no dtype of PLIR"):
        dtype_of(name)


class TestRawPointers:
    """`from_raw_ptr`."""

    base = np.arange(64, dtype=np.uint8)

    def test_pitch_of_two_axes(self) -> None:
        view = pl.from_raw_ptr(self.base.ctypes.data, (4, 10), "u8", pitch=16, owner=self.base)
        assert (view.strides, view.contiguity, view.pitch) == ((16, 1), "rows", 16)
        np.testing.assert_array_equal(np.asarray(view), self.base.reshape(4, 16)[:, :10])

    def test_pitch_by_layout(self) -> None:
        hwc = pl.from_raw_ptr(self.base.ctypes.data, (2, 5, 3), "u8", pitch=32, layout="HWC")
        assert hwc.strides == (32, 3, 1)
        np.testing.assert_array_equal(np.asarray(hwc), self.base.reshape(2, 32)[:, :15].reshape(2, 5, 3))
        chw = pl.from_raw_ptr(self.base.ctypes.data, (2, 2, 5), "u8", pitch=16, layout="CHW")
        assert chw.strides == (32, 16, 1)
        np.testing.assert_array_equal(np.asarray(chw), self.base.reshape(2, 2, 16)[:, :, :5])
        assert pl.from_raw_ptr(1024, (2, 2, 3, 4), "f16", pitch=64, layout="NHWC").byte_strides == (128, 64, 8, 2)

    def test_strides_count_elements(self) -> None:
        view = pl.from_raw_ptr(self.base.ctypes.data + 32, (3,), "i16", strides=[-2])
        np.testing.assert_array_equal(np.asarray(view), self.base.view(np.int16)[[16, 14, 12]])

    @pytest.mark.parametrize(("arguments", "message"), [
        ({"ptr": 0, "shape": (1,), "dtype": "f32"}, "the address is null"), ({"ptr": -8, "shape": (1,), "dtype": "f32"}, "an address is a number"),
        ({"ptr": 8.0, "shape": (1,), "dtype": "f32"}, "an address is a number"), ({"ptr": 8, "shape": (-1,), "dtype": "f32"}, "negative size"),
        ({"ptr": 8, "shape": (1,), "dtype": "f99"}, "no dtype of PLIR"), ({"ptr": 8, "shape": (2, 3), "dtype": "f32", "strides": (1,)}, "1 strides for 2 axes"),
        ({"ptr": 8, "shape": (2, 3), "dtype": "f32", "strides": (3, 1), "pitch": 16}, "leave 'pitch' out"),
        ({"ptr": 8, "shape": (2, 3), "dtype": "f32", "pitch": 8}, "too small for rows of 12"), ({"ptr": 8, "shape": (2, 3), "dtype": "f32", "pitch": 14}, "no multiple of"),
        ({"ptr": 8, "shape": (2, 3, 4), "dtype": "u8", "pitch": 64}, "which of the 3 axes counts rows"), ({"ptr": 8, "shape": (1,), "dtype": "f32", "device": "gpu"}, "no device"),
        ({"ptr": 8, "shape": (1,), "dtype": "f32", "device": "cuda:x"}, "no device"), ({"ptr": 8, "shape": (2, 3), "dtype": "f32", "layout": "HWC"}, "names 3 axes"),
    ])
    def test_what_cannot_be(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            pl.from_raw_ptr(**arguments)

    def test_empty_memory_has_no_address(self) -> None:
        assert np.asarray(pl.from_raw_ptr(0, (0, 3), "f32")).shape == (0, 3)

    def test_memory_of_a_gpu_is_described_and_not_touched(self) -> None:
        view = pl.from_raw_ptr(4096, (2, 3), "f16", device="cuda", readonly=True)
        assert view.device == "cuda:0"
        assert view.__dlpack_device__() == (2, 0)
        assert view.__cuda_array_interface__["data"] == (4096, True)
        assert not hasattr(view, "__array_interface__")
        with pytest.raises(ValueError, match="on cuda:0"):
            view.numpy()
        with pytest.raises(ValueError, match="stream 0 is ambiguous"):
            view.__dlpack__(stream=0)
        assert "on cuda:0" in pl.inspect_tensor(view)


class TestBuilder:
    """`TensorBuilder`."""

    @pytest.mark.parametrize("alignment", [1, 2, 64, 256, 4096])
    def test_alignment(self, alignment: int) -> None:
        view = pl.TensorBuilder((3, 5), "f32", alignment=alignment).allocate()
        assert view.address % alignment == 0
        assert view.alignment >= alignment
        assert (view.contiguity, view.readonly) == ("dense", False)
        np.testing.assert_array_equal(np.asarray(view), np.zeros((3, 5), np.float32), strict=True)

    def test_pitch(self) -> None:
        view = pl.TensorBuilder((4, 5, 3), np.uint8, layout="HWC", pitch=64).allocate()
        array = np.asarray(view)
        array[...] = 7
        assert array.strides == (64, 3, 1)
        # The gap belongs to the memory, also behind the last row, and was not written.
        whole = np.asarray(pl.from_raw_ptr(view.address, (4, 64), "u8", owner=view))
        assert whole[:, :15].min() == 7
        assert whole[:, 15:].max() == 0

    def test_each_call_gives_memory_of_its_own(self) -> None:
        builder = pl.TensorBuilder((8,), "i64")
        first, second = builder.allocate(), builder.allocate()
        np.asarray(first)[...] = 1
        assert np.asarray(second).max() == 0

    def test_what_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="power of two"):
            pl.TensorBuilder((1,), "f32", alignment=48).allocate()
        with pytest.raises(pl.ProgramError, match=r"PL9001.*memory of the host, not of 'cuda:0'"):
            pl.TensorBuilder((1,), "f32", device="cuda:0").allocate()

    @pytest.mark.parametrize("shape", [(), (0,), (0, 4), (1, 1)])
    def test_small_shapes(self, shape: tuple[int, ...]) -> None:
        assert np.asarray(pl.TensorBuilder(shape, "bf16").allocate()).shape == shape


class TestInspect:
    """`inspect_tensor`."""

    def test_everything_is_told(self) -> None:
        base = np.zeros((2, 4, 5, 3), np.float32)
        told = pl.inspect_tensor(pl.as_view(base.transpose(0, 3, 1, 2), layout="NCHW"))
        for line in ("f32[2, 3, 4, 5] on cpu, any", "[60, 1, 15, 3] elements, [240, 4, 60, 12] bytes", "f32 (4 bytes)", f"{base.ctypes.data:#x}",
                     "NCHW; in memory, from the outermost: NHWC", "480", "writable   yes", f"made at    {__file__}:"):
            assert line in told

    @pytest.mark.parametrize(("array", "said"), [
        (np.zeros((4, 8), np.uint8)[:, :5], "rows at a pitch of 8 bytes"), (np.zeros(4)[::-1], "axis 0 runs backwards"),
        (np.broadcast_to(np.zeros((1, 3)), (2, 3)), "axis 0 repeats one element (stride 0)"), (np.zeros((2, 3)), "dense (row-major, no gaps)"),
        (np.zeros((0, 3)), "dense"), (np.float32(2), "f32[] on cpu, dense"), ([[1.0, 2.0]], "f64[1, 2]"), (np.broadcast_to(np.zeros(3), (3,)), "writable   no"),
    ])
    def test_contiguity_in_words(self, array: Any, said: str) -> None:
        assert said in pl.inspect_tensor(array)

    def test_alignment_is_that_of_the_pointer(self) -> None:
        base = np.zeros(80, np.uint8)
        start = -base.ctypes.data % 64
        assert "alignment  1 bytes" in pl.inspect_tensor(base[start + 1:])
        assert "alignment  4 bytes" in pl.inspect_tensor(base[start + 4:start + 12].view(np.float32))

    def test_what_is_no_array(self) -> None:
        for thing in ("text", object(), np.zeros(2, complex), {"a": 1}):
            with pytest.raises(ValueError, match=r"PLIR does not have|no array here"):
                pl.inspect_tensor(thing)


def test_exports_are_lazy_and_complete() -> None:
    for name in pl.__all__:
        assert getattr(pl, name) is not None
    assert {"TensorView", "TensorBuilder", "from_torch", "from_raw_ptr", "inspect_tensor", "ContractViolationError"} <= set(dir(pl))
    with pytest.raises(AttributeError, match="no attribute 'from_tensorflow'"):
        _ = pl.from_tensorflow
