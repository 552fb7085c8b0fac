"""Arrays in files: `.npz`, `.npy`, `.safetensors` (images are in `images.py`), and what NumPy cannot say.

NumPy files have no bf16 and f8: they hold bit patterns (u16, u8) there, in both directions; `.safetensors` names them. In memory they are ml_dtypes arrays.
"""
from __future__ import annotations

import io
import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.dtypes import DType, from_numpy
from pipelink_ir.runtime import safetensors_format
from pipelink_ir.runtime.output import STDOUT_PATHS
from pipelink_ir.runtime.sources import STDIN_PATHS, file_error, read_bytes, shown_path

if TYPE_CHECKING:
    import numpy as np
    Array = np.ndarray[Any, Any]

IMAGES = (".png", ".jpg", ".jpeg")
"""Extensions that `images.py` reads and writes."""

MANY = (".npz", ".safetensors")
"""Extensions of files that hold several arrays by name."""


def extension(path: str) -> str:
    """The kind of a file; standard input and output are streams of `.npz`."""
    return ".npz" if path in STDIN_PATHS or path in STDOUT_PATHS else os.path.splitext(path)[1].lower()


def read_arrays(path: str) -> dict[str, Array]:
    """Every array of a `.npz` or `.safetensors` file by name; `-` is `.npz` on standard input."""
    kind = extension(path)
    if kind not in MANY:
        one = f"'--in NAME={path}' gives it to one input" if kind in (*IMAGES, ".npy") else "give .npz, .safetensors, or '-' for .npz on standard input"
        raise file_error(path, f"'{kind or path}' is no file of arrays by name", one)
    data = read_bytes(path)
    try:
        return safetensors_format.decode(data) if kind == ".safetensors" else _read_npz(data)
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, NotImplementedError, OSError) as error:
        raise file_error(shown_path(path), f"is not a {kind} file that can be read: {_one_line(error)}") from None


def read_array(path: str) -> Array:
    """The array of a `.npy` file."""
    data = read_bytes(path)
    try:
        return _read_npy(io.BytesIO(data))
    except (ValueError, EOFError, OSError) as error:
        raise file_error(path, f"is not a .npy file that can be read: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _read_npz(data: bytes) -> dict[str, Array]:
    # Not np.load: an array may be called `file`, and an entry that is not an array is to be named.
    out: dict[str, Array] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for name in file.namelist():
            if not name.endswith(".npy"):
                raise ValueError(f"its entry {name!r} is not an array")
            out[name[:-4]] = _read_npy(io.BytesIO(file.read(name)))
    return out


def _read_npy(file: io.BytesIO) -> Array:
    import numpy as np
    try:
        array = np.lib.format.read_array(file, allow_pickle=False)
    except (TypeError, SyntaxError, tokenize.TokenError) as error:  # what NumPy lets through of a header that is no header
        raise ValueError(f"its header is not NumPy's: {error}") from None
    except MemoryError as error:
        raise ValueError(f"the array that its header tells of is larger than the memory: {error}") from None
    # The byte order and the axis order of the file are its own affair: what is handed on is what a program sees.
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def from_bits(array: Array, dtype: DType) -> Array:
    """An array as it was read, seen as `dtype` where NumPy files can only hold its bits; anything else is handed on as it is."""
    if not dtype.foreign or array.dtype == dtype.numpy():
        return array
    bits = from_numpy(array.dtype)
    # Saved by NumPy itself, ml_dtypes arrays come back as raw bytes (`|V2`).
    if array.dtype.itemsize == dtype.bytes and (array.dtype.kind == "V" or (bits is not None and bits.name in ("u8", "u16"))):
        return array.view(dtype.numpy())
    return array


def to_bits(array: Array) -> Array:
    """What a NumPy file can hold: bit patterns for bf16 and f8."""
    import numpy as np
    dtype = from_numpy(array.dtype)
    if dtype is not None and dtype.foreign:
        return array.view(np.uint16 if dtype.bytes == 2 else np.uint8)
    return array


def encode_npy(array: Array) -> bytes:
    """The content of a `.npy` file."""
    import numpy as np
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(to_bits(array), order="C"), allow_pickle=False)
    return out.getvalue()


def encode_npz(arrays: Mapping[str, Array]) -> bytes:
    """The content of a `.npz` file. Equal arrays give equal bytes: the time in the archive is fixed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        for name, array in arrays.items():
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), encode_npy(array))
    return out.getvalue()


def encode_many(path: str, arrays: Mapping[str, Array]) -> bytes:
    """The content of a `.npz` or `.safetensors` file, as the name says; `-` is `.npz`."""
    return safetensors_format.encode(arrays) if extension(path) == ".safetensors" else encode_npz(arrays)


def check_many(path: str) -> None:
    """Refuse a name under which arrays by name cannot be written."""
    kind = extension(path)
    if kind not in MANY:
        one = f"'--out NAME={path}' writes one result" if kind in (*IMAGES, ".npy") else "give .npz, .safetensors, or '-' for .npz on standard output"
        raise file_error(path, f"'{kind or path}' is no file of arrays by name", one)
