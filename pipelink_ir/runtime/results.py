"""What a call returns: its results, by name and in order."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Results:
    """The results of a call, by name and in the order of the signature.

    `out["edges"]`, `out.edges`, `out[0]`; `edges, mask = pipeline(…)` unpacks; `dict(out)` and `**out` work. A single result can be given to NumPy as it is."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str | int) -> Any:
        if isinstance(name, int):
            return list(self._arrays.values())[name]
        if name not in self._arrays:
            raise KeyError(f"there is no result {name!r}; there are {', '.join(self._arrays)}")
        return self._arrays[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._arrays:
            raise AttributeError(f"there is no result {name!r}")
        return self._arrays[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrays.values())

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def keys(self) -> Any:
        return self._arrays.keys()

    def values(self) -> Any:
        return self._arrays.values()

    def items(self) -> Any:
        return self._arrays.items()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np
        if len(self) != 1:
            raise TypeError(f"there are {len(self)} results, not one: {', '.join(self._arrays)}")
        array = np.asarray(self[0])  # memory of a GPU says what to do instead
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{array.dtype} as {np.dtype(dtype)} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        return "Results(" + ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.items()) + ")"
