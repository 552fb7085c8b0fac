"""Which operators cuBLASLt computes, where the compile contract lists it: products of matrices, with what its epilogue does to each sum.

    compile  { library = [cublaslt, generated] }
    compute  { %y[i, j] = max(0.5 * sum[k < K](%x[i, k] * %w[k, j]) + %b[j], 0) }
    schedule { target = cuda, kernel = cublaslt, epilogue = %y }            what the pass `schedule` writes then

One call of the library is all there is to such an operator, so everything in it has to be the library's: one result, `act(alpha * product + bias)`, factors
that are read as they lie in memory, and arithmetic that keeps what the language promises. Whatever is not is a reason, which the ledger has.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from pipelink_ir.ir import contracts
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate
from pipelink_ir.ir.nodes import Apply, Cast, Const, Expr, FloatLit, IntLit, Name, Range, Read, Reduce
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import children, rebuild, substitute, walk
from pipelink_ir.passes.scheduling.counts import known, ranges_of
from pipelink_ir.passes.scheduling.tensor_cores import BYTES, EIGHTHS, plain_read

CUBLASLT = "cublaslt"

RESULTS = {"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "f32": ("f32",), "f64": ("f64",)}
"""Dtypes of factors, and those that a result of them may have."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand as a matrix. `along`: its terms lie side by side, so its lines lie one behind the other. The axes of the operand by what they are of."""

    tensor: str
    along: bool
    lines: tuple[int, ...]
    terms: tuple[int, ...]
    batch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """`%result = act(alpha * scale * left @ right + bias)`; `scale` is an attribute, `rows`, `columns` and `batch` are axes of the result."""

    result: str
    left: Factor
    right: Factor
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    batch: tuple[int, ...]
    dtype: str
    alpha: float = 1.0
    scale: str | None = None
    bias: str | None = None
    act: str = ""
    tf32: bool = False

    @property
    def epilogue(self) -> tuple[str, ...]:
        """What the library's call takes in, in words."""
        scale = ("a scale",) if self.alpha != 1 or self.scale is not None else ()
        return (*scale, *(("a bias",) if self.bias is not None else ()), *((self.act,) if self.act else ()))


class _No(Exception):
    """Why the library does not compute an operator."""


def library_product(op: TypedOperator, arch: Arch | None = None) -> LibraryProduct | str:
    """How the library computes an operator, or why it does not."""
    try:
        return _found(op, arch)
    except _No as why:
        return str(why)


def _found(op: TypedOperator, arch: Arch | None) -> LibraryProduct:
    if op.exact:
        raise _No("'accuracy = exact' asks for sums as they are written")
    if arch is not None and arch.kind == "cuda" and 0 < arch.sm < 75:
        raise _No(f"it is not made for {arch}")
    results = op.results
    if len(results) != 1 or len(results[0].pieces) != 1 or results[0].pieces[0].holes:
        raise _No("a call makes one result, by one definition")
    t = results[0]
    axes = t.pieces[0].axes
    if any(known(r.lo) != 0 or r.hi != high for r, (_, high) in zip(axes, t.shape, strict=True)):
        raise _No("its result is defined in parts")
    value = _whole(op, t.pieces[0].value)
    sums = [x for x in walk(value) if isinstance(x, Reduce)]
    if not sums or any(x != sums[0] for x in sums):
        raise _No("it is no product of two matrices" if not sums else "there is more than one reduction in it")
    product = _product(op, t, axes, sums[0])
    act, inner = _activation(value, sums[0], op.fast_math)
    alpha, scale, bias = _linear(op, t, axes, inner, sums[0])
    return LibraryProduct(t.name, *product, alpha, scale, bias, act, contracts.tf32(op.op))


def _whole(op: TypedOperator, x: Expr) -> Expr:
    """A value with all locals written out."""
    x = rebuild(x, lambda y: _whole(op, y))
    if not isinstance(x, Read) or op.tensors[x.tensor].kind == "operand":
        return x
    t = op.tensors[x.tensor]
    if len(t.pieces) != 1 or t.pieces[0].holes or any(b is not None for b in t.border) or any(word not in ("", "inside") for word in x.access):
        raise _No(f"'%{t.name}' is read otherwise than it is defined")
    return _whole(op, substitute(t.pieces[0].value, {a.index: i for a, i in zip(t.pieces[0].axes, x.indices, strict=True)}))


# ------------------------------------------------------------------------------------------------------------------------ the product


_Product = tuple[Factor, Factor, tuple[int, ...], tuple[int, ...], tuple[int, ...], str]


def _product(op: TypedOperator, t: Tensor, axes: tuple[Range, ...], x: Reduce) -> _Product:
    if x.kind != "sum" or x.where is not None or not isinstance(x.body, Apply) or x.body.fn != "*":
        raise _No("it is no sum of products of two factors, without a filter")
    reads = [plain_read(f) for f in x.body.args]
    if None in reads or any(r is not None and op.tensors[r.tensor].kind != "operand" for r in reads):
        raise _No("a factor is computed, and the library multiplies what lies in memory")
    left, right = (r for r in reads if r is not None)
    for r in (left, right):
        if not all(isinstance(i, Name) for i in r.indices) or any(word not in ("", "inside") for word in r.access):
            raise _No(f"'%{r.tensor}' is not read as it lies in memory")
    place = {r.index: k for k, r in enumerate(axes)}
    of = [{place[i.name] for i in r.indices if isinstance(i, Name) and i.name in place} for r in (left, right)]
    last = len(axes) - 1
    if last in of[0] and last not in of[1]:
        left, right, of = right, left, of[::-1]
    rows, columns, batch = (tuple(sorted(s)) for s in (of[0] - of[1], of[1] - of[0], of[0] & of[1]))
    if (*batch, *rows, *columns) != tuple(range(len(axes))) or not rows or not columns:
        raise _No("the axes of the result are not those of the batch, of the rows and of the columns, in this order")
    dtype = _dtypes(op, left, right, t)
    factors = (_factor(op, r, x, axes, lines, batch) for r, lines in ((left, rows), (right, columns)))
    return (*factors, rows, columns, batch, dtype)  # type: ignore[return-value]


def _dtypes(op: TypedOperator, left: Read, right: Read, t: Tensor) -> str:
    a, b = (op.tensors[r.tensor].dtype.name for r in (left, right))
    if a != b:
        raise _No(f"one factor is {a}, the other {b}")
    if a in EIGHTHS:
        raise _No(f"it adds up products of {a} with fewer bits than f32 has")
    if a in BYTES:
        raise _No(f"it is not called for {a}: the compiler's own kernel is faster, and takes in what follows")
    if t.dtype.name not in RESULTS.get(a, ()):
        raise _No(f"it makes no {t.dtype.name} of {a}")
    return a


def _factor(op: TypedOperator, r: Read, x: Reduce, axes: tuple[Range, ...], lines: tuple[int, ...], batch: tuple[int, ...]) -> Factor:
    """A factor as the matrix that its operand is."""
    t, inner = op.tensors[r.tensor], ranges_of(x)
    words: dict[str, tuple[str, int, Range]] = {a.index: ("lines" if k in lines else "batch", k, a) for k, a in enumerate(axes)}
    words |= {b.index: ("terms", k, b) for k, b in enumerate(inner)}
    parts = [words.get(i.name) for i in r.indices if isinstance(i, Name)]
    whole = {"lines": lines, "terms": tuple(range(len(inner))), "batch": batch}
    found = [p for p in parts if p is not None]
    runs = [(word, list(run)) for word, run in groupby(enumerate(found), lambda p: p[1][0])]
    order = [word for word, _ in runs]
    if len(found) != len(parts) or order[-2:] not in (["lines", "terms"], ["terms", "lines"]) or order[:-2] not in ([], ["batch"]):
        raise _No(f"'%{r.tensor}' does not lie in memory as a matrix")
    at = {word: tuple(k for k, _ in run) for word, run in runs}
    if any(tuple(k for _, (_, k, _) in run) != whole[word] for word, run in runs) or ("batch" in at) != bool(batch):
        raise _No(f"'%{r.tensor}' does not lie in memory as a matrix")
    for k, (_, _, range_) in enumerate(found):
        low, high = t.shape[k]
        if known(range_.lo) != 0 or known(low) != 0 or (range_.hi != high and (known(high) is None or known(range_.hi) != known(high))):
            raise _No(f"only a part of '%{r.tensor}' is read")
    return Factor(r.tensor, order[-1] == "terms", at["lines"], at["terms"], at.get("batch", ()))


# ----------------------------------------------------------------------------------------------------------------------- the epilogue


def _activation(value: Expr, x: Reduce, fast: bool) -> tuple[str, Expr]:
    """The activation that a value is, and of what."""
    value = _bare(value)
    if isinstance(value, Apply) and value.fn == "max" and any(_number(a) == 0 for a in value.args):
        # With f16, cuBLASLt 13 on sm_90 makes 0 of a sum that is NaN, in the kernels that it takes for sizes that are no multiples of 8.
        raise _No("its relu makes 0 of what is no number, and the language keeps that; as an operator of its own relu leaves the product to the library")
    if not any(isinstance(y, Apply) and y.fn in ("tanh", "erf", "erfc", "exp", "exp2") for y in walk(value)):
        return "", value
    for inner in _around(value, x):
        if inner is not value and _is_gelu(value, inner):
            if not fast:
                raise _No("its gelu is an approximation of tanh that is less accurate than the language asks for; 'fast_math = true' allows it")
            return "gelu", inner
    if any(isinstance(y, Apply) and y.fn in ("erf", "erfc") for y in walk(value)):
        raise _No("its gelu is the one by tanh, and this one is by erf")
    raise _No("what is made of the sums is none of its epilogues: a scale, a bias, gelu by tanh")


def _around(value: Expr, x: Reduce) -> Iterator[Expr]:
    """The parts of a value that hold the product, the smallest first."""
    seen: list[Expr] = []

    def look(e: Expr) -> bool:
        holds = e == x
        if not holds:
            holds = any(look(c) for c in children(e))
        if holds and e not in seen:
            seen.append(e)
        return holds

    look(value)
    return iter(seen)


_POINTS = (0.0, 1e-3, 0.1, 0.25, 0.5, 0.75, 1.0, 1.3, 1.7, 2.0, 2.4, 3.0, 3.7, 4.5, 6.0, 9.0)
_SMOOTH = frozenset(("+", "-", "*", "/", "neg", "**", "tanh"))


def _is_gelu(value: Expr, inner: Expr) -> bool:
    """Whether a value is `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3)))` of a part of it, however it is written: sums, products and tanh alone make smooth
    functions, and two of these that agree so far and so often are one."""
    def put(e: Expr) -> Expr:
        return Name("x", dtype=e.dtype) if e == inner else rebuild(e, put)

    f = put(value)
    if not _smooth(f):
        return False
    try:
        return all(abs(float(_value(f, p)) - _gelu(p)) <= 2e-6 * (1 + abs(p)) for s in _POINTS for p in (s, -s))
    except (CannotEvaluate, OverflowError, ZeroDivisionError, ValueError):
        return False


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow}


def _smooth(f: Expr) -> bool:
    """Whether a function of x is made of sums, products and tanh, and of constants."""
    if _number(f) is not None or f == Name("x"):
        return True
    return all(map(_smooth, f.args)) and f.fn in _SMOOTH if isinstance(f, Apply) else isinstance(f, Cast) and f.implicit and _smooth(f.arg)


def _value(f: Expr, x: float) -> float:
    number = _number(f)
    if number is not None:
        return number
    if isinstance(f, Apply):
        a = [_value(y, x) for y in f.args]
        if f.fn == "tanh":
            return math.tanh(a[0])
        return -a[0] if f.fn == "neg" else float(_ARITHMETIC[f.fn](*a))
    if isinstance(f, Cast):
        return _value(f.arg, x)
    return x


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def _linear(op: TypedOperator, t: Tensor, axes: tuple[Range, ...], value: Expr, x: Reduce) -> tuple[float, str | None, str | None]:
    """(alpha, its attribute, the operand that is the bias) of a value that is `alpha * product + bias`."""
    bias, product = None, _bare(value)
    if isinstance(product, Apply) and product.fn == "+":
        a, b = map(_bare, product.args)
        if not _holds(a, x):
            a, b = b, a
        product, bias = a, _bias(op, t, axes, b)
    alpha, scale = 1.0, None
    while product != x:
        product = _bare(product)
        if product == x:
            break
        if not isinstance(product, Apply) or product.fn != "*":
            raise _No("what is made of the sums is none of its epilogues: a scale, a bias, gelu by tanh")
        inside, factor = product.args if _holds(product.args[0], x) else product.args[::-1]
        factor, number = _bare(factor), _number(factor)
        if number is not None and alpha == 1:
            alpha = number
        elif isinstance(factor, Name) and factor.name in dict(op.scalars) and scale is None:
            scale = factor.name
        else:
            raise _No("its scale is one number for all sums, a literal or an attribute")
        product = inside
    if alpha != 1 and scale is not None:
        raise _No("its scale is one number for all sums, a literal or an attribute")
    return alpha, scale, bias


def _bias(op: TypedOperator, t: Tensor, axes: tuple[Range, ...], b: Expr) -> str:
    if not isinstance(b, Read) or op.tensors[b.tensor].kind != "operand":
        raise _No("what is added to the sums is no operand, as its bias is")
    found = op.tensors[b.tensor]
    if b.indices != (Name(axes[-1].index),) or any(word not in ("", "inside") for word in b.access):
        raise _No(f"'%{b.tensor}' is added along other axes than the last one, as its bias is")
    if found.dtype is not t.dtype:
        raise _No(f"its bias has the dtype of the result, {t.dtype}, and '%{b.tensor}' is {found.dtype}")
    return b.tensor


def _bare(x: Expr) -> Expr:
    while isinstance(x, Cast) and x.implicit:
        x = x.arg
    return x


def _holds(e: Expr, x: Reduce) -> bool:
    return any(y == x for y in walk(e))


def _number(x: Expr) -> float | None:
    """The value of a constant."""
    if not all(isinstance(y, IntLit | FloatLit | Const | Apply | Cast) for y in walk(x)):
        return None
    try:
        return float(evaluate(x, {}))
    except (CannotEvaluate, OverflowError):
        return None
