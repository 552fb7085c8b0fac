"""DLPack both ways. Producers that no library on this machine is are written here by hand, from the header of the protocol."""
from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.runtime import dlpack
from tests.unit.runtime.programs import TWICE, twice

_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    """`DLManagedTensor` of the header, flat; with `versioned` fields before it."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


class Old(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class New(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64),
                ("tensor", Tensor)]


class Producer:
    """An array of a library from elsewhere. `deleted` counts how often its memory was given back."""

    def __init__(self, base: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0, code: int = 2, bits: int = 32, lanes: int = 1,
                 device: tuple[int, int] = (1, 0), versioned: bool = False, flags: int = 0, major: int = 1) -> None:
        self.base, self.device, self.versioned, self.deleted = base, device, versioned, 0
        self.shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self.strides = (ctypes.c_int64 * max(1, len(shape)))(*strides) if strides is not None else None
        self.deleter = _DELETER(self._delete)
        self.managed: Any = New(major=major) if versioned else Old()
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p).value
        if versioned:
            self.managed.flags = flags
        self.managed.tensor = Tensor(base.ctypes.data, *device, len(shape), code, bits, lanes, ctypes.addressof(self.shape) if shape else None,
                                     ctypes.addressof(self.strides) if self.strides is not None else None, offset)

    def _delete(self, place: int) -> None:
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def capsule(self) -> Any:
        return _new(ctypes.addressof(self.managed), b"dltensor_versioned" if self.versioned else b"dltensor", None)

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.capsule()


BASE = np.arange(24, dtype=np.float32)


@pytest.mark.parametrize(("producer", "expected"), [
    (Producer(BASE, (2, 3)), BASE[:6].reshape(2, 3)),                                       # null strides are compact
    (Producer(BASE, (2, 3), (1, 2)), BASE[:6].reshape(3, 2).T),
    (Producer(BASE, (2, 3), (12, 1), offset=16), BASE.reshape(2, 12)[:, 4:7]),              # byte_offset counts bytes, strides elements
    (Producer(BASE, (3,), (-2,), offset=40), BASE[[10, 8, 6]]),
    (Producer(BASE, (2, 3), (0, 1)), np.broadcast_to(BASE[:3], (2, 3))),
    (Producer(BASE, (1, 3), (99999, 1)), BASE[:3].reshape(1, 3)),                           # strides of an axis of size 1 mean nothing
    (Producer(BASE, (0, 3), (-7, 12345)), np.zeros((0, 3), np.float32)),                    # nor any of an array without elements
    (Producer(BASE, ()), BASE[0]),                                                          # ndim 0: shape and strides are null
    (Producer(BASE, (), offset=20), BASE[5]),
    (Producer(BASE.view(np.uint8), (4,), code=1, bits=8), BASE.view(np.uint8)[:4]),
    (Producer(np.array([1, 0, 1], np.uint8), (3,), code=6, bits=8), np.array([True, False, True])),
    (Producer(np.array([1.5, -2], ml_dtypes.bfloat16), (2,), code=4, bits=16), np.array([1.5, -2], ml_dtypes.bfloat16)),
    (Producer(np.array([1.5, -2], ml_dtypes.float8_e4m3fn), (2,), code=10, bits=8), np.array([1.5, -2], ml_dtypes.float8_e4m3fn)),
    (Producer(BASE, (2,), versioned=True), BASE[:2]),
    (Producer(BASE.view(np.int64), (2,), code=0, bits=64, versioned=True), BASE.view(np.int64)[:2]),
])
def test_what_is_read(producer: Producer, expected: Any) -> None:
    view = pl.as_view(producer)
    got = np.asarray(view)
    np.testing.assert_array_equal(got, expected)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    assert got.size == 0 or np.shares_memory(got, producer.base)
    assert producer.deleted == 0
    del view, got
    gc.collect()
    assert producer.deleted == 1


def test_a_capsule_is_taken_once() -> None:
    producer = Producer(BASE, (2,))
    capsule = producer.capsule()
    taken = dlpack.take(capsule)
    with pytest.raises(dlpack.DLPackError, match="taken before"):
        dlpack.take(capsule)
    del taken
    assert producer.deleted == 1
    with pytest.raises(dlpack.DLPackError, match="no DLPack capsule"):
        dlpack.take("a capsule")


@pytest.mark.parametrize(("producer", "message"), [
    (Producer(BASE, (2,), code=5, bits=64), "complex64"), (Producer(BASE, (2,), code=2, bits=32, lanes=4), "float32x4"),
    (Producer(BASE, (2,), code=1, bits=4), "uint4"), (Producer(BASE, (2,), versioned=True, major=2), "version 2"),
])
def test_what_is_refused(producer: Producer, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pl.as_view(producer)
    gc.collect()
    assert producer.deleted == (0 if producer.versioned else 1)     # of a version that is not understood, nothing may be called


def test_read_only_is_said_by_the_new_form_only() -> None:
    assert pl.as_view(Producer(BASE, (2,), versioned=True, flags=1)).readonly
    assert not pl.as_view(Producer(BASE, (2,), versioned=True)).readonly
    assert pl.as_view(Producer(BASE, (2,))).readonly     # it cannot say, so nothing is written there


def test_devices() -> None:
    assert pl.as_view(Producer(BASE, (2,), device=(2, 3))).device == "cuda:3"
    assert pl.as_view(Producer(BASE, (2,), device=(3, 0))).device == "cpu"      # pinned memory
    assert pl.as_view(Producer(BASE, (2,), device=(10, 1))).device == "rocm:1"


def test_a_call_keeps_the_producer_until_it_is_done() -> None:
    compiled = pl.compile(TWICE)
    producer = Producer(BASE, (2, 3), (12, 1), offset=4)
    np.testing.assert_array_equal(compiled(x=producer).y, 2 * BASE.reshape(2, 12)[:, 1:4])
    gc.collect()
    assert producer.deleted == 1


def test_an_array_on_a_gpu_is_refused_with_its_device() -> None:
    with pytest.raises(pl.ContractViolationError, match="on cuda:1") as caught:
        pl.compile(TWICE)(x=Producer(BASE, (2, 3), device=(2, 1)))
    assert (caught.value.field, caught.value.expected, caught.value.got) == ("device", "cpu", "cuda:1")


# ------------------------------------------------------------------------------------------------------------------------ written


@pytest.mark.parametrize("make", [
    lambda: np.arange(6, dtype=np.float32).reshape(2, 3), lambda: np.arange(6, dtype=np.int16).reshape(2, 3).T, lambda: np.arange(6, dtype=np.uint8)[::-2],
    lambda: np.zeros((0, 3), np.float16), lambda: np.array(2.5), lambda: np.array([True, False]), lambda: np.broadcast_to(np.arange(3.0), (2, 3)),
])
def test_numpy_takes_a_view(make: Callable[[], Any]) -> None:
    array = make()
    got = np.from_dlpack(pl.as_view(array))
    np.testing.assert_array_equal(got, array, strict=True)
    assert array.size == 0 or (got.strides == array.strides and np.shares_memory(got, array))


def test_a_view_of_bf16_comes_back_whole() -> None:
    array = np.array([[1.5, 2], [3, -4]], ml_dtypes.bfloat16).T
    back = pl.as_view(_Wrapped(pl.as_view(array)))
    assert (str(back.dtype), back.strides) == ("bf16", (1, 2))
    np.testing.assert_array_equal(np.asarray(back), array)


class _Wrapped:
    """Hands on what another object lends, so that a view is read through the protocol."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __dlpack_device__(self) -> Any:
        return self.of.__dlpack_device__()

    def __dlpack__(self, **more: Any) -> Any:
        return self.of.__dlpack__(**more)


def test_lent_memory_lives_as_long_as_the_consumer() -> None:
    got = np.from_dlpack(pl.as_view(np.arange(1000, dtype=np.int32)))
    gc.collect()
    np.testing.assert_array_equal(got, np.arange(1000))


def test_read_only_memory_is_lent_by_the_new_form_only() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    view = pl.as_view(array)
    assert not np.from_dlpack(view).flags.writeable
    with pytest.raises(BufferError):
        view.__dlpack__()
    copied = np.from_dlpack(_Copying(view))
    np.testing.assert_array_equal(copied, array)
    assert not np.shares_memory(copied, array)


class _Copying(_Wrapped):
    def __dlpack__(self, **more: Any) -> Any:
        return self.of.__dlpack__(copy=True)


def test_what_cannot_be_lent() -> None:
    view = pl.as_view(np.arange(3.0))
    with pytest.raises(BufferError, match="not moved"):
        view.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="no streams"):
        view.__dlpack__(stream=1)
    odd = np.zeros(3, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
    with pytest.raises(ValueError, match="no multiples"):
        pl.as_view(odd).__dlpack__()
    np.testing.assert_array_equal(np.asarray(pl.as_view(odd)), odd)


def test_a_capsule_that_nobody_takes_gives_its_memory_back() -> None:
    import weakref

    class Owner:
        pass
    owner, base = Owner(), np.zeros(4, np.float32)
    gone = weakref.ref(owner)
    view = pl.from_raw_ptr(base.ctypes.data, (4,), "bf16", owner=owner)
    capsule = view.__dlpack__(max_version=(1, 0))
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(view)       # NumPy has no bf16; the capsule dies while the exception is on its way
    del owner, view
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is None


def test_arrays_with_the_array_interface_alone() -> None:
    class Interface:
        __array_interface__ = np.arange(6, dtype=np.float32).reshape(2, 3).__array_interface__
        keep = np.arange(6, dtype=np.float32)

    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    Interface.__array_interface__ = base.__array_interface__
    assert pl.as_view(Interface()).address == base.ctypes.data
    np.testing.assert_array_equal(pl.compile(twice())(x=Interface()).y, 2 * base)
