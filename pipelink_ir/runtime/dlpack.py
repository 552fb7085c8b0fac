"""DLPack, read and written: the structures of its header as ctypes, so that any array of any library comes and goes without a copy and without importing it.

Read: a capsule is taken once (its name is changed), strides that are null are compact, strides count elements and `byte_offset` bytes, and the producer's
memory is kept until the `Taken` is gone. Written: the old form and the one with a version, which alone can say that memory is not to be written.

A capsule that is written is made by NumPy, for memory seen as unsigned integers, and then corrected: its structure gets the element type and device that
NumPy may not know. So what gives the memory back is native code, which may run at any time, in any thread and while an exception is on its way; a
callback in Python may not.
"""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from pipelink_ir.ir.dtypes import DTYPES, DType

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
READ_ONLY = 1
VERSION = (1, 1)

_CODES = {"int": 0, "uint": 1, "float": 2}
_OTHER = {"bool": (6, 8), "bf16": (4, 16), "f8e4m3": (10, 8), "f8e5m2": (12, 8)}
_DEVICES = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "cpu", CUDA_MANAGED: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("version", _Version), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_FORMS: tuple[tuple[bytes, bytes, type[ctypes.Structure]], ...] = (
    (b"dltensor_versioned", b"used_dltensor_versioned", _Versioned), (b"dltensor", b"used_dltensor", _Managed))

_api = ctypes.pythonapi
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))


class DLPackError(ValueError):
    """An array that DLPack hands over, but PLIR cannot take: an element type it does not have, a capsule that was taken before."""


@dataclass(eq=False)
class Taken:
    """What a capsule said: address of the first element, shape, strides in elements, and the rest. The memory is the producer's until this is gone."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: tuple[int, int]
    readonly: bool | None
    """None where the old form was used, which cannot say."""
    _managed: int = 0
    _deleter: int = 0

    def __del__(self) -> None:
        if self._deleter:
            _Deleter(self._deleter)(self._managed)
            self._deleter = 0


def take(source: Any) -> Taken:
    """The memory behind an object with `__dlpack__`, or behind a capsule. Whatever the producer raises is raised."""
    capsule = source
    if hasattr(source, "__dlpack__"):
        try:
            capsule = source.__dlpack__(max_version=VERSION)
        except TypeError:  # a producer from before versions
            capsule = source.__dlpack__()
    for name, used, form in _FORMS:
        if not _valid(capsule, name):
            continue
        address = _pointer(capsule, name)
        managed: Any = form.from_address(address)
        if form is _Versioned and managed.version.major > VERSION[0]:
            raise DLPackError(f"it speaks version {managed.version.major} of DLPack; versions up to {VERSION[0]} are understood")
        # Before anything can fail: from here on the memory is ours to give back.
        _rename(capsule, used)
        readonly = bool(managed.flags & READ_ONLY) if form is _Versioned else None
        return _taken(managed.tensor, readonly, address, managed.deleter or 0)
    if any(_valid(capsule, used) for _, used, _ in _FORMS):
        raise DLPackError("the capsule was taken before: it can be taken once")
    raise DLPackError(f"{type(capsule).__name__} is no DLPack capsule")


def _taken(tensor: Any, readonly: bool | None, managed: int, deleter: int) -> Taken:
    shape = tuple(tensor.shape[:tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.ndim and tensor.strides else compact(shape)
    address = (tensor.data or 0) + (tensor.byte_offset if tensor.data else 0)
    out = Taken(address, shape, strides, DTYPES["u8"], (tensor.device.device_type, tensor.device.device_id), readonly, managed, deleter)
    out.dtype = _read_dtype(tensor.dtype)  # raises, and then `out` gives the memory back
    return out


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    from pipelink_ir.runtime.strides import dense
    return dense(shape, 1)


def _read_dtype(found: Any) -> DType:
    for dtype in DTYPES.values():
        if (found.code, found.bits, found.lanes) == (*_written(dtype), 1):
            return dtype
    kinds = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool"}
    lanes = f"x{found.lanes}" if found.lanes != 1 else ""
    raise DLPackError(f"its elements are {kinds.get(found.code, f'type {found.code} ')}{found.bits}{lanes}, which is no dtype of PLIR")


def _written(dtype: DType) -> tuple[int, int]:
    """Code and bits."""
    if dtype.name in _OTHER:
        return _OTHER[dtype.name]
    return _CODES["float" if dtype.is_float else "int" if dtype.signed else "uint"], dtype.bits


def device_name(device: tuple[int, int]) -> str:
    """`cpu`, `cuda:1`."""
    kind = _DEVICES.get(device[0], f"device type {device[0]}")
    return kind if kind == "cpu" else f"{kind}:{device[1]}"


def device_code(name: str) -> tuple[int, int]:
    """The pair that `__dlpack_device__` gives for `cpu` or `cuda:1`."""
    kind, _, number = name.partition(":")
    return (CUDA, int(number or 0)) if kind == "cuda" else (CPU, 0)


def lend(array: Any, dtype: DType, device: tuple[int, int], max_version: tuple[int, int] | None) -> Any:
    """A capsule for the memory of a NumPy array of unsigned integers, which says that its elements are `dtype` and lie on `device`.

    `BufferError` where the memory is read-only and the consumer does not understand the form that can say so."""
    if max_version is not None and max_version[0] >= 1:
        try:
            capsule = array.__dlpack__(max_version=max_version)
        except TypeError:  # NumPy before 2.1
            capsule = array.__dlpack__()
    else:
        capsule = array.__dlpack__()
    for name, _, form in _FORMS:
        if _valid(capsule, name):
            managed: Any = form.from_address(_pointer(capsule, name))
            code, bits = _written(dtype)
            managed.tensor.dtype = _DType(code, bits, 1)
            managed.tensor.device = _Device(*device)
    return capsule
