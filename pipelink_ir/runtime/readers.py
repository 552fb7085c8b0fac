"""Any array object to a `TensorView`: NumPy, PyTorch, what has DLPack or the array interface, lists of numbers. No library is imported for it.

This is the thorough way, for the first call and for messages; `bind.py` has the fast one.
"""
from __future__ import annotations

import sys
from typing import Any

from pipelink_ir.ir.dtypes import from_numpy
from pipelink_ir.runtime import dlpack
from pipelink_ir.runtime import strides as arithmetic
from pipelink_ir.runtime.forms import address_of, describe, dtype_of
from pipelink_ir.runtime.origin import here
from pipelink_ir.runtime.tensor import TensorView


class Unreadable(Exception):
    """An object that is no array here: which contract it breaks (`input` if none), what it is, and what to do. `got` is short."""

    def __init__(self, field: str, message: str, help: str, got: str) -> None:
        super().__init__(message)
        self.field, self.message, self.help, self.got = field, message, help, got


def as_view(array: Any, layout: str | None = None) -> TensorView:
    """The memory of any array: NumPy, PyTorch, JAX, CuPy, whatever has DLPack or the array interface. `layout` names its axes. The line that calls this is
    the one that errors name.

    Raises `ValueError` for what is no array, or has elements that PLIR has no dtype for."""
    return stamped(array, read, layout)


def stamped(array: Any, how: Any, layout: str | None) -> TensorView:
    """What a reader finds, with the line of the user's that asks for it."""
    try:
        found: TensorView = how(array)
    except Unreadable as fault:
        raise ValueError(f"{fault.message}; {fault.help}") from None
    return TensorView(found.address, found.shape, found.dtype, found.byte_strides, found.device, layout or found.layout, found.owner, found.readonly, here(),
                      found.mirrors, found.needs)


def read(array: Any) -> TensorView:
    """The view of any array. Raises `Unreadable`."""
    import numpy as np
    if isinstance(array, TensorView):
        return _again(array)
    if isinstance(array, np.ndarray):
        return _numpy(array)
    if is_torch(array):
        return read_torch(array)
    try:
        if hasattr(array, "__dlpack__") and not isinstance(array, np.generic):
            return _dlpack(array)
        return _numpy(np.asarray(array))
    except Unreadable:
        raise
    except Exception as error:  # whatever a foreign array raises, it is not one that we can read
        kind, text = type(array).__name__, " ".join(str(error).split()) or type(error).__name__
        raise Unreadable("input", f"a {kind} is no array here: {text}", "give a NumPy array, or one in the memory of the CPU that DLPack can hand over",
                         kind) from None


def _again(view: TensorView) -> TensorView:
    """A view, unless the array that it was made of has moved or shrunk since."""
    if view.mirrors is None:
        return view
    now = read(view.mirrors)
    if (now.address, now.shape, now.byte_strides, now.dtype) != (view.address, view.shape, view.byte_strides, view.dtype):
        raise Unreadable("shape", "the array that the view was made of has moved or has another form by now", "make the view anew after the array was changed",
                         describe(now.dtype, now.shape))
    return view


def is_torch(array: Any) -> bool:
    """Whether this is a tensor of PyTorch itself; subclasses may have no memory of their own, and are asked through DLPack."""
    torch = sys.modules.get("torch")
    return torch is not None and type(array) in (torch.Tensor, torch.nn.Parameter)


def _numpy(array: Any) -> TensorView:
    import numpy as np
    if isinstance(array, np.ma.MaskedArray):
        raise Unreadable("input", "the array is masked, and what is masked would be read as if it were not",
                         "give it with '.filled(value)', and the mask as an array of its own", "a masked array")
    dtype = from_numpy(array.dtype) if array.dtype.isnative else None
    if dtype is None:
        said = f"{array.dtype}{list(array.shape)}"
        raise Unreadable("dtype", f"the array is {said}, whose elements PLIR does not have", "convert it with '.astype(…)'", said)
    return TensorView(address_of(array), array.shape, dtype, array.strides, owner=array, readonly=not array.flags.writeable, mirrors=array)


def read_torch(t: Any) -> TensorView:
    """The memory of a `torch.Tensor`. Raises `Unreadable` where it holds other values than the tensor (lazily negated), too few, or none."""
    said = f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"
    if str(t.layout) != "torch.strided":
        kind = str(t.layout).removeprefix("torch.")
        raise Unreadable("contiguity", f"the tensor is {kind}, which has no elements at strides", "give it with '.to_dense()'", f"{kind} {said}")
    if t.requires_grad:
        raise Unreadable("input", "the tensor requires a gradient, which would be lost", "give it with '.detach()'", f"{said} with requires_grad")
    if t.is_conj() or t.is_neg():
        raise Unreadable("input", "the tensor is negated or conjugated lazily: its memory holds other values",
                         "give it with '.resolve_conj().resolve_neg()'", said)
    if t.device.type == "meta":
        raise Unreadable("device", "the tensor is on the device 'meta': it has no values", "give a tensor with values", f"{said} on meta")
    try:
        dtype = dtype_of(t.dtype)
    except ValueError:
        raise Unreadable("dtype", f"the tensor is {said}, whose elements PLIR does not have", "convert it with '.to(…)'", said) from None
    steps, shape = tuple(s * dtype.bytes for s in t.stride()), tuple(t.shape)
    held, needs = t.untyped_storage().nbytes(), t.storage_offset() * dtype.bytes + arithmetic.extent(shape, steps, dtype.bytes)[1]
    if 0 not in shape and held < needs:
        raise Unreadable("shape", f"the tensor {said} needs {needs} bytes, but its storage was resized to {held}",
                         "give the storage its size back before the call", f"a storage of {held} bytes")
    device = "cpu" if t.device.type == "cpu" else f"{t.device.type}:{t.device.index or 0}"
    return TensorView(t.data_ptr(), shape, dtype, steps, device, owner=t, mirrors=t, needs=0 if 0 in shape else needs)


def _dlpack(array: Any) -> TensorView:
    try:
        taken = dlpack.take(array)
    except dlpack.DLPackError as fault:
        raise Unreadable("dtype", f"a {type(array).__name__} cannot be taken: {fault}", "convert it first", str(fault)) from None
    size = taken.dtype.bytes
    steps = tuple(s * size for s in taken.strides)
    # The old form cannot say that memory is read-only, so nothing is written through it.
    return TensorView(taken.address, taken.shape, taken.dtype, steps, dlpack.device_name(taken.device), owner=taken, readonly=taken.readonly is not False)
