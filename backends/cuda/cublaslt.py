"""Products of matrices by cuBLASLt, reached through nvmath-python: what is asked for once for given sizes, and calls that native code makes.

nvmath's bindings make the descriptors and ask the library which of its kernels suits; its function `cublasLtMatmul` is then called by the walk over commands
(`launcher.py`), without Python. cuBLASLt thinks in columns: a row-major `y[m, n]` is its matrix of n rows and m columns, so the right factor is its `A`, the
left one its `B`, and a bias along the last axis is one along its rows.
"""
from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

INSTALL = "pip install 'pipelink-ir[libraries]'"
"""What brings it."""

WORKSPACE = 32 << 20
"""Bytes that one of its kernels may work with, at most."""

FIT = 16
"""Where all arrays begin at multiples of so many bytes, its fast kernels can run."""

FAILED = 1 << 16
"""Added to what the library answers where it fails, so that it is no error of the driver."""

_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
"""`cudaDataType_t` of a dtype."""


class Missing(Exception):
    """The library, or what it is reached through, is not there: why, and what to do."""

    def __init__(self, why: str, help: str) -> None:
        super().__init__(why)
        self.why, self.help = why, help


@dataclass(frozen=True, slots=True)
class Matrix:
    """One operand of a product as it lies in memory, in elements: `across` is from one line to the next, `batch` from one matrix to the next. `turned`: its
    terms do not lie as the library would have them by itself."""

    dtype: str
    turned: bool
    across: int
    batch: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A product `y = act(alpha * left @ right + bias)` for given sizes; `act` is "" or "gelu"."""

    rows: int
    columns: int
    terms: int
    batch: int
    left: Matrix
    right: Matrix
    result: Matrix
    bias: bool = False
    act: str = ""
    alpha: float = 1.0
    tf32: bool = False


class Lt:
    """nvmath's bindings of cuBLASLt, opened."""

    def __init__(self) -> None:
        try:
            from nvmath.bindings import cublas, cublasLt
            from nvmath.bindings._internal import cublasLt as inner
        except ImportError as error:
            raise Missing(f"nvmath-python, through which cuBLASLt is called, is not installed ({error})", INSTALL) from error
        try:
            self.version = int(cublasLt.get_version())
            self.matmul, self.set = (int(inner._inspect_function_pointer(f"__{name}")) for name in ("cublasLtMatmul", "cublasLtMatmulDescSetAttribute"))
        except Exception as error:  # of nvmath's and of cuda-pathfinder's own kinds, which are no common one
            raise Missing(f"cuBLASLt cannot be loaded ({' '.join(str(error).split())[:200]})",
                          f"{INSTALL} nvidia-cublas brings the library; it needs the NVIDIA driver too") from error
        if not self.matmul or not self.set:
            raise Missing(f"this cuBLASLt ({self.version}) has no cublasLtMatmul", f"{INSTALL} nvidia-cublas")
        self.names, self.blas = cublasLt, cublas
        self._handles: dict[int, int] = {}
        self._lock = threading.Lock()

    def choose(self, device: int, problem: Problem) -> Chosen:
        """What the library does for a problem on the device that is current."""
        return Chosen(self, device, problem)

    def handle(self, device: int) -> int:
        """The library's handle for the device that is current."""
        with self._lock:
            if device not in self._handles:
                self._handles[device] = int(self.names.create())
            return self._handles[device]


_opened: Lt | None = None
_lock = threading.Lock()


def opened() -> Lt:
    """The bindings, loaded at the first call; `Missing` if they cannot be."""
    global _opened
    with _lock:
        if _opened is None:
            _opened = Lt()
        return _opened


class Chosen:
    """What the library chose for a problem on a device: its kernel where arrays begin at multiples of `FIT`, another one where they do not, if it has one."""

    def __init__(self, lt: Lt, device: int, problem: Problem) -> None:
        self.lt, self.problem, self.handle = lt, problem, lt.handle(device)
        self._made: list[tuple[Any, int]] = []
        # What is kept of a choice is kept by the recipes that use it.
        weakref.finalize(self, _give_back, self._made).atexit = False
        p, n = problem, lt.names
        self.layouts = [self._layout(m, *shape) for m, shape in ((p.right, (p.columns, p.terms)), (p.left, (p.terms, p.rows)), (p.result, (p.columns, p.rows)))]
        first = self.description()
        self.fit = self._ask(first, FIT)
        self.other = self._ask(first, 1)
        n.matmul_desc_destroy(first)
        found = [c for c in (self.fit, self.other) if c is not None]
        self.workspace = max((size for _, size in found), default=0)

    def _layout(self, m: Matrix, rows: int, columns: int) -> int:
        """A matrix as the library reads it: `rows` lie side by side, unless it is turned."""
        n = self.lt.names
        made = int(n.matrix_layout_create(_TYPES[m.dtype], *((columns, rows) if m.turned else (rows, columns)), m.across))
        self._made.append((n.matrix_layout_destroy, made))
        if self.problem.batch != 1:
            self._set(n.matrix_layout_set_attribute, made, n.MatrixLayoutAttribute.BATCH_COUNT, ctypes.c_int32(self.problem.batch))
            self._set(n.matrix_layout_set_attribute, made, n.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, ctypes.c_int64(m.batch))
        return made

    @staticmethod
    def _set(function: Any, of: int, attribute: Any, value: Any) -> None:
        function(of, int(attribute), ctypes.addressof(value), ctypes.sizeof(value))

    def description(self) -> int:
        """A new description of the call, for one that makes it: it holds the address of the bias."""
        p, n, compute = self.problem, self.lt.names, self.lt.blas.ComputeType
        wide = p.result.dtype == "f64"
        kind = compute.COMPUTE_64F if wide else compute.COMPUTE_32F_FAST_TF32 if p.tf32 else compute.COMPUTE_32F
        made = int(n.matmul_desc_create(int(kind), _TYPES["f64" if wide else "f32"]))
        attribute, epilogue = n.MatmulDescAttribute, n.Epilogue
        self._set(n.matmul_desc_set_attribute, made, attribute.TRANSA, ctypes.c_int32(int(p.right.turned)))
        self._set(n.matmul_desc_set_attribute, made, attribute.TRANSB, ctypes.c_int32(int(p.left.turned)))
        words = {("", False): epilogue.DEFAULT, ("", True): epilogue.BIAS, ("gelu", False): epilogue.GELU, ("gelu", True): epilogue.GELU_BIAS}
        self._set(n.matmul_desc_set_attribute, made, attribute.EPILOGUE, ctypes.c_int32(int(words[p.act, p.bias])))
        if p.bias:
            self._set(n.matmul_desc_set_attribute, made, attribute.BIAS_DATA_TYPE, ctypes.c_int32(_TYPES[p.result.dtype]))
        return made

    def _ask(self, description: int, align: int) -> tuple[bytes, int] | None:
        """The library's first choice for arrays that begin at multiples of `align`, and the bytes that it works with; None if it has none."""
        import numpy as np
        p, n = self.problem, self.lt.names
        preference = int(n.matmul_preference_create())
        try:
            attribute = n.MatmulPreferenceAttribute
            self._set(n.matmul_preference_set_attribute, preference, attribute.MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE))
            # Parts of a sum may be added up in f32 alone, never in the narrower dtype of the result.
            self._set(n.matmul_preference_set_attribute, preference, attribute.REDUCTION_SCHEME_MASK, ctypes.c_uint32(int(n.ReductionScheme.COMPUTE_TYPE)))
            for which, m in ((attribute.MIN_ALIGNMENT_A_BYTES, p.right), (attribute.MIN_ALIGNMENT_B_BYTES, p.left), (attribute.MIN_ALIGNMENT_C_BYTES, p.result),
                             (attribute.MIN_ALIGNMENT_D_BYTES, p.result)):
                self._set(n.matmul_preference_set_attribute, preference, which, ctypes.c_uint32(max(align, _BYTES[m.dtype])))
            results, count = np.zeros(1, n.matmul_heuristic_result_dtype), ctypes.c_int32(0)
            try:
                a, b, d = self.layouts
                n.matmul_algo_get_heuristic(self.handle, description, a, b, d, d, preference, 1, results.ctypes.data, ctypes.addressof(count))
            except n.cuBLASLtError:
                return None
            if count.value == 0 or int(results[0]["state"]) != 0:
                return None
            return results[0]["algo"].tobytes(), int(results[0]["workspace_size"])
        finally:
            n.matmul_preference_destroy(preference)

    @property
    def able(self) -> bool:
        """Whether it has a kernel for the problem."""
        return self.fit is not None or self.other is not None

    def call(self, places: Sequence[int]) -> Call:
        """A call on arrays whose addresses stand at these places: left, right, result, workspace, bias."""
        return Call(self, places)


def _give_back(made: list[tuple[Any, int]]) -> None:
    for destroy, handle in made:
        destroy(handle)


_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}


class Call:
    """One call of a lane, whose arguments are words that change: `function(argument, stream)` makes it, and returns 0 or `FAILED` with the library's answer."""

    def __init__(self, chosen: Chosen, places: Sequence[int]) -> None:
        """The places are addresses of the words in which the addresses of arrays stand."""
        left, right, result, workspace, bias = (*places, 0)[:5]
        lt, p = chosen.lt, chosen.problem
        self.chosen, description = chosen, chosen.description()
        self._close = weakref.finalize(self, _give_back, [(lt.names.matmul_desc_destroy, description)])
        self._close.atexit = False
        scalar = ctypes.c_double if p.result.dtype == "f64" else ctypes.c_float
        self._alpha, self._beta = scalar(p.alpha), scalar(0)
        self._algorithms = [ctypes.create_string_buffer(found[0], len(found[0])) if found is not None else None for found in (chosen.fit, chosen.other)]
        fit, other = (ctypes.addressof(a) if a is not None else 0 for a in self._algorithms)
        a, b, d = chosen.layouts
        words = (lt.matmul, lt.set, chosen.handle, description, ctypes.addressof(self._alpha), right, a, left, b, ctypes.addressof(self._beta), result, d,
                 fit or other, other, workspace, chosen.workspace, bias, int(lt.names.MatmulDescAttribute.BIAS_POINTER), FIT - 1)
        self._block = (ctypes.c_int64 * len(words))(*words)
        self._arrays = tuple(place for place in (left, right, result, bias) if place)
        self.argument = ctypes.addressof(self._block)
        self.function = call_function().address("call")

    def fits(self) -> bool:
        """Whether arrays begin where the library's fast kernel can run."""
        bits = 0
        for place in self._arrays:
            bits |= ctypes.c_int64.from_address(place).value
        return bits % FIT == 0

    def close(self) -> None:
        """Give the description back."""
        self._close()


@cache
def call_function() -> Any:
    """The library of one function, `call(argument, stream)`."""
    from pipelink_ir.backends.cpu import jit
    target = jit.host()
    triple, layout = jit.layout(target)
    return jit.Library([jit.compile_object(f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n' + call_text(), target)], ["call"])


@cache
def call_text() -> str:
    """What a call does: the description is told where the bias is, the kernel is chosen by where arrays begin, the library's function is called."""
    names = ("matmul", "set", "handle", "desc", "alpha", "right", "a", "left", "b", "beta", "result", "d", "fit", "other", "space", "bytes", "bias", "key",
             "mask")
    loads = "".join(f"  %{n}.at = getelementptr inbounds i64, ptr %c, i64 {k}\n  %{n} = load {'i64' if n in ('bytes', 'key', 'mask') else 'ptr'}, ptr %{n}.at\n"
                    for k, n in enumerate(names))
    given = ", ".join(f"ptr %{n}" for n in ("handle", "desc", "alpha", "right.p", "a", "left.p", "b", "beta", "result.p", "d", "result.p", "d", "algorithm",
                                            "space.p"))
    arrays = "".join(f"  %{n}.v = load i64, ptr %{n}\n  %{n}.p = inttoptr i64 %{n}.v to ptr\n" for n in ("right", "left", "result", "space"))
    return f"""
define i32 @call(ptr %c, ptr %stream) {{
entry:
{loads}{arrays}  %some = or i64 %right.v, %left.v
  %all = or i64 %some, %result.v
  %has = icmp ne ptr %bias, null
  br i1 %has, label %with, label %without
with:
  %bias.v = load i64, ptr %bias
  %key.n = trunc i64 %key to i32
  %told = call i32 %set(ptr %desc, i32 %key.n, ptr %bias, i64 8)
  %fine = icmp eq i32 %told, 0
  br i1 %fine, label %without, label %failed
without:
  %more = phi i64 [ 0, %entry ], [ %bias.v, %with ]
  %bits = or i64 %all, %more
  %low = and i64 %bits, %mask
  %even = icmp eq i64 %low, 0
  %algorithm = select i1 %even, ptr %fit, ptr %other
  %none = icmp eq ptr %algorithm, null
  br i1 %none, label %failed, label %go
go:
  %r = call i32 %matmul({given}, i64 %bytes, ptr %stream)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %done, label %failed
done:
  ret i32 0
failed:
  %code = phi i32 [ %told, %with ], [ 15, %without ], [ %r, %go ]
  %marked = or i32 %code, {FAILED}
  ret i32 %marked
}}
"""


_STATUS = {1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR", 13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR",
           15: "NOT_SUPPORTED"}


def status_name(status: int) -> str:
    """`CUBLAS_STATUS_NOT_SUPPORTED`."""
    return f"CUBLAS_STATUS_{_STATUS.get(status, status)}"
