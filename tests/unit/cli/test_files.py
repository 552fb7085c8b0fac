"""Arrays in files, against NumPy's and safetensors' own readers and writers."""
from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.runtime import files, safetensors_format

ARRAYS: dict[str, Any] = {
    "b": np.array([True, False]), "u8": np.array([0, 255], np.uint8), "i8": np.array([-128, 127], np.int8), "u16": np.array([0, 65535], np.uint16),
    "i16": np.array([-32768, 32767], np.int16), "i32": np.array([[1, -2]], np.int32), "i64": np.array([1 << 62], np.int64),
    "f16": np.array([1.5, np.inf], np.float16), "f32": np.array([[0.1], [np.nan]], np.float32), "f64": np.array(0.1), "empty": np.zeros((0, 3), np.float32),
}


def test_safetensors_that_the_library_writes(tmp_path: Path) -> None:
    path = tmp_path / "in.safetensors"
    safetensors.numpy.save_file(ARRAYS, path, {"made by": "a test"})
    read = files.read_arrays(str(path))
    assert set(read) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array, strict=True)


def test_safetensors_that_the_library_reads() -> None:
    read = safetensors.numpy.load(safetensors_format.encode(ARRAYS))
    assert set(read) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array, strict=True)


@pytest.mark.parametrize(("dtype", "size", "name"), [("bfloat16", 2, "BF16"), ("float8_e4m3fn", 1, "F8_E4M3"), ("float8_e5m2", 1, "F8_E5M2")])
def test_safetensors_name_narrow_floats(dtype: str, size: int, name: str) -> None:
    array = np.array([1.0, -0.5, 3.0], getattr(ml_dtypes, dtype))
    data = safetensors_format.encode({"x": array})
    assert f'"dtype":"{name}"'.encode() in data
    assert data.endswith(array.tobytes())
    back = safetensors_format.decode(data)["x"]
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    assert len(array.tobytes()) == 3 * size


@pytest.mark.parametrize(("data", "message"), [
    (b"", "shorter"), (b"\xff" * 8, "longer than the file"), (b"\2\0\0\0\0\0\0\0[]", "not an object"),
    (b"\x16\0\0\0\0\0\0\0" + b'{"x":{"dtype":"F128"}}', "not complete"),
    (b"\x3a\0\0\0\0\0\0\0" + b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,5]} }   ' + b"12345", "size"),
])
def test_damaged_safetensors(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(ProgramError, match=message) as caught:
        files.read_arrays(str(path))
    assert caught.value.diagnostics[0].code == "PL9101"


def test_npz_both_ways(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(files.encode_npz({"file": ARRAYS["f32"], "b": ARRAYS["b"]}))
    with np.load(path, allow_pickle=False) as z:
        np.testing.assert_array_equal(z["file"], ARRAYS["f32"], strict=True)
        np.testing.assert_array_equal(z["b"], ARRAYS["b"], strict=True)
    np.savez_compressed(path, **ARRAYS)
    read = files.read_arrays(str(path))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array, strict=True)


def test_equal_arrays_give_equal_files() -> None:
    assert files.encode_npz({"x": ARRAYS["f32"]}) == files.encode_npz({"x": ARRAYS["f32"].copy()})


def test_narrow_floats_are_bit_patterns_in_numpy_files() -> None:
    array = np.array([1.0, -2.0], ml_dtypes.bfloat16)
    with np.load(io.BytesIO(files.encode_npz({"x": array}))) as z:
        np.testing.assert_array_equal(z["x"], np.array([0x3F80, 0xC000], np.uint16), strict=True)
    f8 = np.load(io.BytesIO(files.encode_npy(np.array(1.0, ml_dtypes.float8_e4m3fn))))
    np.testing.assert_array_equal(f8, np.array(0x38, np.uint8), strict=True)


def test_bit_patterns_become_narrow_floats() -> None:
    got = files.from_bits(np.array([0x3F80, 0xC000], np.uint16), DTYPES["bf16"])
    assert got.dtype == ml_dtypes.bfloat16
    assert got.tolist() == [1.0, -2.0]
    saved = io.BytesIO()
    np.save(saved, np.array([1.0], ml_dtypes.bfloat16))       # NumPy writes `|V2`
    assert files.from_bits(np.load(io.BytesIO(saved.getvalue())), DTYPES["bf16"]).tolist() == [1.0]
    assert files.from_bits(np.array([1], np.uint8), DTYPES["bf16"]).dtype == np.uint8      # not the size: refused later
    assert files.from_bits(np.array([1], np.uint16), DTYPES["u16"]).dtype == np.uint16


def test_a_file_s_own_order_of_bytes_and_axes_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    want = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(path, np.asfortranarray(want.astype(">f4")))
    got = files.read_array(str(path))
    assert got.dtype == np.float32
    assert got.dtype.isnative
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\3\4 damaged"])
def test_damaged_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(ProgramError, match=r"is not a \.npz file"):
        files.read_arrays(str(path))


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.array([{"a": 1}], object))
    with pytest.raises(ProgramError, match=r"can be read: .*pickle"):
        files.read_arrays(str(path))
    np.save(tmp_path / "x.npy", np.array([None], object), allow_pickle=True)
    with pytest.raises(ProgramError, match="pickle"):
        files.read_array(str(tmp_path / "x.npy"))


def test_an_entry_that_is_no_array(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("readme.txt", "hello")
    with pytest.raises(ProgramError, match=r"'readme\.txt' is not an array"):
        files.read_arrays(str(path))


@pytest.mark.parametrize("path", ["x.txt", "x", "x.png", "x.npy"])
def test_what_is_no_file_of_arrays(path: str) -> None:
    with pytest.raises(ProgramError, match="no file of arrays by name"):
        files.read_arrays(path)


def test_a_deflated_entry_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.arange(1000.0))
    content = bytearray(path.read_bytes())
    content[60:90] = b"\xff" * 30
    path.write_bytes(content)
    with pytest.raises(ProgramError, match=r"is not a \.npz file that can be read"):
        files.read_arrays(str(path))


@pytest.mark.parametrize("header", [b"(" * 100, b"{'descr': '<f4', 'fortran_order': False, 'shape': (True, True)}", b"{'descr': [", b"\x00"])
def test_a_header_of_npy_that_is_none(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.npy"
    header = header.ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 16)
    with pytest.raises(ProgramError, match=r"is not a \.npy file that can be read"):
        files.read_array(str(path))


def test_a_dtype_in_safetensors_that_is_no_word(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    header = b'{"x": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    with pytest.raises(ProgramError, match=r"'x' has the dtype \['F32'\]"):
        files.read_arrays(str(path))
