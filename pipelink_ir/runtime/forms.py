"""Names of dtypes as other libraries write them, and how messages describe an array."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.dtypes import DTYPES, DType, from_numpy

if TYPE_CHECKING:
    import numpy as np


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Where the first element of a NumPy array lies."""
    return int(array.__array_interface__["data"][0])


def describe(dtype: DType | str, shape: Sequence[int]) -> str:
    """`f32[1, 480, 640, 3]`."""
    return f"{dtype}{list(shape)}"


def dtype_of(name: Any) -> DType:
    """A dtype from its PLIR name, a NumPy dtype or type, or a dtype of PyTorch. `ValueError` lists what there is."""
    if isinstance(name, DType):
        return name
    if isinstance(name, str) and name in DTYPES:
        return DTYPES[name]
    found = from_numpy(name) if hasattr(name, "name") else None
    if found is None:
        text = str(name).removeprefix("torch.")
        found = next((d for d in DTYPES.values() if text in _OTHER_NAMES.get(d.name, ())), None)
    if found is None and isinstance(name, type | str):
        import numpy as np
        try:
            found = from_numpy(np.dtype(name))
        except TypeError:
            found = None
    if found is None:
        raise ValueError(f"{name!r} is no dtype of PLIR; there are {', '.join(DTYPES)}")
    return found


_OTHER_NAMES = {
    "bool": ("bool",), "u8": ("uint8",), "i8": ("int8",), "u16": ("uint16",), "i16": ("int16",), "i32": ("int32",), "i64": ("int64",), "f16": ("float16",),
    "bf16": ("bfloat16",), "f32": ("float32",), "f64": ("float64",), "f8e4m3": ("float8_e4m3fn",), "f8e5m2": ("float8_e5m2",),
}
"""How other libraries call the dtypes."""
