// Threads: what they move, combine, record and share, and the tensors that a user's kernel gets. It stands behind `numbers.cuh`.
//
// Of the device it uses
//     threadIdx.x  blockIdx.x  blockDim.x  gridDim.x  __syncthreads()  __threadfence()  atomicAdd  atomicCAS  __shared__
// and the macros of the target that stand before it (shuffles, shared memory of a size given at the launch).
#ifndef PIPELINK_THREADS_CUH
#define PIPELINK_THREADS_CUH

namespace pipelink {

// ------------------------------------------------------------------------------------------------ where a thread stands

PL_DEVICE int thread() { return int(threadIdx.x); }
// The same, asked for once more: what follows from it is computed again instead of being kept in registers from the time before.
PL_DEVICE int thread_again() {
#if PIPELINK_PTX
  int n;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(n));
  __builtin_assume(n >= 0 && n < 1024);
  return n;
#else
  return thread();
#endif
}
PL_DEVICE int threads() { return int(blockDim.x); }
PL_DEVICE index_t block() { return index_t(blockIdx.x); }
PL_DEVICE index_t blocks() { return index_t(gridDim.x); }
PL_DEVICE index_t grid_thread() { return block() * threads() + thread(); }
PL_DEVICE index_t grid_threads() { return blocks() * threads(); }
// The turn of a thread, where there are as many threads as turns: what is written out for it has no loop around it. The emulator has few threads.
#ifdef PIPELINK_EMULATED
#define PL_TURN(type, turn, end) for (type turn = pl::grid_thread(), turn##_end = end; turn < turn##_end; turn += pl::grid_threads())
#else
#define PL_TURN(type, turn, end) if (const type turn = pl::grid_thread(); turn < (end))
#endif

// The one thread of a block that does what is done once.
PL_DEVICE bool leader() { return threadIdx.x == 0; }

// ----------------------------------------------------------------------------------------------- several neighbours at once

// What one access moves: at most 16 bytes, at a multiple of their size.
template <typename T, int COUNT> struct alignas(sizeof(T) * COUNT) Many { T at[COUNT]; };
PL_DEVICE bool aligned(const void* at, int bytes) { return (reinterpret_cast<u64>(at) & u64(bytes - 1)) == 0; }
template <int COUNT, typename T> PL_DEVICE Many<T, COUNT> many_at(const T* from) {
#ifdef PIPELINK_EMULATED
  assert(aligned(from, COUNT * sizeof(T)));
#endif
  return *reinterpret_cast<const Many<T, COUNT>*>(from);
}
template <int COUNT, typename T> PL_DEVICE void put_many(T* to, const Many<T, COUNT>& all) {
#ifdef PIPELINK_EMULATED
  assert(aligned(to, COUNT * sizeof(T)));
#endif
  *reinterpret_cast<Many<T, COUNT>*>(to) = all;
}
// From memory to a thread's own, the other way round, and between memories.
template <int COUNT, typename To, typename From> PL_DEVICE void load_many(To* to, const From* from) {
  const Many<From, COUNT> all = many_at<COUNT>(from);
  PL_UNROLL
  for (int k = 0; k < COUNT; k++) to[k] = To(all.at[k]);
}
// A word that is read once: its line is the first to leave the caches, before what others have just written.
PL_DEVICE u64 once(const u64* from) {
#if PIPELINK_PTX
  u64 out;
  asm("ld.global.cs.nc.b64 %0, [%1];" : "=l"(out) : "l"(__cvta_generic_to_global(from)));
  return out;
#else
  return *from;
#endif
}
// The eight bytes that begin `shift` bytes, 0 to 7, behind the first of two words.
PL_DEVICE u64 bytes_from(u64 low, u64 high, int shift) {
#if PIPELINK_PTX
  const bool far = shift >= 4;
  const u32 a = far ? u32(low >> 32) : u32(low), b = far ? u32(high) : u32(low >> 32), c = far ? u32(high >> 32) : u32(high);
  return u64(__funnelshift_r(a, b, 8 * shift)) | u64(__funnelshift_r(b, c, 8 * shift)) << 32;
#else
  return shift == 0 ? low : low >> (8 * shift) | high << (64 - 8 * shift);
#endif
}
// Neighbours that lie anywhere, out of the words of 8 bytes that hold them.
template <int COUNT, typename To, typename From> PL_DEVICE void take_many(To* to, const From* from) {
  constexpr int BYTES = COUNT * int(sizeof(From));
  static_assert(BYTES <= 8, "more than a word");
  const int shift = int(reinterpret_cast<u64>(from) & 7u);
  const u64* words = reinterpret_cast<const u64*>(reinterpret_cast<const char*>(from) - shift);
  const u64 low = once(words);
  u64 high = 0;
  if (shift + BYTES > 8) high = once(words + 1);
  const u64 all = bytes_from(low, high, shift);
  PL_UNROLL
  for (int k = 0; k < COUNT; k++) {
    const u64 bits = all >> (8 * int(sizeof(From)) * k);
    Many<From, 1> one;
    memcpy(&one, &bits, sizeof(From));
    to[k] = To(one.at[0]);
  }
}
template <typename To, typename From> PL_DEVICE void put_two(To* to, From a, From b) {
  to[0] = To(a);
  to[1] = To(b);
}
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
PL_DEVICE void put_two(f16* to, float a, float b) {
  asm("{.reg .b32 u; cvt.rn.f16x2.f32 u, %3, %2; mov.b32 {%0, %1}, u;}" : "=h"(to[0].pattern), "=h"(to[1].pattern) : "f"(a), "f"(b));
}
PL_DEVICE void put_two(bf16* to, float a, float b) {
  asm("{.reg .b32 u; cvt.rn.bf16x2.f32 u, %3, %2; mov.b32 {%0, %1}, u;}" : "=h"(to[0].pattern), "=h"(to[1].pattern) : "f"(a), "f"(b));
}
#endif
template <int COUNT, typename To, typename From> PL_DEVICE void store_many(To* to, const From* from) {
  Many<To, COUNT> all;
  PL_UNROLL
  for (int k = 0; k + 1 < COUNT; k += 2) put_two(&all.at[k], from[k], from[k + 1]);
  if (COUNT % 2 != 0) all.at[COUNT - 1] = To(from[COUNT - 1]);
  put_many<COUNT>(to, all);
}
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
// Two at once.
template <int COUNT> PL_DEVICE void store_many(f16* to, const float* from) {
  Many<u32, COUNT / 2> all;
  PL_UNROLL
  for (int k = 0; k < COUNT / 2; k++) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(all.at[k]) : "f"(from[2 * k + 1]), "f"(from[2 * k]));
  put_many<COUNT / 2>(reinterpret_cast<u32*>(to), all);
}
template <int COUNT> PL_DEVICE void store_many(bf16* to, const float* from) {
  Many<u32, COUNT / 2> all;
  PL_UNROLL
  for (int k = 0; k < COUNT / 2; k++) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(all.at[k]) : "f"(from[2 * k + 1]), "f"(from[2 * k]));
  put_many<COUNT / 2>(reinterpret_cast<u32*>(to), all);
}
#endif
template <int COUNT, typename T> PL_DEVICE void copy_many(T* to, const T* from) { put_many<COUNT>(to, many_at<COUNT>(from)); }

// ------------------------------------------------------------------------------------------------- the threads of a block

// Combines one value of each thread of a block, pairwise in the order of the threads; every thread gets the result. All threads call it; their
// number is a multiple of PL_LANES.
template <typename Rule, typename T> PL_DEVICE T combined_lanes(T value) {
  for (int n = 1; n < PL_LANES; n *= 2) value = Rule::of(value, T(PL_SHUFFLE_DOWN(value, n)));
  return value;
}
template <typename Rule, typename T> PL_DEVICE T block_combine(T value) {
  __shared__ T partial[PL_LANES];
  const int lane = thread() % PL_LANES, warp = thread() / PL_LANES, warps = threads() / PL_LANES;
  value = combined_lanes<Rule>(value);
  if (warps == 1) return T(PL_SHUFFLE(value, 0));
  __syncthreads();  // what the call before left there has been read
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = combined_lanes<Rule>(lane < warps ? partial[lane] : Rule::nothing(value));
  return T(PL_SHUFFLE(value, 0));
}

struct Sum {
  static PL_MEMBER float of(float a, float b) { return a + b; }
  static PL_MEMBER double of(double a, double b) { return a + b; }
  template <typename Int> static PL_MEMBER Int of(Int a, Int b) { return add(a, b); }
  static PL_MEMBER float nothing(float) { return -0.0f; }
  static PL_MEMBER double nothing(double) { return -0.0; }
  template <typename Int> static PL_MEMBER Int nothing(Int) { return 0; }
};
struct Product {
  static PL_MEMBER float of(float a, float b) { return a * b; }
  static PL_MEMBER double of(double a, double b) { return a * b; }
  template <typename Int> static PL_MEMBER Int of(Int a, Int b) { return mul(a, b); }
  template <typename T> static PL_MEMBER T nothing(T) { return T(1); }
};
// The first warp has a value for all: nothing may be any of them.
struct Max {
  template <typename T> static PL_MEMBER T of(T a, T b) { return max(a, b); }
  static PL_MEMBER float nothing(float) { return -inf(); }
  static PL_MEMBER double nothing(double) { return -inf64(); }
  static PL_MEMBER int nothing(int) { return -2147483647 - 1; }
  static PL_MEMBER i64 nothing(i64) { return -9223372036854775807ll - 1; }
};
struct Min {
  template <typename T> static PL_MEMBER T of(T a, T b) { return min(a, b); }
  static PL_MEMBER float nothing(float) { return inf(); }
  static PL_MEMBER double nothing(double) { return inf64(); }
  static PL_MEMBER int nothing(int) { return 2147483647; }
  static PL_MEMBER i64 nothing(i64) { return 9223372036854775807ll; }
};
struct Any {
  static PL_MEMBER int of(int a, int b) { return a | b; }
  static PL_MEMBER int nothing(int) { return 0; }
};
struct All {
  static PL_MEMBER int of(int a, int b) { return a & b; }
  static PL_MEMBER int nothing(int) { return 1; }
};
// The same among so many neighbouring threads, a power of two, for themselves.
template <typename Rule, typename T> PL_DEVICE T lanes_combine(T value, int lanes) {
  for (int n = 1; n < lanes; n *= 2) value = Rule::of(value, T(PL_SHUFFLE_DOWN(value, n)));
  return T(PL_SHUFFLE(value, thread() % PL_LANES & -lanes));
}
template <typename T> PL_DEVICE T lanes_sum(T value, int lanes = PL_LANES) { return lanes_combine<Sum>(value, lanes); }
template <typename T> PL_DEVICE T lanes_prod(T value, int lanes = PL_LANES) { return lanes_combine<Product>(value, lanes); }
template <typename T> PL_DEVICE T lanes_max(T value, int lanes = PL_LANES) { return lanes_combine<Max>(value, lanes); }
template <typename T> PL_DEVICE T lanes_min(T value, int lanes = PL_LANES) { return lanes_combine<Min>(value, lanes); }
PL_DEVICE bool lanes_any(bool value, int lanes = PL_LANES) { return lanes_combine<Any>(int(value), lanes) != 0; }
PL_DEVICE bool lanes_all(bool value, int lanes = PL_LANES) { return lanes_combine<All>(int(value), lanes) != 0; }

template <typename T> PL_DEVICE T block_sum(T value) { return block_combine<Sum>(value); }
template <typename T> PL_DEVICE T block_prod(T value) { return block_combine<Product>(value); }
template <typename T> PL_DEVICE T block_max(T value) { return block_combine<Max>(value); }
template <typename T> PL_DEVICE T block_min(T value) { return block_combine<Min>(value); }
PL_DEVICE bool block_any(bool value) { return block_combine<Any>(int(value)) != 0; }
PL_DEVICE bool block_all(bool value) { return block_combine<All>(int(value)) != 0; }

// The best value and where it stands: the lowest index among equals, the first NaN before all, -1 for no candidate.
template <bool LARGEST, typename T, typename I> PL_DEVICE bool beats(T a, I i, T b, I j) {
  if (i < 0 || j < 0) return i >= 0;
  if (a != a || b != b) return a != a && (b == b || i < j);
  return a == b ? i < j : LARGEST ? a > b : a < b;
}
template <bool LARGEST, typename T, typename I> PL_DEVICE void best_lane(T& value, I& index, int lanes = PL_LANES) {
  for (int n = 1; n < lanes; n *= 2) {
    const T other = T(PL_SHUFFLE_DOWN(value, n));
    const I place = I(PL_SHUFFLE_DOWN(index, n));
    if (beats<LARGEST>(other, place, value, index)) {
      value = other;
      index = place;
    }
  }
}
template <bool LARGEST, typename T, typename I> PL_DEVICE void lanes_best(T& value, I& index, int lanes) {
  best_lane<LARGEST>(value, index, lanes);
  value = T(PL_SHUFFLE(value, thread() % PL_LANES & -lanes));
  index = I(PL_SHUFFLE(index, thread() % PL_LANES & -lanes));
}
template <bool LARGEST, typename T, typename I> PL_DEVICE void block_best(T& value, I& index) {
  __shared__ T values[PL_LANES];
  __shared__ I places[PL_LANES];
  const int lane = thread() % PL_LANES, warp = thread() / PL_LANES, warps = threads() / PL_LANES;
  best_lane<LARGEST>(value, index);
  if (warps == 1) {
    value = T(PL_SHUFFLE(value, 0));
    index = I(PL_SHUFFLE(index, 0));
    return;
  }
  __syncthreads();
  if (lane == 0) {
    values[warp] = value;
    places[warp] = index;
  }
  __syncthreads();
  value = values[lane < warps ? lane : 0];
  index = lane < warps ? places[lane] : I(-1);
  best_lane<LARGEST>(value, index);
  value = T(PL_SHUFFLE(value, 0));
  index = I(PL_SHUFFLE(index, 0));
}
template <typename T, typename I> PL_DEVICE void lanes_argmax(T& value, I& index, int lanes = PL_LANES) { lanes_best<true>(value, index, lanes); }
template <typename T, typename I> PL_DEVICE void lanes_argmin(T& value, I& index, int lanes = PL_LANES) { lanes_best<false>(value, index, lanes); }
template <typename T, typename I> PL_DEVICE void block_argmax(T& value, I& index) { block_best<true>(value, index); }
template <typename T, typename I> PL_DEVICE void block_argmin(T& value, I& index) { block_best<false>(value, index); }

// ------------------------------------------------------------------------------------------- blocks that wait for each other

// Turns are taken in their order, so whatever an earlier one does is under way or done. All threads call these.
PL_DEVICE int ticket(int* counters) {
  __shared__ int mine;
  __syncthreads();  // the last one has been read
  if (leader()) mine = atomicAdd(counters, 1);
  __syncthreads();
  return mine;
}
PL_DEVICE void signal(int* counter) {
  __syncthreads();
  if (leader()) {
    __threadfence();
    atomicAdd(counter, 1);
  }
}
PL_DEVICE void await_count(int* counter, int count) {
  if (leader()) {
#if PIPELINK_PTX && __CUDA_ARCH__ >= 700
    int seen;
    while (true) {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
      if (seen >= count) break;
      __nanosleep(40);
    }
#else
    while (atomicAdd(counter, 0) < count) {}
    __threadfence();
#endif
  }
  __syncthreads();
}

// ------------------------------------------------------------------------------------------- failures, memory on the way

// The first check that fails leaves its number and up to four values; the host looks after the last kernel.
struct Status {
  u64 taken;
  i64 site, values[4];
};
enum : i64 { OUT_OF_MEMORY = -1 };
PL_DEVICE void fail(Status* status, i64 site, i64 a = 0, i64 b = 0, i64 c = 0, i64 d = 0) {
  if (atomicCAS(&status->taken, 0ull, 1ull) != 0) return;
  status->site = site;
  status->values[0] = a;
  status->values[1] = b;
  status->values[2] = c;
  status->values[3] = d;
}

// Scratch whose size depends on the sizes of a call, cut off one piece after the other; each begins at a multiple of 16 bytes.
struct Arena {
  u8* at;
  template <typename T> PL_MEMBER T* take(i64 count) {
    T* const piece = reinterpret_cast<T*>(at);
    at += (count * i64(sizeof(T)) + 15) / 16 * 16;
    return piece;
  }
};
// One for a block: in shared memory where that is large enough (then `block_bytes` is 0), else in the kernel's scratch.
PL_DEVICE Arena block_arena(u8* shared, u8* scratch, i64 block_bytes) {
  return {block_bytes == 0 ? shared : scratch + i64(blockIdx.x) * block_bytes};
}
// One for a thread, behind those of the blocks.
PL_DEVICE Arena thread_arena(u8* scratch, i64 block_bytes, i64 thread_bytes) {
  const i64 number = i64(blockIdx.x) * threads() + thread();
  return {scratch + i64(gridDim.x) * block_bytes + number * thread_bytes};
}
// Memory of a size that only the data tell. Null if there is none left, which is recorded.
template <typename T> PL_DEVICE T* heap(i64 count, Status* status) {
  T* const piece = static_cast<T*>(PL_MATH(malloc)((count > 0 ? count : 1) * sizeof(T)));
  if (piece == nullptr) fail(status, OUT_OF_MEMORY);
  return piece;
}
PL_DEVICE void release(void* piece) { PL_MATH(free)(piece); }

// -------------------------------------------------------------------------------------------------- what user kernels see

// The dtypes of the language.
enum class DType : int { boolean, u8, i8, u16, i16, i32, i64, f8e4m3, f8e5m2, f16, bf16, f32, f64 };

// A tensor in device memory, as a user's kernel gets it: `(const TensorView*…, TensorView*…, const void* params)`.
class TensorView {
 public:
  static constexpr int MAX_RANK = 12;
  PL_MEMBER const void* data() const { return data_; }
  PL_MEMBER void* data() { return data_; }
  // Elements along each axis.
  PL_MEMBER const i64* shape() const { return shape_; }
  // Elements, not bytes, between neighbours along each axis.
  PL_MEMBER const i64* stride() const { return stride_; }
  PL_MEMBER i64 num_elements() const { return num_elements_; }
  PL_MEMBER int rank() const { return rank_; }
  PL_MEMBER DType dtype() const { return dtype_; }

 private:
  void* data_;
  i64 num_elements_;
  int rank_;
  DType dtype_;
  i64 shape_[MAX_RANK];
  i64 stride_[MAX_RANK];
};

}  // namespace pipelink

#endif
