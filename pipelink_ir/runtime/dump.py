"""Dumps of tensors: values in one file, what describes them in another; and where two dumps differ.

`path.bin` holds the elements row-major without gaps, little-endian; `path.json` says dtype, shape, and how the tensor lay in memory. Two runs are compared
by values, dtype, shape and layout; pointers and strides are told, not compared.
"""
from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.runtime.forms import describe
from pipelink_ir.runtime.output import write_output
from pipelink_ir.runtime.sources import file_error, read_bytes

if TYPE_CHECKING:
    import numpy as np
    Array = np.ndarray[Any, Any]

FORMAT = "pipelink-dump"


class Viewed(Protocol):
    """What a dump tells of a tensor: the attributes of `TensorView` that it reads."""

    dtype: DType
    shape: tuple[int, ...]
    address: int
    device: str
    layout: str | None
    readonly: bool
    made: Any

    @property
    def contiguity(self) -> str: ...

    @property
    def byte_strides(self) -> tuple[int, ...]: ...

    @property
    def alignment(self) -> int: ...

    @property
    def pitch(self) -> int | None: ...

    def numpy(self) -> Array: ...


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump that was read: where it is, what its JSON says, and the values."""

    path: str
    said: dict[str, Any]
    dtype: DType
    values: Array


def stem(path: str | Path) -> str:
    """The name that both files share: `a`, `a.json` and `a.bin` are one dump."""
    text = os.fspath(path)
    root, end = os.path.splitext(text)
    return root if end in (".json", ".bin") else text


def write_dump(view: Viewed, path: str | Path, name: str | None = None) -> None:
    """Write both files. `UsageError` for memory of a GPU, `ProgramError` (PL9101) where they cannot be written."""
    import numpy as np
    if view.device != "cpu":
        raise UsageError(f"the tensor is on {view.device}: copy it to the CPU to dump it")
    values = np.ascontiguousarray(view.numpy()).reshape(view.shape)
    data = _little(values).tobytes()
    root = stem(path)
    said = {
        "format": FORMAT, "version": 1, "name": name, "dtype": str(view.dtype), "shape": list(view.shape), "layout": view.layout, "device": view.device,
        "contiguity": view.contiguity, "byte_strides": list(view.byte_strides), "pointer": f"{view.address:#x}", "alignment": view.alignment,
        "pitch": view.pitch, "readonly": view.readonly, "made": str(view.made) if view.made else None, "data": os.path.basename(root) + ".bin",
        "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "statistics": _statistics(values),
    }
    write_output(root + ".bin", data)
    write_output(root + ".json", (json.dumps(said, indent=1) + "\n").encode())


def _little(values: Array) -> Array:
    return values if sys.byteorder == "little" or values.dtype.itemsize == 1 else values.byteswap()


def _statistics(values: Array) -> dict[str, Any]:
    """Extremes and mean of what is finite, and how much is not; numbers that JSON can hold."""
    import numpy as np
    if values.size == 0:
        return {}
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    out: dict[str, Any] = {"nan": int(np.isnan(wide).sum()), "inf": int(np.isinf(wide).sum())}
    with np.errstate(all="ignore"):
        return out | ({"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())} if finite.size else {})


def read_dump(path: str) -> Dump:
    """Read both files. `ProgramError` (PL9101) where one is missing or does not fit the other."""
    import numpy as np
    root = stem(path)
    head = root + ".json"
    try:
        said = json.loads(read_bytes(head))
        dtype, shape = DTYPES[said["dtype"]], tuple(map(int, said["shape"]))
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise file_error(head, f"is not a dump of a tensor: {type(error).__name__}: {error}") from None
    data = read_bytes(root + ".bin")
    count = 1
    for n in shape:
        count *= n
    if len(data) != count * dtype.bytes:
        raise file_error(root + ".bin", f"has {len(data)} bytes, but {describe(dtype, shape)} has {count * dtype.bytes}")
    if hashlib.sha256(data).hexdigest() != said.get("sha256"):
        raise file_error(root + ".bin", f"is not the file that '{head}' was written with: its digest is another")
    return Dump(root, said, dtype, _little(np.frombuffer(data, dtype.numpy()).reshape(shape)))


def describe_dump(dump: Dump) -> str:
    """What a dump holds: the form of the tensor, statistics and the first values."""
    said = dump.said
    lines = [f"{dump.path}: {describe(dump.dtype, dump.values.shape)}" + (f" {said['layout']}" if said.get("layout") else "")
             + (f" %{said['name']}" if said.get("name") else "")]
    rows = {key: said.get(key) for key in ("device", "contiguity", "byte_strides", "pointer", "alignment", "pitch", "made", "bytes", "sha256")}
    rows |= said.get("statistics") or {}
    lines += [f"  {key:<12} {value}" for key, value in rows.items() if value is not None]
    flat = dump.values.reshape(-1)[:8]
    more = " …" if dump.values.size > 8 else ""
    return "\n".join([*lines, f"  {'first':<12} " + (" ".join(map(str, flat.tolist())) + more if flat.size else "no elements")])


def compare(a: Dump, b: Dump) -> tuple[bool, str]:
    """Whether two dumps hold the same, and a text: where they differ first, in how many places, and by how much at most. NaN equals NaN, -0 is not 0."""
    import numpy as np
    heads = [f"{what}: {x} and {y}" for what, x, y in (("dtype", a.dtype, b.dtype), ("shape", list(a.values.shape), list(b.values.shape)),
                                                      ("layout", a.said.get("layout"), b.said.get("layout"))) if x != y]
    if a.values.shape != b.values.shape:
        return False, "\n".join(["different", *(f"  {h}" for h in heads)])
    x, y = a.values.reshape(-1), b.values.reshape(-1)
    differ = np.nonzero(~_same(x, y))[0]
    if not differ.size:
        return not heads, "\n".join([f"equal values, {describe(a.dtype, a.values.shape)}", *(f"  {h}" for h in heads)])
    first = int(differ[0])
    place = [int(i) for i in np.unravel_index(first, a.values.shape)]
    lines = [f"different at {place}: {x[first]!s} and {y[first]!s}", *(f"  {h}" for h in heads),
             f"  {differ.size} of {x.size} elements differ ({100 * differ.size / x.size:.3g} %)"]
    return False, "\n".join([*lines, *_amounts(x, y, a.values.shape, a.dtype if a.dtype is b.dtype else None)])


def _same(x: Array, y: Array) -> Array:
    """Equal values, NaN like NaN, and zeros of one sign."""
    import numpy as np
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    if x.dtype.kind in "iub" and y.dtype.kind in "iub":
        return np.asarray(x == y)
    return np.asarray(((wide_x == wide_y) & (np.signbit(wide_x) == np.signbit(wide_y))) | (np.isnan(wide_x) & np.isnan(wide_y)))


def _amounts(x: Array, y: Array, shape: tuple[int, ...], dtype: DType | None) -> list[str]:
    import numpy as np
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(wide_x - wide_y)
        apart[(wide_x == wide_y) | (np.isnan(wide_x) & np.isnan(wide_y))] = 0
        relative = apart / np.maximum(np.abs(wide_x), np.abs(wide_y))
    one_sided = int((np.isnan(wide_x) != np.isnan(wide_y)).sum())
    out = [f"  NaN on one side only: {one_sided}"] if one_sided else []
    for name, amount in (("absolute", apart), ("relative", relative)):
        known = np.where(np.isnan(amount), 0, amount)
        at = int(known.argmax())
        out.append(f"  largest {name} difference {known[at]:.6g} at {[int(i) for i in np.unravel_index(at, shape)]}: {x[at]!s} and {y[at]!s}")
    if dtype is not None and dtype.is_float:
        steps = np.abs(_ordered(x) - _ordered(y))
        steps[np.isnan(wide_x) | np.isnan(wide_y)] = 0
        out.append(f"  largest difference in units of the last place: {int(steps.max())}")
    return out


def _ordered(x: Array) -> Array:
    """Floats as integers in the order of their values: neighbours are one apart. f64 far apart may be off; it says how far only."""
    import numpy as np
    bits = x.view({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]).astype(np.int64)
    lowest = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)
