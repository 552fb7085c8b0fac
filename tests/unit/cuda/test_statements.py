"""How statements and whole kernels of the loop form are written, and what the host is told of them."""
from __future__ import annotations

import pytest

from pipelink_ir.backends.cuda.emit import Parameter, emit_program
from pipelink_ir.backends.cuda.target_facts import HIP
from pipelink_ir.backends.loops.form import Alloc, Assign, Barrier, Combine, Const, Convert, Fail, For, If, Kernel, Let, Load, Move, Ref, Store, Thread, Var
from pipelink_ir.ir.diagnostics import InternalError
from pipelink_ir.ir.dtypes import BOOL, F16, F32, F64, I32, I64, U8
from tests.unit.cuda.forms import ONE, ZERO, I, N, buffer, code, emitted, f32, grid, i64, kernel, load, op, program

T = Ref("t", I64)


def block(*body: object) -> For:
    return For("b", ZERO, N, ONE, tuple(body), "block")  # type: ignore[arg-type]


def each(*body: object, hi: object = N) -> For:
    return For("t", ZERO, hi, ONE, tuple(body), "thread")  # type: ignore[arg-type]


def lines(k: Kernel) -> list[str]:
    return [line.strip() for line in emitted(k).splitlines()]


def test_a_kernel() -> None:
    assert emitted(kernel(grid(Store("y", I, op("*", load("x"), f32(2.0)), F32)))) == """
// test.y
extern "C" __global__ void __launch_bounds__(256)
test_y(const float* __restrict__ x, float* __restrict__ y, const index_t N) {
  for (index_t i = pl::grid_thread(); i < N; i += pl::grid_threads()) {
    y[i] = x[i] * 2.0f;
  }
}
"""


def test_parameters_are_what_the_host_is_told() -> None:
    k = kernel(grid(If(op("<", load("x", F16), Ref("low", F32)), (Fail(0, (I, Convert(Ref("k", I32), I64, I64))),)), Store("y", I, Ref("k", I32), U8)),
               buffer("x", F16), buffer("y", U8, "result"), scalars=(("low", F32), ("k", I32), ("flag", BOOL)))
    text = emitted(k).replace("\n    ", " ")
    assert "test_y(const f16* __restrict__ x, u8* __restrict__ y, const index_t N, const float low, const int k," in text
    assert "const int k, const bool flag, pl::Status* status) {" in text
    assert code(k).parameters == (Parameter("buffer", "x", F16), Parameter("buffer", "y", U8), Parameter("symbol", "N"), Parameter("scalar", "low", F32),
                                  Parameter("scalar", "k", I32), Parameter("scalar", "flag", BOOL), Parameter("status", "status"))
    assert "pl::fail(status, 0, i, i64(k));" in text
    assert [p.bytes(False) for p in code(k).parameters] == [8, 8, 4, 4, 4, 1, 8]
    assert [p.bytes(True) for p in code(k).parameters] == [8, 8, 8, 4, 4, 1, 8]


def test_a_kernel_of_the_cpu_s_form() -> None:
    parallel = For("i", ZERO, N, i64(4), (Store("y", I, load("x"), F32),), "parallel")
    assert "for (index_t i = pl::grid_thread() * 4; i < N; i += pl::grid_threads() * 4) {" in emitted(kernel(parallel))
    once = kernel((Store("y", ZERO, load("x", index=ZERO), F32),))
    assert code(once).per == "once"
    assert "  if (pl::grid_thread() == 0) {\n    y[0] = x[0];\n  }\n" in emitted(once)


@pytest.mark.parametrize(("loop", "text"), [
    (For("j", ZERO, i64(3), ONE, ()), "for (index_t j = 0; j < 3; j++) {"),
    (For("j", I, N, i64(2), ()), "for (index_t j = i; j < N; j += 2) {"),
    (For("j", ZERO, op("-", N, ONE), ONE, ()), "for (index_t j = 0, j_end = N - 1; j < j_end; j++) {"),
    (For("j", ZERO, Ref("n", I64), ONE, ()), "for (i64 j = 0, j_end = n; j < j_end; j++) {"),
    (For("j", Convert(load("x", I32), I64, I64), N, ONE, ()), "for (i64 j = i64(x[i]); j < N; j++) {"),
])
def test_loops(loop: For, text: str) -> None:
    k = kernel(grid(Var("n", I64, ZERO), loop), buffer("x", I32), buffer("y", kind="result"))
    assert text in lines(k)


def test_variables_and_branches() -> None:
    k = kernel(grid(Var("s", F32, f32(0.0)), Assign("s", op("+", Ref("s", F32), load("x"))), Assign("s", op("-", load("x"), Ref("s", F32))),
                    If(op(">", Ref("s", F32), f32(1.0)), (Assign("s", f32(1.0)),), (Assign("s", op("neg", Ref("s", F32))),)), Store("y", I, Ref("s", F32), F32)))
    assert lines(k)[5:14] == ["float s = 0.0f;", "s += x[i];", "s = x[i] - s;", "if (s > 1.0f) {", "s = 1.0f;", "} else {", "s = -s;", "}", "y[i] = s;"]


def test_integers_are_not_added_in_place() -> None:
    k = kernel(grid(Var("n", I32, Const(0, I32)), Assign("n", op("+", Ref("n", I32), Const(1, I32)))))
    assert "n = pl::add(n, 1);" in lines(k)


def test_a_block() -> None:
    """Uniform stores are done by the leader, those of a `thread` loop by every thread."""
    k = kernel(block(Var("s", F64, Const(0.0, F64)), each(Assign("s", op("+", Ref("s", F64), Convert(load("x", index=T), F64, F64)))), Combine("sum", ("s",)),
                     Store("y", Ref("b", I64), Ref("s", F64), F32), Store("z", Ref("b", I64), Ref("s", F64), F32), Barrier(),
                     each(Store("y", T, Load("y", Ref("b", I64), F32, F32), F32))), buffer("x"), buffer("y", kind="result"), buffer("z", kind="result"))
    assert lines(k)[4:] == [
        "for (index_t b = pl::block(); b < N; b += pl::blocks()) {", "double s = 0.0;", "for (index_t t = pl::thread(); t < N; t += pl::threads()) {", "s += double(x[t]);",
        "}", "s = pl::block_sum(s);", "if (pl::leader()) {", "y[b] = float(s);", "z[b] = float(s);", "}", "__syncthreads();",
        "for (index_t t_2 = pl::thread(); t_2 < N; t_2 += pl::threads()) {", "y[t_2] = y[b];", "}", "}", "}"]
    assert code(k).per == "block"


def test_stores_in_uniform_branches_and_loops_are_the_leader_s() -> None:
    store = Store("y", Ref("j", I64), f32(1.0), F32)
    k = kernel(block(For("j", ZERO, N, ONE, (If(op("<", Ref("j", I64), ONE), (store,)),))))
    assert lines(k)[5:11] == ["for (index_t j = 0; j < N; j++) {", "if (j < 1) {", "if (pl::leader()) {", "y[j] = 1.0f;", "}", "}"]


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min", "any", "all"])
def test_combining_one_value(fn: str) -> None:
    dtype = BOOL if fn in ("any", "all") else F32
    k = kernel(block(Var("v", dtype, Const(False, BOOL) if dtype is BOOL else f32(0.0)), Combine(fn, ("v",))))
    assert f"v = pl::block_{fn}(v);" in lines(k)


def test_combining_a_value_and_its_place() -> None:
    k = kernel(block(Var("v", F32, f32(0.0)), Var("at", I32, Const(-1, I32)), Combine("argmin", ("v", "at"))))
    assert "pl::block_argmin(v, at);" in lines(k)


def test_threads_that_are_counted() -> None:
    """With an exact number of threads, a loop over them is one turn for each."""
    k = kernel(block(each(Store("y", T, f32(0.0), F32), hi=i64(128))), threads=128)
    assert lines(k)[2:9] == ['extern "C" __global__ void __launch_bounds__(128)', "test_y(const float* __restrict__ x, float* __restrict__ y, const index_t N) {",
                             "for (index_t b = pl::block(); b < N; b += pl::blocks()) {", "{", "const index_t t = pl::thread();", "y[t] = 0.0f;", "}"]
    assert (code(k).threads, code(k).exact) == (128, True)
    assert not code(kernel(grid())).exact


# ----------------------------------------------------------------------------------------------------------------------- scratch


def test_shared_memory() -> None:
    """It stands at the top; before each turn that reuses it all threads meet."""
    k = kernel(block(Alloc("tile", F16, i64(64), shared=True), Alloc("more", F32, i64(3), shared=True),
                     each(Store("tile", T, load("x", index=T), F16)), Barrier(), Store("more", ZERO, f32(1.0), F32), Store("y", ZERO, Load("tile", ZERO, F16, F32), F32)))
    assert lines(k)[4:8] == ["__shared__ f16 tile[64];", "__shared__ float more[3];", "for (index_t b = pl::block(); b < N; b += pl::blocks()) {",
                             "__syncthreads();  // what the last turn left in shared memory has been read"]
    assert lines(k).count("if (pl::leader()) {") == 1
    assert code(k).static_shared == 128 + 16
    assert not code(k).shared


def test_more_shared_memory_than_a_kernel_may_declare() -> None:
    k = kernel(block(Alloc("tile", F32, i64(20000), shared=True), Store("tile", ZERO, f32(0.0), F32)))
    text = lines(k)
    assert "PL_DYN_SHARED(u8, shared_memory);" in text
    assert "pl::Arena common = pl::block_arena(shared_memory, scratch, block_bytes);" in text
    assert "float* const tile = common.take<float>(20000);" in text
    assert [p.kind for p in code(k).parameters][-2:] == ["scratch", "block_bytes"]
    assert [(s.name, s.bytes, s.count) for s in code(k).shared] == [("tile", 4, i64(20000))]


def test_scratch_of_a_thread() -> None:
    k = kernel(grid(Alloc("few", F32, i64(9)), Alloc("many", I32, op("*", N, i64(2))), Alloc("huge", F64, i64(4096)), Store("few", ZERO, f32(0.0), F32),
                    Store("many", ZERO, Const(1, I32), I32), Store("huge", ZERO, f32(1.0), F64)))
    text = lines(k)
    assert text[5:8] == ["pl::Arena own = pl::thread_arena(scratch, block_bytes, thread_bytes);", "int* const many = own.take<int>(N * 2);",
                         "double* const huge = own.take<double>(4096);"]
    assert "float few[9];" in text
    assert [p.kind for p in code(k).parameters][-3:] == ["scratch", "block_bytes", "thread_bytes"]


def test_scratch_of_a_thread_is_written_by_every_thread() -> None:
    k = kernel(block(Alloc("own_row", F32, i64(4)), Store("own_row", ZERO, f32(0.0), F32), Store("y", ZERO, f32(0.0), F32)))
    text = lines(k)
    assert text[text.index("own_row[0] = 0.0f;") + 1] == "if (pl::leader()) {"


def test_scratch_whose_size_a_local_names() -> None:
    """The size at the top of the kernel is over symbols: the locals in it are put in."""
    k = kernel(grid(Let("n", op("+", N, ONE)), Alloc("row", F32, op("*", Ref("n", I64), i64(2)))))
    assert "float* const row = own.take<float>((N + 1) * 2);" in lines(k)


def test_scratch_of_a_size_that_data_tell() -> None:
    k = kernel(grid(Let("n", Convert(load("x", I32), I64, I64)), Alloc("row", F32, Ref("n", I64)), Store("row", ZERO, f32(0.0), F32)), buffer("x", I32))
    text = lines(k)
    assert text[6:10] == ["float* const row = pl::heap<float>(n, status);", "if (row == nullptr) return;", "row[0] = 0.0f;", "pl::release(row);"]
    assert code(k).parameters[-1].kind == "status"


def test_shared_memory_of_a_size_that_data_tell_is_a_fault_of_ours() -> None:
    with pytest.raises(InternalError, match="a size that the host cannot know"):
        emitted(kernel(block(Let("n", Convert(load("x", I32, ZERO), I64, I64)), Alloc("row", F32, Ref("n", I64), shared=True)), buffer("x", I32)))


@pytest.mark.parametrize("inner", [Alloc("s", F32, ONE, shared=True), Combine("sum", ("v",)), each()])
def test_what_only_a_whole_block_may_do(inner: object) -> None:
    with pytest.raises(InternalError):
        emitted(kernel(block(Var("v", F32, f32(0.0)), each(inner))))
    with pytest.raises(InternalError):
        emitted(kernel(grid(Var("v", F32, f32(0.0)), inner)))


# ------------------------------------------------------------------------------------------------------------------ whole files


def test_more_buffers_than_parameters_go_in_a_table() -> None:
    names = [f"x{n}" for n in range(600)]
    total = load(names[0])
    k = kernel(grid(Store("y", I, total, F32)), *(buffer(n) for n in names), buffer("y", kind="result"))
    assert [p.kind for p in code(k).parameters] == ["buffers", "symbol"]
    text = lines(k)
    assert "test_y(void* const* buffers, const index_t N) {" in text
    assert "const float* __restrict__ x599 = static_cast<const float*>(buffers[599]);" in text
    assert "float* __restrict__ y = static_cast<float*>(buffers[600]);" in text


def test_buffers_that_may_be_one() -> None:
    from pipelink_ir.backends.cuda.emit import emit_unit
    p = program(kernel(grid(Store("y", I, load("x"), F32))))
    unit = emit_unit([(p, None)], aliased={p.name: frozenset({"x", "y"})})
    assert "test_y(const float* x, float* y, const index_t N) {" in unit.text


def test_hip_is_another_table() -> None:
    k = kernel(block(Var("s", F32, f32(0.0)), Combine("sum", ("s",)), Barrier()))
    hip, cuda = emit_program(program(k), facts=HIP).whole, emit_program(program(k)).whole
    assert "#include <hip/hip_runtime.h>" in hip
    assert "#define PL_SHUFFLE_DOWN(value, lanes) __shfl_down(value, lanes, 32)" in hip
    assert "__shfl_down_sync(0xffffffffu" not in hip
    assert "__shfl_down_sync(0xffffffffu" in cuda
    assert hip.split("using namespace pl::types;\n")[1] == cuda.split("using namespace pl::types;\n")[1]
    assert '#include "pipelink.cuh"' not in cuda


def test_long_lines_are_broken() -> None:
    total = load("x")
    for n in range(30):
        total = op("+", total, op("*", load("x", index=op("+", I, i64(n))), f32(n + 0.5)))  # type: ignore[assignment]
    text = emitted(kernel(grid(Store("y", I, total, F32))))
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("\n        + ") == 2


def test_neighbours_are_moved_by_one_access() -> None:
    body = (Alloc("mine", F32, i64(8)), Move("mine", ZERO, "x", op("*", I, i64(8)), 8), Alloc("both", F16, i64(8), True), Move("y", op("*", I, i64(8)), "mine", ZERO, 8))
    text = emitted(kernel(grid(*body[:2], body[3]), buffer("x", F16), buffer("y", F16, "result")))
    assert "pl::load_many<8>(&mine[0], &x[i * 8]);" in text
    assert "pl::store_many<8>(&y[i * 8], &mine[0]);" in text
    shared = emitted(kernel(block(body[2], each(Move("both", op("*", T, i64(8)), "x", op("*", T, i64(8)), 8))), buffer("x", F16), buffer("y", F16, "result")))
    assert "alignas(16) __shared__ f16 both[8];" in shared
    assert "pl::copy_many<8>(&both[t * 8], &x[t * 8]);" in shared


def test_a_team_for_given_sizes() -> None:
    team = op("*", op("min", op("floordiv", op("+", N, i64(31)), i64(32)), i64(8)), i64(32))
    threads, number = Let("threads", team), Let("n", Thread())
    turn = For("t", ZERO, Ref("threads", I64), ONE, (Store("y", T, load("x", index=Ref("n", I64)), F32),), "each")
    k = Kernel("test.y", (buffer("x"), buffer("y", kind="result")), ("N",), (), (threads, block(number, turn)), device="gpu", threads=256, team=team)
    text = emitted(k)
    assert "const index_t threads = pl::threads();" in text
    assert "const index_t n = pl::thread();" in text
    assert "const index_t t = pl::thread();" in text
    assert [code(k).team({"N": n}) for n in (1, 33, 256, 5000)] == [32, 64, 256, 256]


def test_groups_combine_where_that_is_asked_for() -> None:
    apart = op("<", N, i64(9))
    text = emitted(kernel(block(Var("s", F32, f32(0.0)), Combine("sum", ("s",), apart), Var("i", I32, Const(0, I32)), Combine("argmax", ("s", "i"), apart))))
    assert "s = N < 9 ? pl::lanes_sum(s) : pl::block_sum(s);" in text
    assert "if (N < 9) pl::lanes_argmax(s, i);\n    else pl::block_argmax(s, i);" in text


def test_loops_that_are_written_out() -> None:
    inner = For("d", ZERO, i64(4), ONE, (Store("y", op("+", op("*", I, i64(4)), Ref("d", I64)), f32(1.0), F32),), unroll=True)
    assert "    PL_UNROLL\n    for (index_t d = 0; d < 4; d++) {" in emitted(kernel(grid(inner)))
