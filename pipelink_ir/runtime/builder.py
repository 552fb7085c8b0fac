"""Views made by hand: from a torch tensor, from a pointer that some other program gave, or of fresh memory of a wanted form."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.runtime import strides as arithmetic
from pipelink_ir.runtime.forms import address_of, dtype_of
from pipelink_ir.runtime.origin import here
from pipelink_ir.runtime.readers import is_torch, read_torch, stamped
from pipelink_ir.runtime.tensor import TensorView


def from_torch(tensor: Any, layout: str | None = None) -> TensorView:
    """The memory of a `torch.Tensor`, as it is: views and permutations keep their strides. `layout` names the axes, `"NCHW"`.

    Errors about the tensor name the line that calls this. Raises `ValueError` for a tensor that is sparse, requires a gradient, has no storage, …"""
    if not is_torch(tensor):
        raise TypeError(f"from_torch takes a torch.Tensor, not a {type(tensor).__name__}; 'as_view' takes any array")
    return stamped(tensor, read_torch, layout)


def from_raw_ptr(ptr: int, shape: Sequence[int], dtype: Any, *, strides: Sequence[int] | None = None, pitch: int | None = None, device: str = "cpu",
                 owner: Any = None, layout: str | None = None, readonly: bool = False) -> TensorView:
    """Memory that is known by its address only.

    `ptr` is where element [0, …, 0] lies; `strides` count elements, without them the memory is row-major. `pitch` is instead the number of bytes from one
    row to the next: a row is what one step along H contains (`layout`), or along the first of two axes. `owner` is kept as long as the view; without one
    the caller answers for the memory. Nothing is read until the view is used. Raises `ValueError` for what cannot be."""
    kind, dims, device = dtype_of(dtype), _shape(shape), device_of(device)
    if type(ptr) is not int or ptr < 0:
        raise ValueError(f"an address is a number from 0 on, not {ptr!r}")
    if ptr == 0 and 0 not in dims:
        raise ValueError(f"the address is null, but the tensor {kind}{list(dims)} has elements")
    if strides is not None and pitch is not None:
        raise ValueError("'strides' says it all: leave 'pitch' out")
    if strides is not None and len(strides) != len(dims):
        raise ValueError(f"there are {len(strides)} strides for {len(dims)} axes")
    steps = [int(s) * kind.bytes for s in strides] if strides is not None else pitched(dims, kind, pitch, layout)
    return TensorView(ptr, dims, kind, steps, device, layout, owner, readonly, here())


def pitched(shape: tuple[int, ...], dtype: DType, pitch: int | None, layout: str | None) -> tuple[int, ...]:
    """Byte strides of row-major memory with `pitch` bytes from row to row."""
    packed = arithmetic.dense(shape, dtype.bytes)
    if pitch is None:
        return packed
    if layout is not None and "H" in layout and len(layout) == len(shape):
        axis = layout.index("H")
    elif len(shape) == 2:
        axis = 0
    else:
        raise ValueError(f"which of the {len(shape)} axes counts rows? Give a layout with H ('HWC'), or strides")
    row = packed[axis]
    if pitch < row:
        raise ValueError(f"a pitch of {pitch} bytes is too small for rows of {row}")
    if pitch % dtype.bytes:
        raise ValueError(f"a pitch of {pitch} bytes is no multiple of the {dtype.bytes} bytes of {dtype}")
    return tuple(s // row * pitch if k <= axis else s for k, s in enumerate(packed))


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    dims = tuple(int(n) for n in shape)
    if any(n < 0 for n in dims):
        raise ValueError(f"the shape {list(dims)} has a negative size")
    return dims


def device_of(name: str) -> str:
    """`cpu` or `cuda:N`; `cuda` alone is the first. `ValueError` for anything else."""
    kind, colon, number = name.partition(":")
    if name == "cpu":
        return name
    if kind == "cuda" and (not colon or (number.isascii() and number.isdigit())):
        return f"cuda:{int(number or 0)}"
    raise ValueError(f"there is no device '{name}'; devices are cpu and cuda:N")


@dataclass(frozen=True)
class TensorBuilder:
    """Fresh memory of a wanted form.

        frame = pl.TensorBuilder((1080, 1920, 3), "u8", layout="HWC", alignment=256, pitch=5888).allocate()

    `alignment` is what the address is a multiple of, in bytes, a power of two; `pitch` the bytes from one row to the next, as in `from_raw_ptr`. `allocate` may
    be called often: each call gives memory of its own, zeroed, gaps included."""

    shape: Sequence[int]
    dtype: Any
    layout: str | None = None
    alignment: int = 64
    pitch: int | None = None
    device: str = "cpu"

    def allocate(self) -> TensorView:
        """The memory. Raises `ValueError` for a form that cannot be, and `ProgramError` (PL9001) for a device other than `cpu`."""
        import numpy as np
        dtype, dims = dtype_of(self.dtype), _shape(self.shape)
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise ValueError(f"an alignment is a power of two in bytes, not {self.alignment}")
        if device_of(self.device) != "cpu":
            from pipelink_ir.runtime.targets import unsupported
            raise unsupported(f"a TensorBuilder takes memory of the host, not of '{self.device}'",
                              "allocate there with CuPy or PyTorch, and give the array as it is or by 'pipelink_ir.as_view'")
        steps = pitched(dims, dtype, self.pitch, self.layout)
        # The gap behind the last row belongs to the memory: whoever copies whole rows may read it.
        size = max((n * s for n, s in zip(dims, steps, strict=True)), default=dtype.bytes) if 0 not in dims else 0
        block = np.zeros(size + self.alignment, np.uint8)
        address = -(-address_of(block) // self.alignment) * self.alignment
        return TensorView(address, dims, dtype, steps, self.device, self.layout, block, False, here())
