"""Element types: the table of dtypes and how they compute.

Everything that depends on a dtype reads this table. NumPy and ml_dtypes are imported by the one method that needs them.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `bits` is its size in memory; of a float `digits` is the significand with the implicit bit, `normal` the exponent of the smallest
    normal number, `largest` the largest finite number."""

    name: str
    kind: str
    """`bool`, `int` or `float`."""
    bits: int
    signed: bool = True
    digits: int = 0
    normal: int = 0
    largest: float = 0.0

    @property
    def bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def compute(self) -> DType:
        """The type in which values of this dtype are computed: f16, bf16, f8 in f32, integers up to 16 bits in i32."""
        if self.kind == "float":
            return F64 if self.bits == 64 else F32
        if self.kind == "int":
            return I64 if self.bits == 64 else I32
        return self

    @property
    def lowest(self) -> int:
        """Smallest integer of an integer dtype."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        """Largest integer of an integer dtype."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def smallest(self) -> float:
        """The smallest number above 0 of a float; half of it is rounded to 0."""
        return 2.0 ** (self.normal - self.digits + 1)

    @property
    def unit(self) -> float:
        """What rounding to a float is off by at most, as a part of the value."""
        return 2.0 ** -self.digits

    @property
    def foreign(self) -> bool:
        """Whether NumPy itself does not have it: its arrays are those of ml_dtypes."""
        return self.name in _ML_DTYPES

    @property
    def array_name(self) -> str:
        """What NumPy or ml_dtypes, and PyTorch, call it: `float32`, `bfloat16`."""
        return _NUMPY.get(self.name) or _ML_DTYPES[self.name]

    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bf16 and f8 come from ml_dtypes."""
        import numpy as np
        if self.name in _NUMPY:
            return np.dtype(_NUMPY[self.name])
        import ml_dtypes
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
        return dtype

    def __str__(self) -> str:
        return self.name


_NUMPY = {"bool": "bool", "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "i32": "int32", "i64": "int64",
          "f16": "float16", "f32": "float32", "f64": "float64"}
_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}

BOOL = DType("bool", "bool", 8, signed=False)
U8, I8 = DType("u8", "int", 8, signed=False), DType("i8", "int", 8)
U16, I16 = DType("u16", "int", 16, signed=False), DType("i16", "int", 16)
I32, I64 = DType("i32", "int", 32), DType("i64", "int", 64)
F8E4M3, F8E5M2 = DType("f8e4m3", "float", 8, True, 4, -6, 448.0), DType("f8e5m2", "float", 8, True, 3, -14, 57344.0)
F16, BF16 = DType("f16", "float", 16, True, 11, -14, 65504.0), DType("bf16", "float", 16, True, 8, -126, float.fromhex("0x1.fep127"))
F32, F64 = (DType("f32", "float", 32, True, 24, -126, float.fromhex("0x1.fffffep127")),
            DType("f64", "float", 64, True, 53, -1022, float.fromhex("0x1.fffffffffffffp1023")))

DTYPES: dict[str, DType] = {d.name: d for d in (BOOL, U8, I8, U16, I16, I32, I64, F8E4M3, F8E5M2, F16, BF16, F32, F64)}
"""Every dtype by the name that programs use."""


def join(a: DType, b: DType) -> DType | None:
    """The type in which two operands of an arithmetic function meet; None if they cannot (a bool beside a number)."""
    if a is BOOL or b is BOOL:
        return BOOL if a is b else None
    a, b = a.compute, b.compute
    if a is b:
        return a
    if a.is_float and b.is_float:
        return F64
    if a.is_float or b.is_float:
        return a if a.is_float else b
    return I64


def real(a: DType) -> DType:
    """The float type in which an integer takes part in a real-valued function: f64 for i64, f32 otherwise."""
    a = a.compute
    return a if a.is_float else F64 if a is I64 else F32


def from_numpy(dtype: Any) -> DType | None:
    """The dtype of a NumPy array, None where PLIR has none."""
    name = getattr(dtype, "name", str(dtype))
    for table in (_NUMPY, _ML_DTYPES):
        for key, value in table.items():
            if value == name:
                return DTYPES[key]
    return None
