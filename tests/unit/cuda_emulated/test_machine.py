"""What a device does, played: blocks, shared memory, barriers, warps, atomics, and the prelude's combinations, against NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.cuda_emulated.hand import frozen, library, run

RNG = np.random.default_rng(7)

SOURCE = """
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ y, const int H, const int W) {
  __shared__ float tile[16][17];
  const int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  if (row < H && column < W) tile[threadIdx.y][threadIdx.x] = x[row * W + column];
  __syncthreads();
  const int down = blockIdx.x * 16 + threadIdx.y, across = blockIdx.y * 16 + threadIdx.x;
  if (down < W && across < H) y[down * H + across] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void row_sum(const float* __restrict__ x, float* __restrict__ y, const int W) {
  float sum = 0.0f;
  for (int k = threadIdx.x; k < W; k += blockDim.x) sum += x[blockIdx.x * W + k];
  for (int n = 16; n > 0; n /= 2) sum += __shfl_down_sync(0xffffffffu, sum, n);
  if (threadIdx.x % 32 == 0) atomicAdd(&y[blockIdx.x], sum);
}
extern "C" __global__ void blur(const float* __restrict__ x, f16* __restrict__ y, const index_t N) {
  PL_DYN_SHARED(float, staged);
  for (index_t first = pl::block() * pl::threads(); first < N; first += pl::blocks() * pl::threads()) {
    __syncthreads();
    for (int k = pl::thread(); k < pl::threads() + 2; k += pl::threads()) {
      staged[k] = x[pl::min(pl::max(first + k - 1, 0), N - 1)];
    }
    __syncthreads();
    const int k = pl::thread();
    if (first + k < N) y[first + k] = f16((staged[k] + staged[k + 1] + staged[k + 2]) / 3.0f);
  }
}
extern "C" __global__ void lanes(int* up, int* flip, unsigned* odd, int* part, unsigned* alike, int* counted) {
  const int t = threadIdx.x;
  up[t] = __shfl_up_sync(0xffffffffu, t, 3);
  flip[t] = __shfl_xor_sync(0xffffffffu, t, 1, 8);
  odd[t] = __ballot_sync(0xffffffffu, t & 1);
  part[t] = -1;
  if (t % 32 < 8) part[t] = __shfl_sync(0xffu, t, 5) + 100 * __any_sync(0xffu, t % 32 == 7) + 1000 * __all_sync(0xffu, t % 32 == 7);
  alike[t] = __match_any_sync(0xffffffffu, t % 3);
  counted[t] = __syncthreads_count(t % 5 == 0) + 1000 * __syncthreads_and(t >= 0) + 2000 * __syncthreads_or(t > 1000);
}
extern "C" __global__ void combine(const float* x, const int* n, float* f, double* d, i64* i, bool* b) {
  const int t = threadIdx.x;
  float best = x[t];
  i64 at = n[t] > 0 ? t : -1;
  pl::block_argmax(best, at);
  if (pl::leader()) f[0] = best, i[0] = at;
  const float sum = pl::block_sum(x[t]), most = pl::block_max(x[t]), least = pl::block_min(x[t]);
  const double wide = pl::block_sum(double(x[t]));
  const int whole = pl::block_prod(n[t]);
  const bool any = pl::block_any(n[t] == 3), all = pl::block_all(n[t] == 3);
  if (pl::leader()) f[1] = sum, f[2] = most, f[3] = least, d[0] = wide, i[1] = whole, b[0] = any, b[1] = all;
}
extern "C" __global__ void counters(int* c, unsigned* u, unsigned long long* w, float* f) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicMax(&c[0], t);
  atomicMin(&c[1], -t);
  atomicSub(&c[2], 2);
  atomicXor(&c[3], t);
  atomicInc(&u[0], 9u);
  atomicDec(&u[1], 4u);
  atomicOr(&u[2], 1u << (t % 32));
  atomicAdd(&w[0], 1ull << 32);
  while (atomicCAS(&u[3], 0u, 1u) != 0u) {}
  __threadfence();
  f[0] = f[0] + 1.0f;
  __threadfence();
  atomicExch(&u[3], 0u);
}
extern "C" __global__ void indices(int* seen, const int x, const int y, const int z) {
  const int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  seen[b * (blockDim.x * blockDim.y * blockDim.z) + t] += gridDim.x == x && gridDim.y == y && gridDim.z == z;
}
__device__ int calls;
__constant__ float weights[3] = {0.5f, 0.25f, 0.125f};
extern "C" __global__ void globals(float* y) {
  atomicAdd(&calls, 1);
  y[threadIdx.x] = weights[threadIdx.x % 3] + calls;
}
extern "C" __global__ void passed_on(int* y) {
  extern __shared__ int line[];
  line[threadIdx.x] = threadIdx.x;
  __syncwarp();
  y[threadIdx.x] = line[threadIdx.x ^ 1];
}
extern "C" __global__ void pieces(u8* scratch, i64* at) {
  pl::Arena common = pl::block_arena(nullptr, scratch, 32), own = pl::thread_arena(scratch, 32, 48);
  const index_t i = 4 * pl::grid_thread();
  at[i] = common.take<u8>(3) - scratch;
  at[i + 1] = reinterpret_cast<u8*>(common.take<i64>(2)) - scratch;
  at[i + 2] = own.take<u8>(1) - scratch;
  at[i + 3] = reinterpret_cast<u8*>(own.take<double>(3)) - scratch;
}
extern "C" __global__ void wide_index(i64* y, const index_t n) { y[0] = sizeof(index_t) + n; }
"""
KERNELS = ("transpose", "row_sum", "blur", "lanes", "combine", "counters", "indices", "globals", "passed_on", "pieces", "wide_index")


@pytest.fixture(scope="module")
def lib() -> Any:
    return library(SOURCE, KERNELS)


@pytest.mark.parametrize(("h", "w"), [(64, 64), (37, 45), (1, 70), (16, 1)])
def test_a_transpose_through_a_shared_tile(lib: Any, h: int, w: int) -> None:
    x = RNG.standard_normal((h, w)).astype(np.float32)
    y = np.full((w, h), np.nan, np.float32)
    run(lib, "transpose", (-(-w // 16), -(-h // 16)), (16, 16), frozen(x), y, np.int32(h), np.int32(w))
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("width", [1, 31, 64, 333])
def test_sums_of_rows_by_shuffles_and_atomics(lib: Any, width: int) -> None:
    x = RNG.integers(-9, 9, (5, width)).astype(np.float32)
    y = np.zeros(5, np.float32)
    run(lib, "row_sum", 5, 128, frozen(x), y, np.int32(width))
    np.testing.assert_array_equal(y, x.sum(1))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_a_stencil_in_dynamic_shared_memory(lib: Any, n: int) -> None:
    x = RNG.standard_normal(n).astype(np.float32)
    y = np.zeros(n, np.float16)
    run(lib, "blur", 3, 64, frozen(x), y, np.int32(n), shared=4 * 66)
    padded = np.pad(x, 1, mode="edge")
    np.testing.assert_array_equal(y, ((padded[:-2] + padded[1:-1] + padded[2:]) / np.float32(3)).astype(np.float16))


def test_lanes_of_a_warp(lib: Any) -> None:
    t = np.arange(64)
    up, flip, part, counted = (np.zeros(64, np.int32) for _ in range(4))
    odd, alike = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    run(lib, "lanes", 1, 64, up, flip, odd, part, alike, counted)
    np.testing.assert_array_equal(up, np.where(t % 32 < 3, t, t - 3))
    np.testing.assert_array_equal(flip, t ^ 1)
    assert set(odd) == {0xaaaaaaaa}
    np.testing.assert_array_equal(part, np.where(t % 32 < 8, t // 32 * 32 + 5 + 100, -1))
    np.testing.assert_array_equal(alike, [sum(1 << j % 32 for j in range(i // 32 * 32, i // 32 * 32 + 32) if j % 3 == i % 3) for i in t])
    assert set(counted) == {13 + 1000}


@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_combinations_of_a_block(lib: Any, threads: int) -> None:
    x = RNG.integers(-50, 50, threads).astype(np.float32)
    n = RNG.choice([-1, 1, 3], threads).astype(np.int32)
    f, d, i, b = np.zeros(4, np.float32), np.zeros(1), np.zeros(2, np.int64), np.zeros(2, np.bool_)
    run(lib, "combine", 1, threads, frozen(x), frozen(n), f, d, i, b)
    candidates = np.where(n > 0, x, -np.inf)
    assert (f[0], i[0]) == (candidates.max(), candidates.argmax())
    assert f[1:].tolist() == [x.sum(), x.max(), x.min()]
    assert d[0] == x.sum(dtype=np.float64)
    assert i[1] == np.multiply.reduce(n.astype(np.int32), dtype=np.int32)
    assert b.tolist() == [bool((n == 3).any()), bool((n == 3).all())]


def test_atomics_and_a_lock(lib: Any) -> None:
    c, u, w, f = np.zeros(4, np.int32), np.zeros(4, np.uint32), np.zeros(1, np.uint64), np.zeros(1, np.float32)
    run(lib, "counters", 3, 40, c, u, w, f)
    assert c.tolist() == [119, -119, -240, int(np.bitwise_xor.reduce(np.arange(120)))]
    assert u.tolist() == [120 % 10, (5 - 120 % 5) % 5, 0xffffffff, 0]
    assert w[0] == 120 << 32
    assert f[0] == 120


def test_indices_along_three_axes(lib: Any) -> None:
    seen = np.zeros(2 * 3 * 4 * 5 * 2 * 3, np.int32)
    run(lib, "indices", (2, 3, 4), (5, 2, 3), seen, np.int32(2), np.int32(3), np.int32(4))
    assert (seen == 1).all()


def test_global_variables(lib: Any) -> None:
    y = np.zeros(6, np.float32)
    run(lib, "globals", 1, 1, y)
    np.testing.assert_array_equal(y[:1], [1.5])


def test_a_warp_that_waits_for_itself(lib: Any) -> None:
    y = np.zeros(64, np.int32)
    run(lib, "passed_on", 1, 32, y[:32], shared=128)
    np.testing.assert_array_equal(y[:32], np.arange(32) ^ 1)


def test_pieces_of_scratch(lib: Any) -> None:
    """First those of all blocks, then those of all threads; each begins at a multiple of 16."""
    at = np.zeros((2, 3, 4), np.int64)
    run(lib, "pieces", 2, 3, np.zeros(16, np.uint8), at)
    block, thread = np.arange(2)[:, None], np.arange(3)[None]
    own = 2 * 32 + 48 * (3 * block + thread)
    np.testing.assert_array_equal(at, np.stack(np.broadcast_arrays(32 * block, 32 * block + 16, own, own + 16), -1))


def test_indices_of_64_bits() -> None:
    y = np.zeros(1, np.int64)
    run(library(SOURCE, KERNELS), "wide_index", 1, 1, y, np.int32(7))
    assert y[0] == 4 + 7
    run(library(SOURCE, KERNELS, True), "wide_index", 1, 1, y, np.int64(1 << 40))
    assert y[0] == 8 + (1 << 40)
