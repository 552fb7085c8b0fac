"""How expressions of the loop form are spelled in C++."""
from __future__ import annotations

import math

import pytest

from pipelink_ir.backends.loops.form import Choose, Const, Convert, Expr, Load, Op, Ref
from pipelink_ir.ir.diagnostics import InternalError
from pipelink_ir.ir.dtypes import BF16, BOOL, F8E4M3, F16, F32, F64, I8, I16, I32, I64, U8, U16, DType
from tests.unit.cuda.forms import I, N, f32, i64, load, op, value

X, A = load("x"), Ref("a", F32)
XI, XL, XU = load("x", I32), load("x", I64), load("x", U8)
SCALARS = (("a", F32), ("b", F32), ("k", I32), ("l", I64), ("d", F64), ("t", BOOL))
B, K, L, D, T = Ref("b", F32), Ref("k", I32), Ref("l", I64), Ref("d", F64), Ref("t", BOOL)


def i32(v: int) -> Const:
    return Const(v, I32)


@pytest.mark.parametrize(("x", "text"), [
    (op("+", op("+", A, B), A), "a + b + a"),
    (op("+", A, op("+", B, A)), "a + (b + a)"),
    (op("-", A, op("-", B, A)), "a - (b - a)"),
    (op("*", op("+", A, B), A), "(a + b) * a"),
    (op("/", A, op("*", A, B)), "a / (a * b)"),
    (op("neg", op("neg", A)), "-(-a)"),
    (op("neg", f32(-2.0)), "-(-2.0f)"),
    (op("-", A, op("neg", B)), "a - -b"),
    (op("-", A, f32(-math.inf)), "a - -pl::inf()"),
    (op("min", A, f32(6.0)), "pl::min(a, 6.0f)"),
    (op("fmax", A, B), "pl::fmax(a, b)"),
    (op("fma", A, B, f32(1.0)), "pl::fma(a, b, 1.0f)"),
    (op("pow", A, f32(2.2)), "pl::pow(a, 2.2f)"),
    (Op("+", (A, B), F32, reorder=True), "a + b"),
    (Choose(op("<", A, B), A, B, F32), "a < b ? a : b"),
    (op("+", Choose(T, A, B, F32), A), "(t ? a : b) + a"),
    (Choose(T, A, Choose(T, B, A, F32), F32), "t ? a : t ? b : a"),
    (Choose(op("and", T, op("or", T, op("not", T, dtype=BOOL), dtype=BOOL), dtype=BOOL), A, B, F32), "t && (t || !t) ? a : b"),
    (Choose(op("or", op("and", T, T, dtype=BOOL), T, dtype=BOOL), A, B, F32), "(t && t) || t ? a : b"),
    (Choose(op("not", op("<", A, B), dtype=BOOL), A, B, F32), "!(a < b) ? a : b"),
    (Choose(Op("==", (op("<", A, B), T), BOOL), A, B, F32), "(a < b) == t ? a : b"),
    (Choose(op("isnan", A), A, B, F32), "pl::isnan(a) ? a : b"),
    (Choose(op("==", f32(0.0), A), A, B, F32), "a == 0.0f ? a : b"),
])
def test_operators_and_parentheses(x: Expr, text: str) -> None:
    assert value(x, scalars=SCALARS) == text


@pytest.mark.parametrize("fn", ["floor", "ceil", "round", "abs", "sign", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan",
                                "tanh", "erf"])
def test_functions_of_one_argument(fn: str) -> None:
    assert value(op(fn, A), scalars=SCALARS) == f"pl::{fn}(a)"
    assert value(op(fn, D), F64, scalars=SCALARS) == f"pl::{fn}(d)"


@pytest.mark.parametrize("fn", ["mod", "floordiv", "atan2", "min", "max", "fmin", "pow"])
def test_functions_of_two_arguments(fn: str) -> None:
    assert value(op(fn, A, B), scalars=SCALARS) == f"pl::{fn}(a, b)"


def test_exact_and_fast() -> None:
    assert value(op("/", A, B), exact=True, scalars=SCALARS) == "pl::exact_div(a, b)"
    assert value(op("sqrt", A), exact=True, scalars=SCALARS) == "pl::exact_sqrt(a)"
    assert value(op("exp", A), exact=True, scalars=SCALARS) == "pl::exp(a)"
    assert value(op("/", A, B), fast=True, scalars=SCALARS) == "pl::fast_div(a, b)"
    assert value(op("exp", A), fast=True, scalars=SCALARS) == "pl::fast_exp(a)"
    assert value(op("log", A), fast=True, scalars=SCALARS) == "pl::log(a)"


@pytest.mark.parametrize(("x", "text", "memory"), [
    # Data wrap unless their ranges say that they cannot.
    (op("+", XI, i32(1)), "pl::add(x[i], 1)", I32),
    (op("*", XI, K), "pl::mul(x[i], k)", I32),
    (op("-", XI, K), "pl::sub(x[i], k)", I32),
    (op("neg", XI), "pl::neg(x[i])", I32),
    (op("abs", XI), "pl::abs(x[i])", I32),
    (op("floordiv", XI, K), "pl::floordiv(x[i], k)", I32),
    (op("mod", XI, i32(7)), "pl::mod(x[i], 7)", I32),
    (op("max", XI, i32(-1)), "pl::max(x[i], -1)", I32),
    (op("fma", XI, K, K), "pl::fma(x[i], k, k)", I32),
    (op("+", op("mod", XI, i32(7)), i32(1)), "pl::mod(x[i], 7) + 1", I32),
    (op("neg", op("mod", XI, i32(7))), "-pl::mod(x[i], 7)", I32),
])
def test_integers_of_data(x: Expr, text: str, memory: DType) -> None:
    if isinstance(x, Op) and x.fn == "fma":
        return  # floats alone
    assert value(x, memory, scalars=SCALARS, loads=I32) == text


def test_bytes_need_no_wrapping() -> None:
    assert value(op("+", XU, XU), I32, loads=U8) == "int(x[i]) + int(x[i])"
    assert value(op("-", op("*", XU, XU), i32(3)), I32, loads=U8) == "int(x[i]) * int(x[i]) - 3"


def test_wide_integers_of_data() -> None:
    assert value(op("+", XL, i64(1)), I64, loads=I64) == "pl::add(x[i], 1)"
    assert value(op("+", Convert(K, I64, I64), i64(1)), I64, scalars=SCALARS, loads=I64) == "i64(k) + 1"
    assert value(op("*", L, Const(1 << 40, I64)), I64, scalars=SCALARS, loads=I64) == "pl::mul(l, 1099511627776ll)"


@pytest.mark.parametrize(("index", "text"), [
    (op("+", i64(1), I), "i + 1"), (op("+", i64(-1), I), "i - 1"), (op("+", I, i64(1)), "i + 1"), (op("*", I, N), "i * N"), (op("*", i64(-1), I), "-i"),
    (op("-", N, op("+", I, i64(1))), "N - (i + 1)"), (op("+", op("*", i64(-1), I), N), "N - i"), (op("+", N, op("*", i64(-1), op("+", I, N))), "N - (i + N)"),
    (op("+", op("neg", I), op("neg", N)), "-i + -N"), (op("+", op("+", N, op("neg", I)), i64(-1)), "N - i - 1"),
    (op("min", op("max", op("+", I, i64(-1)), i64(0)), op("-", N, i64(1))), "pl::min(pl::max(i - 1, 0), N - 1)"),
    (op("rest", op("quot", I, i64(3)), N), "pl::rest(pl::quot(i, 3), N)"), (op("mod", I, N), "pl::mod(i, N)"),
    (op("floordiv", I, i64(2)), "pl::floordiv(i, 2)"), (Choose(op("<", I, N), I, i64(0), I64), "i < N ? i : 0"),
    # What data say is 64 bits wide, until a border holds it.
    (Convert(K, I64, I64), "i64(k)"), (L, "l"), (op("*", L, N), "pl::mul(l, N)"),
    (op("min", op("max", Convert(K, I64, I64), i64(0)), op("-", N, i64(1))), "pl::min(pl::max(index_t(k), 0), N - 1)"),
    (op("*", op("min", op("max", L, i64(0)), N), i64(3)), "index_t(pl::min(pl::max(l, 0), N)) * 3"),
    (op("max", op("min", L, N), i64(0)), "index_t(pl::max(pl::min(l, N), 0))"),
    (op("mod", L, N), "index_t(pl::mod(l, N))"),
    (op("min", L, N), "pl::min(l, N)"),
])
def test_indices(index: Expr, text: str) -> None:
    assert value(Load("x", index, F32, F32), scalars=SCALARS) == f"x[{text}]"


@pytest.mark.parametrize(("x", "text", "memory"), [
    (Convert(A, I32, I32), "pl::to_i32(a)", I32), (Convert(A, U8, I32), "pl::to_u8(a)", I32), (Convert(A, I8, I32, True), "pl::to_i8(a)", I32),
    (Convert(D, I64, I64), "pl::to_i64(d)", I64), (Convert(D, I16, I32), "pl::to_i16(d)", I32),
    (Convert(K, U8, I32), "int(u8(k))", I32), (Convert(K, U8, I32, True), "pl::sat_u8(k)", I32), (Convert(L, I32, I32), "int(l)", I32),
    (Convert(L, I32, I32, True), "pl::sat_i32(l)", I32), (Convert(L, U16, I32), "int(u16(l))", I32), (Convert(K, I64, I64), "i64(k)", I64),
    (Convert(op("mod", K, i32(9)), U8, I32), "pl::mod(k, 9)", I32), (Convert(T, U8, I32), "int(t)", I32), (Convert(T, I64, I64), "i64(t)", I64),
    (Convert(K, F32, F32), "float(k)", F32), (Convert(L, F64, F64), "double(l)", F64), (Convert(D, F32, F32), "float(d)", F32), (Convert(T, F32, F32), "float(t)", F32),
    (Convert(A, F16, F32), "float(f16(a))", F32), (Convert(D, BF16, F32), "float(bf16(d))", F32), (Convert(L, F8E4M3, F32), "float(f8e4m3(l))", F32),
    (Convert(A, BOOL, BOOL), "a != 0", BOOL), (Convert(K, BOOL, BOOL), "k != 0", BOOL), (Convert(T, BOOL, BOOL), "t", BOOL),
    (Convert(op("+", A, B), BOOL, BOOL), "a + b != 0", BOOL),
])
def test_conversions(x: Expr, text: str, memory: DType) -> None:
    assert value(x, memory, scalars=SCALARS) == text


@pytest.mark.parametrize(("memory", "text"), [
    (F32, "x[i]"), (F64, "x[i]"), (I32, "x[i]"), (I64, "x[i]"), (BOOL, "x[i]"), (U8, "int(x[i])"), (I8, "int(x[i])"), (U16, "int(x[i])"), (I16, "int(x[i])"),
    (F16, "float(x[i])"), (BF16, "float(x[i])"), (F8E4M3, "float(x[i])")])
def test_loads(memory: DType, text: str) -> None:
    assert value(load("x", memory), memory.compute, loads=memory) == text


@pytest.mark.parametrize(("x", "memory", "text"), [
    (A, F32, "a"), (A, F16, "f16(a)"), (A, BF16, "bf16(a)"), (D, F16, "f16(d)"), (D, F32, "float(d)"), (K, U8, "u8(k)"), (K, I16, "i16(k)"), (T, BOOL, "t"), (L, I64, "l")])
def test_stores(x: Expr, memory: DType, text: str) -> None:
    assert value(x, memory, scalars=SCALARS) == text


def test_what_is_not_there_is_a_fault_of_ours() -> None:
    with pytest.raises(InternalError, match="'nothing' is not bound"):
        value(Ref("nothing", F32))
    with pytest.raises(InternalError, match="buffer 'z' is not known"):
        value(load("z"))
    with pytest.raises(InternalError, match="'x' holds f32, not f16"):
        value(load("x", F16))
