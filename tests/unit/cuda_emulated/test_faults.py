"""Every fault that the machine looks for, provoked: it is found, named, and told with its line; and what is near it but right is not reported."""
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.unit.cuda_emulated.hand import fault, frozen, library, run

# Each kernel has its name on a line of its own, so that lines can be counted from there.
SOURCE = """
extern "C" __global__ void two_barriers(int* y) {
  if (threadIdx.x < 16) __syncthreads();
  else {
    __syncthreads();
  }
}
extern "C" __global__ void left_early(int* y) {
  if (threadIdx.x >= 20) return;
  __syncthreads();
}
extern "C" __global__ void divergent_shuffle(int* y) {
  int v = threadIdx.x;
  if (threadIdx.x < 8) v = __shfl_down_sync(0xffffffffu, v, 1);
  __syncthreads();
  y[threadIdx.x] = v;
}
extern "C" __global__ void shuffle_of_the_gone(int* y) {
  if (threadIdx.x == 3) return;
  y[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}
extern "C" __global__ void mask_without_me(int* y) {
  y[threadIdx.x] = __shfl_sync(0x7fffffffu, 1, 0);
}
extern "C" __global__ void other_masks(int* y) {
  y[threadIdx.x] = threadIdx.x % 32 < 16 ? __ballot_sync(0xffffffffu, 0) : __ballot_sync(0xffffffffu, 1);
}
extern "C" __global__ void reads_outside_of_the_mask(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1, 20);
}
extern "C" __global__ void race_in_shared(int* y) {
  __shared__ int tile[64];
  tile[threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
extern "C" __global__ void no_race_in_shared(int* y) {
  __shared__ int tile[64];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
extern "C" __global__ void race_of_the_next_turn(int* y) {
  __shared__ int tile[64];
  for (int turn = 0; turn < 2; turn++) {
    tile[threadIdx.x] = threadIdx.x + turn;
    __syncthreads();
    y[threadIdx.x] = tile[63 - threadIdx.x];
  }
}
extern "C" __global__ void race_in_memory(int* y) { y[threadIdx.x / 2] = 1; }
extern "C" __global__ void race_of_blocks(int* y) { y[threadIdx.x] = blockIdx.x; }
extern "C" __global__ void race_with_an_atomic(int* y) {
  atomicAdd(&y[0], 1);
  if (threadIdx.x == 1) y[1] = y[0];
}
extern "C" __global__ void reads_the_unset(int* y) {
  __shared__ int tile[64];
  if (threadIdx.x < 32) tile[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}
extern "C" __global__ void writes_behind(int* y, const int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = i;
}
extern "C" __global__ void reads_before(const int* x, int* y) { y[threadIdx.x] = x[int(threadIdx.x) - 1]; }
extern "C" __global__ void writes_an_operand(int* x) { x[threadIdx.x] = 1; }
extern "C" __global__ void far_outside(int* y) { y[1ll << 40] = 1; }
extern "C" __global__ void odd_address(char* y) { *reinterpret_cast<int*>(y + 2) = 1; }
extern "C" __global__ void index_of_an_array(int* y) {
  int own[4] = {1, 2, 3, 4};
  y[0] = own[y[1]];
}
extern "C" __global__ void overflow(int* y) {
  const int big = y[0];
  y[1] = big * 3;
}
extern "C" __global__ void lost_cast(int* y, const float x) { y[0] = int(x); }
extern "C" __global__ void spins(int* y) { while (atomicAdd(&y[0], 0) == 0) {} }
extern "C" __global__ void asserts(int* y) { assert(threadIdx.x < 5); }
extern "C" __global__ void after_it_is_given_back(int* y) {
  int* const piece = pl::heap<int>(4, nullptr);
  piece[0] = 1;
  pl::release(piece);
  y[0] = piece[0];
}
extern "C" __global__ void too_deep(int* y) { y[threadIdx.x] = 1; }
"""
KERNELS = tuple(re.findall(r"void (\w+)\(", SOURCE))


@pytest.fixture(scope="module")
def lib() -> Any:
    return library(SOURCE, KERNELS)


def line_of(kernel: str, offset: int) -> int:
    """The line of the text `offset` lines below the head of a kernel."""
    return next(n for n, text in enumerate(SOURCE.split("\n"), 1) if f"void {kernel}(" in text) + offset


def numbers(n: int = 64) -> Any:
    return np.zeros(n, np.int32)


def test_threads_at_different_barriers(lib: Any) -> None:
    text = fault(lib, "two_barriers", 1, 32, numbers())
    at = [line_of("two_barriers", n) for n in (1, 3)]
    assert f"threads wait at different barriers: thread 0 at hand.cu:{at[0]}, thread 16 at hand.cu:{at[1]}" in text
    assert text.startswith("kernel two_barriers, block (0, 0, 0) of (1, 1, 1)")


def test_a_barrier_that_some_have_left(lib: Any) -> None:
    text = fault(lib, "left_early", 2, 64, numbers())
    assert f"thread 0 waits at the barrier hand.cu:{line_of('left_early', 2)}, thread 20 has returned" in text


def test_a_shuffle_in_a_divergent_branch(lib: Any) -> None:
    text = fault(lib, "divergent_shuffle", 1, 64, numbers())
    assert f"deadlock at hand.cu:{line_of('divergent_shuffle', 2)}: thread 0 waits for the lanes ffffffff of its warp" in text


def test_a_shuffle_with_a_lane_that_is_gone(lib: Any) -> None:
    assert "has returned" in fault(lib, "shuffle_of_the_gone", 1, 32, numbers())


def test_a_shuffle_with_lanes_that_do_not_exist(lib: Any) -> None:
    assert "lane 31 of the mask 7fffffff" not in fault(lib, "mask_without_me", 1, 16, numbers())
    assert "lane 16 of the mask 7fffffff does not exist" in fault(lib, "mask_without_me", 1, 16, numbers())


def test_masks(lib: Any) -> None:
    assert "lane 31 is not in its own mask 7fffffff" in fault(lib, "mask_without_me", 1, 32, numbers())
    assert "lanes of one warp wait at different operations" in fault(lib, "other_masks", 1, 32, numbers())
    assert "reads lane 20, which is not in the mask 0000ffff" in fault(lib, "reads_outside_of_the_mask", 1, 32, numbers())


def test_races_in_shared_memory(lib: Any) -> None:
    text = fault(lib, "race_in_shared", 1, 64, numbers())
    assert "thread 0 reads 'tile'[63], which nobody has written" in text
    y = numbers()
    run(lib, "no_race_in_shared", 1, 64, y)
    np.testing.assert_array_equal(y, 63 - np.arange(64))


def test_a_barrier_that_is_missing_at_the_end_of_a_turn(lib: Any) -> None:
    text = fault(lib, "race_of_the_next_turn", 1, 64, numbers())
    below = [line_of("race_of_the_next_turn", n) for n in (3, 5)]
    assert re.search(rf"\[hand.cu:{below[1]}\] race at 'tile'\[32\]: thread 31 reads it, thread 32 wrote it \[hand.cu:{below[0]}\]", text)


def test_races_in_memory(lib: Any) -> None:
    assert "race at 'arg0'[0]: thread 1 writes it, thread 0 wrote it" in fault(lib, "race_in_memory", 1, 64, numbers())
    assert "thread 0 writes it, thread 0 of block 0 wrote it" in fault(lib, "race_of_blocks", 2, 1, numbers())
    run(lib, "race_of_blocks", 1, 64, numbers())
    assert "thread 1 reads it, an atomic wrote it" in fault(lib, "race_with_an_atomic", 1, 2, numbers())


def test_shared_memory_that_nobody_has_written(lib: Any) -> None:
    assert re.search(r"thread (32|63) reads 'tile'\[\d+\], which nobody has written", fault(lib, "reads_the_unset", 1, 64, numbers()))


def test_accesses_outside(lib: Any) -> None:
    text = fault(lib, "writes_behind", 2, 40, numbers(60), np.int32(60))
    assert f"[hand.cu:{line_of('writes_behind', 2)}] thread" in text
    assert "bytes at element 79 of 'arg0', which has 60" in text
    assert "reads 4 bytes at element -1 of 'arg0', which has 64" in fault(lib, "reads_before", 1, 4, frozen(numbers()), numbers())
    assert "far_outside" in fault(lib, "far_outside", 1, 1, numbers())


def test_operands_are_only_read(lib: Any) -> None:
    x = frozen(numbers())
    assert "writes 'arg0'[0], which may only be read" in fault(lib, "writes_an_operand", 1, 1, x)
    assert not x.any()


def test_addresses_that_are_not_aligned(lib: Any) -> None:
    assert "touches 4 bytes at an odd address in 'arg0'" in fault(lib, "odd_address", 1, 1, np.zeros(16, np.int8))


def test_undefined_arithmetic(lib: Any) -> None:
    y = numbers()
    y[:2] = [1 << 30, 7]
    assert f"hand.cu:{line_of('overflow', 2)}: thread 0: a product of integers does not fit" in fault(lib, "overflow", 1, 1, y)
    assert "an index outside of its array" in fault(lib, "index_of_an_array", 1, 1, y)
    assert "a float does not fit" in fault(lib, "lost_cast", 1, 1, y, np.float32(3e9))


def test_threads_that_spin_for_ever(lib: Any) -> None:
    assert "threads spin on atomics, and nothing changes" in fault(lib, "spins", 1, 4, numbers())


def test_assertions(lib: Any) -> None:
    assert f"hand.cu:{line_of('asserts', 0)}: thread 5 stops: assertion fails: threadIdx.x < 5" in fault(lib, "asserts", 1, 8, numbers())


def test_memory_that_was_given_back(lib: Any) -> None:
    assert "reads 4 bytes" in fault(lib, "after_it_is_given_back", 1, 1, numbers())


@pytest.mark.parametrize(("block", "shared"), [(1025, 0), ((32, 33), 0), (0, 0), (32, 229 << 10)])
def test_launches_that_are_not_possible(lib: Any, block: Any, shared: int) -> None:
    assert "is not possible" in fault(lib, "too_deep", 1, block, numbers(), shared=shared)


def test_after_a_fault_everything_runs(lib: Any) -> None:
    fault(lib, "two_barriers", 1, 32, numbers())
    y = numbers()
    run(lib, "no_race_in_shared", 1, 64, y)
    np.testing.assert_array_equal(y, 63 - np.arange(64))
