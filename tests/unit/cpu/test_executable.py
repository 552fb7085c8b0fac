"""Whole pipelines on the CPU backend: results, errors at run time, shapes that change, threads, and what calls share."""
from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipelink_ir.backends.cpu import executable, jit, memory
from pipelink_ir.ir.diagnostics import ExecutionError
from pipelink_ir.runtime.compile import Compiled
from pipelink_ir.runtime.compile import compile as compile_program

inf, nan = np.inf, np.nan


def pointwise(value: str, source: str = "f32", result: str = "f32", more: str = "") -> Compiled:
    """`value` of each element `%x[i]`."""
    return compile_program(f"""
        op @f(%x: tensor<Nx{source}>) -> (%y: tensor<Nx{result}>) {{ compute {{ %y[i] = {value} }} {more} }}
        pipeline @p(%x: tensor<Nx{source}>) -> (%y: tensor<Nx{result}>) {{ %y = @f(%x) }}
        """)


def run(c: Compiled, *arrays: Any) -> Any:
    """The results of a call with positional inputs, one array or a tuple."""
    out = list(c.executable({o.name: a for o, a in zip(c.inputs, arrays, strict=True)}).values())
    return out[0] if len(out) == 1 else tuple(out)


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.float32)


# ------------------------------------------------------------------------------------------------------------- the fault list


def test_signed_zeros_infinities_and_nan_survive() -> None:
    c = compile_program("""
        op @f(%x: tensor<Nxf32>)
            -> (%plus: tensor<Nxf32>, %minus: tensor<Nxf32>, %from: tensor<Nxf32>, %times: tensor<Nxf32>, %same: tensor<Nxf32>, %one: tensor<Nxf32>) {
          compute { %plus[i] = %x[i] + 0
                    %minus[i] = %x[i] - 0
                    %from[i] = 0 - %x[i]
                    %times[i] = %x[i] * 0
                    %same[i] = %x[i] - %x[i]
                    %one[i] = %x[i] * 1 } }
        pipeline @p(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>, %d: tensor<Nxf32>, %e: tensor<Nxf32>, %f: tensor<Nxf32>) {
          %a, %b, %c, %d, %e, %f = @f(%x) }
        """)
    plus, minus, from_zero, times, same, one = run(c, f32(-0.0, 0.0, inf, nan))
    assert np.signbit(plus[:2]).tolist() == [False, False]
    assert np.signbit(minus[:2]).tolist() == [True, False]
    assert np.signbit(from_zero[:2]).tolist() == [False, False]
    assert np.signbit(one[:2]).tolist() == [True, False]
    assert np.isnan(times[2:]).all()
    assert np.isnan(same[2:]).all()


@pytest.mark.parametrize(("kept", "read"), [("a < A", "a, b"), ("a < A", "b, a")])
def test_a_sum_is_rounded_to_one_narrow_float_and_then_another(kept: str, read: str) -> None:
    # LLVM takes the sign of the f16 from the sum in f64, and calls a library for that which is not there.
    c = compile_program(f"""
        op @f(%x: tensor<AxAxf16>) -> (%y: tensor<Axf16>) {{ compute {{ %y[{kept}] = f16(bf16(sum[b < A](%x[{read}]))) }} }}
        pipeline @p(%x: tensor<AxAxf16>) -> (%y: tensor<Axf16>) {{ %y = @f(%x) }}
        """, target="cpu")
    x = np.random.default_rng(1).standard_normal((19, 19)).astype(np.float16)
    x[0], x[1], x[2, 1], x[3] = 0, -0.0, nan, 30000
    x = x if read == "a, b" else x.T.copy()
    sums = x.astype(np.float64).sum(1 if read == "a, b" else 0)
    want = sums.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float16)
    np.testing.assert_array_equal(run(c, x).view(np.uint16) & 0x7FFF, want.view(np.uint16) & 0x7FFF)
    np.testing.assert_array_equal(np.signbit(run(c, x))[np.isfinite(want) & (want != 0)], np.signbit(want)[np.isfinite(want) & (want != 0)])


def test_a_nan_wins_in_body_and_tail() -> None:
    c = compile_program("""
        op @f(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[i] = max(%a[i], %b[i]) } }
        pipeline @p(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @f(%a, %b) }
        """)
    for length in (4, 17, 67):
        got = run(c, np.resize(f32(nan, 1, nan, 0), length), np.resize(f32(1, nan, nan, -1), length))
        np.testing.assert_array_equal(got, np.resize(f32(nan, nan, nan, 0), length))


def test_a_nan_bound_makes_everything_nan() -> None:
    c = compile_program("""
        op @f(%x: tensor<Nxf32>, %lo: tensor<f32>, %hi: tensor<f32>) -> (%y: tensor<Nxf32>) { compute { %y[i] = clamp(%x[i], %lo, %hi) } }
        pipeline @p(%x: tensor<Nxf32>, %lo: tensor<f32>, %hi: tensor<f32>) -> (%y: tensor<Nxf32>) { %y = @f(%x, %lo, %hi) }
        """)
    x = f32(-1, 0.5, 9, nan)
    np.testing.assert_array_equal(run(c, x, np.float32(0).reshape(()), np.float32(1).reshape(())), f32(0, 0.5, 1, nan))
    assert np.isnan(run(c, x, np.float32(nan).reshape(()), np.float32(1).reshape(()))).all()


def test_subnormal_numbers_are_kept() -> None:
    assert run(pointwise("%x[i] / 2"), f32(1.17549435e-38)).tolist() == [np.float32(5.877472e-39)]
    assert run(pointwise("2.0 ** %x[i]"), f32(-149, -150)).tolist() == [np.float32(1e-45), 0]


def test_fast_math_keeps_tests_for_nan() -> None:
    got = run(pointwise("select(isnan(%x[i]), 0, %x[i])", more="compile { fast_math = true }"), f32(nan, 1, inf))
    assert got.tolist() == [0, 1, inf]


def test_exact_operators_do_not_contract() -> None:
    c = compile_program("""
        op @f(%a: tensor<Nxf32>, %c: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[i] = %a[i] * %a[i] - %c[i] } compile { accuracy = exact } }
        pipeline @p(%a: tensor<Nxf32>, %c: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @f(%a, %c) }
        """)
    assert run(c, np.full(19, 1.000244140625, np.float32), np.full(19, 1.00048828125, np.float32)).tolist() == [0] * 19


def test_integers_wrap_and_divide_without_a_trap() -> None:
    c = compile_program("""
        op @f(%a: tensor<Nxi32>, %b: tensor<Nxi32>) -> (%s: tensor<Nxi32>, %p: tensor<Nxi32>, %q: tensor<Nxi32>, %r: tensor<Nxi32>) {
          compute { %s[i] = %a[i] + %b[i]
                    %p[i] = %a[i] * %b[i]
                    %q[i] = %a[i] floordiv %b[i]
                    %r[i] = %a[i] mod %b[i] } }
        pipeline @p(%a: tensor<Nxi32>, %b: tensor<Nxi32>) -> (%s: tensor<Nxi32>, %p: tensor<Nxi32>, %q: tensor<Nxi32>, %r: tensor<Nxi32>) {
          %s, %p, %q, %r = @f(%a, %b) }
        """)
    a = np.asarray([2147483647, 65536, -2147483648, -7, 7, 5, -2147483648], np.int32)
    b = np.asarray([1, 65536, -1, 2, -2, 0, 0], np.int32)
    s, p, q, r = run(c, a, b)
    assert s.tolist() == [-2147483648, 131072, 2147483647, -5, 5, 5, -2147483648]
    assert p.tolist() == [2147483647, 0, -2147483648, -14, -14, 0, 0]
    assert q.tolist() == [2147483647, 1, -2147483648, -4, -4, 0, 0]
    assert r.tolist() == [0, 0, 0, 1, -1, 0, 0]


def test_floats_become_integers_as_the_language_says() -> None:
    x = f32(nan, inf, -inf, 3e9, -1.5, 256.7, -1)
    assert run(pointwise("i32(%x[i])", result="i32"), x).tolist() == [0, 2147483647, -2147483648, 2147483647, -1, 256, -1]
    assert run(pointwise("u8(%x[i])", result="u8"), x).tolist() == [0, 255, 0, 255, 0, 255, 0]
    got = run(pointwise("sat_u8(round(255 * %x[i]))", result="u8"), f32(0, 0.5, 0.9999, 1, 1.2, -0.1, nan))
    assert got.tolist() == [0, 128, 255, 255, 255, 0, 0]


def test_bytes_are_unsigned() -> None:
    x = np.asarray([0, 3, 100, 200, 255], np.uint8)
    assert run(pointwise("u8(%x[i] mod 7)", "u8", "u8"), x).tolist() == [0, 3, 2, 4, 3]
    assert run(pointwise("%x[i] > u8(100)", "u8", "bool"), x).tolist() == [False, False, False, True, True]
    assert run(pointwise("u8(%x[i] - 4)", "u8", "u8"), x).tolist() == [252, 255, 96, 196, 251]
    assert run(pointwise("sat_u8(%x[i] - 4)", "u8", "u8"), x).tolist() == [0, 0, 96, 196, 251]


@pytest.mark.parametrize(("k", "want"), [(2, 64770), (4, 129540), (64, 2072640)])
def test_products_of_bytes_sum_in_32_bits(k: int, want: int) -> None:
    c = compile_program("""
        op @dot(%a: tensor<Kxu8>, %b: tensor<Kxi8>) -> (%y: tensor<i32>) { compute { %y = sum[k < K](%a[k] * %b[k]) } }
        pipeline @p(%a: tensor<Kxu8>, %b: tensor<Kxi8>) -> (%y: tensor<i32>) { %y = @dot(%a, %b) }
        """)
    assert run(c, np.full(k, 255, np.uint8), np.full(k, 127, np.int8)) == want


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "f32", "f64", "u8", "i8", "u16", "i16", "i32", "i64", "bool"])
@pytest.mark.parametrize("length", [1, 33])
def test_every_dtype_passes_through(dtype: str, length: int) -> None:
    from pipelink_ir.ir.dtypes import DTYPES
    kind = DTYPES[dtype].numpy()
    x = np.resize(np.asarray([0, 1, 2, 3, 1, 0, 8], np.float32), length).astype(kind)
    got = run(pointwise("%x[i]", dtype, dtype), x)
    assert got.dtype == kind
    assert got.tobytes() == x.tobytes()


# -------------------------------------------------------------------------------------------------------------------- shapes


SUMS = """
op @sums(%x: tensor<MxNxf32>) -> (%row: tensor<Mxf32>, %most: tensor<Mxf32>) { compute { %row[m] = sum[n < N](%x[m, n])
                                                                                      %most[m] = max[n < N](%x[m, n]) } }
pipeline @p(%x: tensor<MxNxf32>) -> (%row: tensor<Mxf32>, %most: tensor<Mxf32>) { %row, %most = @sums(%x) }
"""


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 0), (1, 1), (1, 7), (7, 1), (33, 17)])
def test_any_size_and_nothing(shape: tuple[int, int]) -> None:
    c = compile_program(SUMS)
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    row, most = run(c, x)
    np.testing.assert_array_equal(row, x.sum(axis=1))
    np.testing.assert_array_equal(most, x.max(axis=1, initial=-inf))


def test_one_program_serves_many_shapes() -> None:
    c = compile_program(SUMS)
    for n in [*range(70), 3, 2, 1, 0]:
        x = np.ones((2, n), np.float32)
        assert run(c, x)[0].tolist() == [n, n]


CHAIN = """
op @double(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = 2 * %x[...] } }
op @add(%x: tensor<...xf32>, %z: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %x[...] + %z[...] } }
op @plus(%x: tensor<...xf32>, %z: tensor<...xf32>) -> (%y: tensor<...xf32>) { compile { fast_math = true } compute { %y[...] = %x[...] + %z[...] } }
"""
# `@add` and `@plus` differ in their terms, so that they are not fused.


def test_buffers_are_reused_when_their_last_reader_is_done() -> None:
    nodes = "\n".join(f"%e{n + 1} = @{('add', 'plus')[n % 2]}(%e{n}, %e{max(0, n - 3)})" for n in range(20))
    c = compile_program(CHAIN + "pipeline @p(%e0: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n" + nodes + "\n%y = @double(%e20) }")
    want = [np.arange(500, dtype=np.float64)]
    for n in range(20):
        want.append(want[n] + want[max(0, n - 3)])
    np.testing.assert_array_equal(run(c, np.arange(500, dtype=np.float32)), (2 * want[20]).astype(np.float32))


def test_memory_of_other_shapes_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "IDLE_BYTES", 1 << 20)
    # What makes %t is not fused with what reads it, so that it needs memory of its own.
    c = compile_program(CHAIN + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %t = @double(%x)\n%y = @plus(%t, %x) }")
    for n in range(1, 12):
        x = np.ones(100_000 + n, np.float32)
        assert run(c, x)[-1] == 3
    kept = sum(plan.arena * len(idle) for plan, idle in c.executable._plans.values())
    assert 0 < kept <= (1 << 20) + 500_000


def test_a_ladder_of_forty_doublings() -> None:
    nodes = "\n".join(f"%e{n + 1} = @add(%e{n}, %e{n})" for n in range(40))
    c = compile_program(CHAIN + "pipeline @p(%e0: tensor<Nxf32>) -> (%e40: tensor<Nxf32>) {\n" + nodes + "}")
    assert run(c, f32(1, 3)).tolist() == [2.0**40, 3 * 2.0**40]


def test_results_may_be_inputs_and_one_another() -> None:
    c = compile_program(CHAIN + """
        pipeline @p(%x: tensor<Nxf32>) -> (%zero: tensor<Nxf32>, %y: tensor<Nxf32>, %again: tensor<Nxf32>, %also: tensor<Nxf32>) {
          %zero = @double(%x)
          %y = %x
          %again = %zero
          %also = %again }
        """)
    x = f32(2.3, -1)
    zero, y, again, also = run(c, x)
    for got, want in ((zero, 2 * x), (y, x), (again, 2 * x), (also, 2 * x)):
        np.testing.assert_array_equal(got, want)
    arrays = [x, zero, y, again, also]
    assert not any(np.shares_memory(a, b) for n, a in enumerate(arrays) for b in arrays[n + 1:])


def test_one_array_for_two_inputs() -> None:
    c = compile_program(CHAIN + "pipeline @p(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @add(%a, %b) }")
    x = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(run(c, x, x), 2 * x)
    np.testing.assert_array_equal(run(c, x[:50], x[50:]), x[:50] + x[50:])


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_results_belong_to_the_caller(size: int) -> None:
    c = compile_program(CHAIN + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @double(%x) }")
    kept = [run(c, np.full(size, n, np.float32)) for n in range(5)]
    part = run(c, np.full(size, 7, np.float32))[3:9]
    gc.collect()
    for _ in range(5):
        run(c, np.full(size, -1, np.float32))
    assert [k[0] for k in kept] == [0, 2, 4, 6, 8]
    assert [k[-1] for k in kept] == [0, 2, 4, 6, 8]
    assert part.tolist() == [14] * 6
    assert all(k.flags.writeable and k.flags.c_contiguous for k in kept)


def test_memory_of_results_is_used_again() -> None:
    memory.clear()
    c = compile_program(CHAIN + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @double(%x) }")
    x = np.ones(1_000_000, np.float32)
    addresses = set()
    for _ in range(6):
        addresses.add(run(c, x).ctypes.data)
    assert len(addresses) <= 2


def test_arrays_at_odd_addresses_are_read() -> None:
    c = pointwise("%x[i] + 1")
    data = bytearray(4 * 9 + 1)
    x = np.frombuffer(data, np.float32, 9, 1)
    x[:] = np.arange(9)
    assert x.ctypes.data % 4
    assert run(c, x).tolist() == list(range(1, 10))
    half = np.asarray([1, 2, 3], np.float16)[1:]
    assert run(pointwise("%x[i]", "f16", "f16"), half).tolist() == [2, 3]


# -------------------------------------------------------------------------------------------------------- attributes, conditions


def test_attributes_over_sizes() -> None:
    c = compile_program("""
        op @f(%x: tensor<Nxf32>, scale: f32, by: i32, M: dim) -> (%y: tensor<Mxf32>) {
          memory { border = constant(-1) }
          compute { %y[m] = %x[m + i64(by)] * scale } }
        pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<(N floordiv 2)xf32>) { %y = @f(%x) {scale = 1 / sqrt(f32(N)), by = 2, M = N floordiv 2} }
        """)
    for n in (4, 9, 16):
        x = np.arange(n, dtype=np.float32)
        padded = np.append(x, [-1, -1])
        np.testing.assert_allclose(run(c, x), padded[2:2 + n // 2] / np.sqrt(n), rtol=3e-7)


def test_conditions_are_checked_at_the_call() -> None:
    c = compile_program("""
        op @halves(%x: tensor<Nxf32>) -> (%y: tensor<(N floordiv 2)xf32>) { where N mod 2 == 0 compute { %y[i] = %x[2 * i] + %x[2 * i + 1] } }
        pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<(N floordiv 2)xf32>) { %y = @halves(%x) }
        """)
    assert run(c, f32(1, 2, 3, 4)).tolist() == [3, 7]
    with pytest.raises(ExecutionError, match="N = 3"):
        run(c, f32(1, 2, 3))


# ------------------------------------------------------------------------------------------------------------------- run time


GATHER = """
op @gather(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) { compute { %y[m] = %x[%i[m]] } }
pipeline @p(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) { %y = @gather(%x, %i) }
"""


def test_an_index_outside_is_an_error_with_a_place() -> None:
    c = compile_program(GATHER)
    x = f32(10, 11, 12)
    assert run(c, x, np.asarray([2, 0, 1], np.int32)).tolist() == [12, 10, 11]
    for bad in (3, -1, 2**31 - 1):
        with pytest.raises(ExecutionError) as caught:
            run(c, x, np.asarray([0, bad, 0], np.int32))
        (d,) = caught.value.diagnostics
        assert d.code == "PL6101"
        assert d.span.line == 2
        assert str(bad) in d.message
        assert "3" in d.message
    assert run(c, x, np.asarray([1], np.int32)).tolist() == [11]


def test_an_index_of_nothing() -> None:
    c = compile_program("""
        op @f(%x: tensor<MxNxf32>) -> (%y: tensor<Mxi32>) { compute { %y[m] = argmax[n < N](%x[m, n]) } }
        pipeline @p(%x: tensor<MxNxf32>) -> (%y: tensor<Mxi32>) { %y = @f(%x) }
        """)
    assert run(c, np.asarray([[3, 7, 7, 1]], np.float32)).tolist() == [1]
    assert run(c, np.zeros((0, 0), np.float32)).tolist() == []
    with pytest.raises(ExecutionError, match="PL6101"):
        run(c, np.zeros((2, 0), np.float32))


def test_calls_from_many_threads() -> None:
    nodes = "\n".join(f"%e{n + 1} = @add(%e{n}, %x)" for n in range(6))
    c = compile_program(CHAIN + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n%e0 = @double(%x)\n" + nodes + "\n%y = @double(%e6) }")
    faults: list[str] = []

    def work(k: int) -> None:
        for turn in range(60):
            x = np.full(1000 + 37 * (turn % 5), k + turn, np.float32)
            if not np.array_equal(run(c, x), 16 * x):
                faults.append(f"{k} {turn}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=60)
    assert not any(t.is_alive() for t in threads)
    assert faults == []


def test_two_definitions_of_one_name_in_a_process() -> None:
    two, three = pointwise("%x[i] * 2"), pointwise("%x[i] * 3")
    assert (run(two, f32(3))[0], run(three, f32(3))[0], run(two, f32(3))[0]) == (6, 9, 6)


@pytest.mark.parametrize("name", ["int", "double", "exp", "main", "malloc", "free", "NULL", "tmp0", "float4", "pl", "run", "k0"])
def test_names_of_c_and_of_ours(name: str) -> None:
    c = compile_program(f"""
        op @{name}(%{name}: tensor<Nxf32>) -> (%v1: tensor<Nxf32>) {{ compute {{ %v1[i] = exp(%{name}[i]) }} }}
        pipeline @p(%{name}: tensor<Nxf32>) -> (%entry: tensor<Nxf32>) {{ %entry = @{name}(%{name}) }}
        """)
    np.testing.assert_allclose(run(c, f32(0, 1, 2)), np.exp([0, 1, 2]), rtol=3e-7)


def test_texts_are_made_when_they_are_asked_for() -> None:
    c = compile_program(CHAIN + "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n%t = @double(%x)\n%y = @add(%t, %x) }")
    texts = c.executable.artifacts
    assert set(texts) == {"loops", "ll", "s"}
    assert "ll" in texts
    assert "kernel" in str(texts["loops"])
    jit.parse(str(texts["ll"]))
    assert ".text" in str(texts["s"])
    assert texts["s"] is texts["s"]
    assert dict(texts.items()).keys() == {"loops", "ll", "s"}


HASHES = """
import sys, hashlib
from pipelink_ir.runtime.compile import compile
c = compile(sys.argv[1])
print(hashlib.sha256(str(c.executable.artifacts["ll"]).encode()).hexdigest())
"""


def test_emitted_code_does_not_depend_on_the_hash_seed() -> None:
    import os
    texts = {subprocess.run([sys.executable, "-c", HASHES, SUMS + CHAIN], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True,
                            timeout=60).stdout for seed in ("0", "1", "77")}
    assert len(texts) == 1
