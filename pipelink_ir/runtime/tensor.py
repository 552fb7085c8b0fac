"""`TensorView`: memory described, whoever owns it. What kernels see, what contracts are checked against, and what is printed and dumped.

A view is a pointer with shape, strides, dtype, device and, where it was said, a layout. It keeps the owner of the memory alive and remembers the line of
the user's program that made it, so that an error at a call can name the loader instead of the call. Nothing is copied when a view is made.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.runtime import strides as arithmetic
from pipelink_ir.runtime.forms import address_of, describe
from pipelink_ir.runtime.origin import Origin

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

_CARRIER = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8"}


class TensorView:
    """A tensor in memory that somebody owns.

    `address` is where element [0, …, 0] lies, `shape` counts elements, `byte_strides` bytes and `strides` elements; both may be negative or 0. `dtype` is
    a PLIR dtype (`str(view.dtype) == "f32"`), `device` is `cpu` or `cuda:N`, `layout` names the axes (`NHWC`) or is None, `readonly` says that the memory
    must not be written, `owner` is whatever keeps it alive, `mirrors` the array that the view was made of, if any, and `made` the line of Python that made it.

    NumPy, PyTorch, JAX and CuPy take a view as it is (`numpy.asarray(view)`, `torch.from_dlpack(view)`). Views are made by `as_view` (of any array),
    `from_torch`, `from_raw_ptr` and `TensorBuilder`. A view of a torch tensor needs a storage of `needs` bytes.
    """

    __slots__ = ("__weakref__", "address", "byte_strides", "device", "dtype", "layout", "made", "mirrors", "needs", "owner", "readonly", "shape")

    def __init__(self, address: int, shape: Sequence[int], dtype: DType, byte_strides: Sequence[int] | None = None, device: str = "cpu",
                 layout: str | None = None, owner: Any = None, readonly: bool = False, made: Origin | None = None, mirrors: Any = None,
                 needs: int = 0) -> None:
        self.address, self.shape, self.dtype = address, tuple(shape), dtype
        self.byte_strides = arithmetic.dense(self.shape, dtype.bytes) if byte_strides is None else tuple(byte_strides)
        self.device, self.layout, self.owner, self.readonly, self.made, self.mirrors = device, layout, owner, readonly, made, mirrors
        self.needs = needs
        if layout is not None and len(layout) != len(self.shape):
            raise ValueError(f"the layout {layout} names {len(layout)} axes, but the tensor has {len(self.shape)}")

    # ------------------------------------------------------------------------------------------------------------------ properties

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements; `ValueError` where elements do not lie at multiples of their size."""
        size = self.dtype.bytes
        if any(s % size for s in self.byte_strides):
            raise ValueError(f"the strides {list(self.byte_strides)} are bytes that are no multiples of the {size} bytes of {self.dtype}")
        return tuple(s // size for s in self.byte_strides)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, gaps not counted."""
        return self.size * self.dtype.bytes

    @property
    def alignment(self) -> int:
        """The largest power of two that divides the address, 4096 at most."""
        return arithmetic.alignment(self.address)

    @property
    def contiguity(self) -> str:
        """`dense`, `rows` (rows at a pitch) or `any` (strided), as contracts name it."""
        return arithmetic.contiguity(self.shape, self.byte_strides, self.dtype.bytes)

    @property
    def pitch(self) -> int | None:
        """Bytes from one row to the next, None where there are no rows: with less than two axes, and in strided memory."""
        return arithmetic.pitch(self.shape, self.byte_strides, self.dtype.bytes)

    # ------------------------------------------------------------------------------------------------------------------- exchange

    def numpy(self) -> np.ndarray[Any, Any]:
        """The same memory as a NumPy array; bf16 and f8 are those of ml_dtypes. `ValueError` for memory of a GPU."""
        import numpy as np
        if self.device != "cpu":
            raise ValueError(f"the tensor is on {self.device}; NumPy sees the memory of the CPU")
        wanted = self.dtype.numpy()
        array = self._carrier(_CARRIER[self.dtype.bytes] if self.dtype.foreign else wanted.str)
        return array if array.dtype == wanted else np.asarray(array).view(wanted)

    def _carrier(self, typestr: str) -> np.ndarray[Any, Any]:
        """The memory as an array of some other elements of the same size."""
        import numpy as np
        if self.size == 0:
            array = np.empty(self.shape, typestr)
            array.flags.writeable = not self.readonly
            return array
        return np.asarray(_Lent(self, typestr))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"{self.dtype} as {np.dtype(dtype)} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device != "cpu" or self.dtype.foreign or self.size == 0:
            raise AttributeError("__array_interface__")  # `__array__` and DLPack are left
        return _interface(self, self.dtype.numpy().str)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.device.startswith("cuda") or self.dtype.foreign:
            raise AttributeError("__cuda_array_interface__")
        return _interface(self, self.dtype.numpy().str)

    def __dlpack_device__(self) -> tuple[int, int]:
        from pipelink_ir.runtime.dlpack import device_code
        return device_code(self.device)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None,
                   copy: bool | None = None) -> Any:
        """A DLPack capsule, which can be taken once. Read-only memory needs a consumer that understands version 1 of DLPack."""
        from pipelink_ir.runtime.dlpack import lend
        own = self.__dlpack_device__()
        if own[0] == 1 and stream is not None:
            raise ValueError("memory of the CPU has no streams: 'stream' is None")
        if own[0] != 1 and stream == 0:
            raise ValueError("stream 0 is ambiguous: 1 is the legacy default stream, 2 the one of the thread, -1 asks for no wait")
        if dl_device is not None and tuple(dl_device) != own:
            raise BufferError(f"the tensor is on {self.device}, and is not moved")
        _ = self.strides  # DLPack counts elements
        if copy:
            if self.device != "cpu":
                raise BufferError(f"the tensor is on {self.device}, and is not copied")
            array = self.numpy().copy()
            return TensorView(address_of(array), self.shape, self.dtype, owner=array).__dlpack__(max_version=max_version)
        return lend(self._carrier(_CARRIER[self.dtype.bytes]), self.dtype, own, max_version)

    # ----------------------------------------------------------------------------------------------------------------------- texts

    def debug_dump(self, path: str | Path, name: str | None = None) -> None:
        """Write the values to `path.bin` and what describes them to `path.json`. `pipelinkc inspect` prints a dump, or compares two."""
        from pipelink_ir.runtime.dump import write_dump
        write_dump(self, path, name)

    def __repr__(self) -> str:
        layout = f" {self.layout}" if self.layout else ""
        made = f", made at {self.made}" if self.made else ""
        return f"<TensorView {describe(self.dtype, self.shape)}{layout} on {self.device}, {self.contiguity}{made}>"


class _Lent:
    """What NumPy holds on to while it sees the memory of a view."""

    __slots__ = ("__array_interface__", "view")

    def __init__(self, view: TensorView, typestr: str) -> None:
        self.view = view
        self.__array_interface__ = _interface(view, typestr)


def _interface(view: TensorView, typestr: str) -> dict[str, Any]:
    return {"shape": view.shape, "typestr": typestr, "data": (view.address, view.readonly), "strides": view.byte_strides, "version": 3}
