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
        found = from_numpy(str(name).removeprefix("torch."))
    if found is None and isinstance(name, type | str):
        import numpy as np
        try:
            found = from_numpy(np.dtype(name))
        except TypeError:
            found = None
    if found is None:
        raise ValueError(f"{name!r} is no dtype of PLIR; there are {', '.join(DTYPES)}")
    return found
