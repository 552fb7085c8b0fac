"""The `.safetensors` format, read and written here: its library cannot give NumPy arrays of bf16 and f8 in all versions that we admit.

Eight bytes little-endian: the length of a JSON header; the header, `{"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}`;
then the data, row-major, little-endian. (https://huggingface.co/docs/safetensors, "Format".)
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipelink_ir.ir.dtypes import DTYPES, from_numpy

NAMES = {"BOOL": "bool", "U8": "u8", "I8": "i8", "U16": "u16", "I16": "i16", "I32": "i32", "I64": "i64",
         "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64"}
"""Our dtypes by the format's names."""

_LARGEST_HEADER = 100_000_000


def decode(data: bytes) -> dict[str, Any]:
    """Every tensor by name, as NumPy arrays of their own; bf16 and f8 are ml_dtypes arrays. `ValueError` says what is wrong."""
    import numpy as np
    if len(data) < 8:
        raise ValueError("shorter than its header")
    length = int.from_bytes(data[:8], "little")
    if length > min(len(data) - 8, _LARGEST_HEADER):
        raise ValueError("its header is longer than the file")
    header = json.loads(data[8:8 + length].decode("utf-8"))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, begin, end = _entry(name, entry)
        kind = DTYPES[NAMES[dtype]].numpy().newbyteorder("<")
        size = kind.itemsize
        for n in shape:
            size *= n
        if not 0 <= begin <= end <= len(data) - 8 - length or end - begin != size:
            raise ValueError(f"the data of {name!r} does not have the size that its shape says")
        flat = np.frombuffer(data, kind, (end - begin) // kind.itemsize, 8 + length + begin)
        out[name] = flat.reshape(shape).astype(kind.newbyteorder("="))
    return out


def _entry(name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    def whole(values: Any) -> bool:
        return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)
    if not isinstance(entry, dict) or not whole(entry.get("shape")) or not whole(entry.get("data_offsets")) or len(entry["data_offsets"]) != 2:
        raise ValueError(f"the entry of {name!r} is not complete")
    if not isinstance(entry.get("dtype"), str) or entry["dtype"] not in NAMES:
        raise ValueError(f"{name!r} has the dtype {entry.get('dtype')!r}, which PLIR does not have")
    return entry["dtype"], tuple(entry["shape"]), entry["data_offsets"][0], entry["data_offsets"][1]


def encode(arrays: Mapping[str, Any]) -> bytes:
    """A file of these arrays."""
    import numpy as np
    names = {ours: theirs for theirs, ours in NAMES.items()}
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        part = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        header[name] = {"dtype": names[dtype.name], "shape": list(array.shape), "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the data begins on eight bytes
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
