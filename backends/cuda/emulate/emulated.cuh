// CUDA C++ for a host compiler: what kernels see when a processor plays the device. `machine.cpp` runs them, `library.py` puts the texts together.
//
// A block is a set of hand-switched stacks, one a thread, on one thread of the system; they change places at barriers and warp operations alone. Blocks run
// one after the other, so shared memory is `static`. Half types, math and conversions are those of `pipelink.cuh` in plain C++. Not played: inline PTX, the
// toolkit's headers, textures, cooperative groups, tensor cores, `double` and `f32` rounding modes.
#ifndef PIPELINK_EMULATED_CUH
#define PIPELINK_EMULATED_CUH

#ifndef PIPELINK_EMULATED
#define PIPELINK_EMULATED 1
#endif

// ------------------------------------------------------------------------------------------------------- words of the language

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__ static
#define __constant__ static
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define PL_DYN_SHARED(T, name) T* const name = reinterpret_cast<T*>(pl_emulated::dynamic_shared)

using size_t = decltype(sizeof(0));

// ---------------------------------------------------------------------------------------------------------------------- vectors

#define PL_VECTOR(T, name, align2, align4) \
  struct name##1 { T x; }; \
  struct __align__(align2) name##2 { T x, y; }; \
  struct name##3 { T x, y, z; }; \
  struct __align__(align4) name##4 { T x, y, z, w; }; \
  static inline name##1 make_##name##1(T x) { return {x}; } \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PL_VECTOR(signed char, char, 2, 4)
PL_VECTOR(unsigned char, uchar, 2, 4)
PL_VECTOR(short, short, 4, 8)
PL_VECTOR(unsigned short, ushort, 4, 8)
PL_VECTOR(int, int, 8, 16)
PL_VECTOR(unsigned int, uint, 8, 16)
PL_VECTOR(long long, longlong, 16, 16)
PL_VECTOR(unsigned long long, ulonglong, 16, 16)
PL_VECTOR(float, float, 8, 16)
PL_VECTOR(double, double, 16, 16)
#undef PL_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

// ------------------------------------------------------------------------------------------------------------- the machine

#pragma GCC visibility push(hidden)
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

namespace pl_emulated {

using u64 = unsigned long long;

// Where a thread waits: the place in the text, and a number that tells two on one line apart.
struct Place {
  const char* file;
  int line, number;
};

enum class WarpOp { sync, take, ballot, match };

extern unsigned char* dynamic_shared;
// Waits for all threads of the block. `fold`: 0 nothing, 1 the number of threads whose `value` is true, 2 whether all are, 3 whether one is.
int barrier(Place place, int fold, int value);
// Waits for the lanes of `mask`, and gives each: the value of lane `from`; the lanes whose value is not 0; the lanes with the same value.
u64 warp(Place place, WarpOp op, unsigned mask, u64 value, int from);
unsigned active_lanes();
int lane();
// While one is alive, accesses are atomic: no two of them race.
struct Atomic {
  Atomic();
  ~Atomic();
};
void fence(bool grid);
// Copies of 16 bytes that happen when they are waited for, at the latest possible moment: zeros where `from` is null.
void copy_later(void* to, const void* from);
void copies_commit();
void copies_await(int pending);
void* heap(u64 bytes);
void release(void* piece);
[[noreturn]] void stop(Place place, const char* why);
u64 clock();

template <typename T> static inline u64 pack(T value) {
  static_assert(sizeof(T) <= 8, "a value of at most 8 bytes goes through a warp");
  u64 word = 0;
  __builtin_memcpy(&word, &value, sizeof(T));
  return word;
}
template <typename T> static inline T unpack(u64 word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof(T));
  return value;
}
// The lane that a shuffle reads, in a warp cut into parts of `width`: its own where that lies outside of its part.
template <typename T> static inline T shuffle(Place place, unsigned mask, T value, int kind, int by, int width) {
  const int me = lane(), first = me & ~(width - 1), end = first + width;
  int from = kind == 0 ? first + (by & (width - 1)) : kind == 1 ? me - by : kind == 2 ? me + by : me ^ by;
  if (kind == 1 ? from < first : from >= end) from = me;
  return unpack<T>(warp(place, WarpOp::take, mask, pack(value), from));
}

template <typename T, typename F> static inline T update(T* at, F next) {
  const Atomic atomic;
  const T old = *at;
  *at = next(old);
  return old;
}

// Calls a kernel with arguments that lie where `slots` point, as cuLaunchKernel takes them.
template <int... I> struct Numbers {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { using type = Numbers<I...>; };
template <typename... A, int... I>
__attribute__((no_sanitize("thread"))) static void call(void (*kernel)(A...), void* const* slots, Numbers<I...>) {
  kernel(*static_cast<A*>(slots[I])...);
}
template <typename... A> static void call(void (*kernel)(A...), void* const* slots) { call(kernel, slots, typename Count<sizeof...(A)>::type()); }

}  // namespace pl_emulated
#pragma GCC visibility pop

#ifndef PL_MACHINE

#define PL_EMULATE(kernel) extern "C" void pl_run_##kernel(void* const* slots) { pl_emulated::call(kernel, slots); }
#define PL_PLACE pl_emulated::Place{__FILE__, __LINE__, __COUNTER__}

// ------------------------------------------------------------------------------------------------------ barriers and warps

#define __syncthreads() pl_emulated::barrier(PL_PLACE, 0, 0)
#define __syncthreads_count(x) pl_emulated::barrier(PL_PLACE, 1, (x) != 0)
#define __syncthreads_and(x) pl_emulated::barrier(PL_PLACE, 2, (x) != 0)
#define __syncthreads_or(x) pl_emulated::barrier(PL_PLACE, 3, (x) != 0)

#define PL_SHUFFLE_OF(kind, mask, value, by, ...) pl_emulated::shuffle(PL_PLACE, mask, value, kind, by, pl_emulated_width(__VA_ARGS__))
static inline constexpr int pl_emulated_width(int width = 32) { return width; }
#define __shfl_sync(mask, value, ...) PL_SHUFFLE_OF(0, mask, value, __VA_ARGS__)
#define __shfl_up_sync(mask, value, ...) PL_SHUFFLE_OF(1, mask, value, __VA_ARGS__)
#define __shfl_down_sync(mask, value, ...) PL_SHUFFLE_OF(2, mask, value, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, ...) PL_SHUFFLE_OF(3, mask, value, __VA_ARGS__)
#define __ballot_sync(mask, x) unsigned(pl_emulated::warp(PL_PLACE, pl_emulated::WarpOp::ballot, mask, (x) != 0, 0))
#define __any_sync(mask, x) int(__ballot_sync(mask, x) != 0)
#define __all_sync(mask, x) int(__ballot_sync(mask, !(x)) == 0)
#define __match_any_sync(mask, x) unsigned(pl_emulated::warp(PL_PLACE, pl_emulated::WarpOp::match, mask, pl_emulated::pack(x), 0))
#define __syncwarp(...) pl_emulated::warp(PL_PLACE, pl_emulated::WarpOp::sync, pl_emulated_mask(__VA_ARGS__), 0, 0)
static inline constexpr unsigned pl_emulated_mask(unsigned mask = 0xffffffffu) { return mask; }
#define __activemask() pl_emulated::active_lanes()

#define __threadfence() pl_emulated::fence(true)
#define __threadfence_system() pl_emulated::fence(true)
#define __threadfence_block() pl_emulated::fence(false)
#define __trap() pl_emulated::stop(PL_PLACE, "__trap()")
#define assert(x) ((x) ? void() : pl_emulated::stop(PL_PLACE, "assertion fails: " #x))
#define clock64() ((long long)pl_emulated::clock())
#define clock() ((int)pl_emulated::clock())

// ---------------------------------------------------------------------------------------------------------------------- atomics

#define PL_ATOMIC(T) \
  static inline T atomicExch(T* at, T value) { return pl_emulated::update(at, [=](T) { return value; }); } \
  static inline T atomicAdd(T* at, T value) { return pl_emulated::update(at, [=](T old) { return pl_emulated::plus(old, value); }); }
#define PL_ATOMIC_INTEGER(T) \
  PL_ATOMIC(T) \
  static inline T atomicCAS(T* at, T expected, T value) { return pl_emulated::update(at, [=](T old) { return old == expected ? value : old; }); } \
  static inline T atomicMin(T* at, T value) { return pl_emulated::update(at, [=](T old) { return old < value ? old : value; }); } \
  static inline T atomicMax(T* at, T value) { return pl_emulated::update(at, [=](T old) { return old > value ? old : value; }); } \
  static inline T atomicAnd(T* at, T value) { return pl_emulated::update(at, [=](T old) { return static_cast<T>(old & value); }); } \
  static inline T atomicOr(T* at, T value) { return pl_emulated::update(at, [=](T old) { return static_cast<T>(old | value); }); } \
  static inline T atomicXor(T* at, T value) { return pl_emulated::update(at, [=](T old) { return static_cast<T>(old ^ value); }); }
namespace pl_emulated {
static inline int plus(int a, int b) { return int(unsigned(a) + unsigned(b)); }
static inline long long plus(long long a, long long b) { return (long long)(u64(a) + u64(b)); }
template <typename T> static inline T plus(T a, T b) { return a + b; }
}  // namespace pl_emulated
PL_ATOMIC(float)
PL_ATOMIC(double)
PL_ATOMIC_INTEGER(int)
PL_ATOMIC_INTEGER(unsigned int)
PL_ATOMIC_INTEGER(unsigned long long)
PL_ATOMIC_INTEGER(long long)
static inline int atomicSub(int* at, int value) { return atomicAdd(at, pl_emulated::plus(~value, 1)); }
static inline unsigned int atomicSub(unsigned int* at, unsigned int value) { return atomicAdd(at, 0u - value); }
static inline unsigned int atomicInc(unsigned int* at, unsigned int most) {
  return pl_emulated::update(at, [=](unsigned int old) { return old >= most ? 0u : old + 1u; });
}
static inline unsigned int atomicDec(unsigned int* at, unsigned int most) {
  return pl_emulated::update(at, [=](unsigned int old) { return old == 0 || old > most ? most : old - 1u; });
}

// ----------------------------------------------------------------------------------------- what CUDA declares without a header

#define PL_UNARY(name) double name(double); float name##f(float);
#define PL_BINARY(name) double name(double, double); float name##f(float, float);
extern "C" {
PL_UNARY(sqrt) PL_UNARY(cbrt) PL_UNARY(exp) PL_UNARY(exp2) PL_UNARY(exp10) PL_UNARY(expm1) PL_UNARY(log) PL_UNARY(log2) PL_UNARY(log10) PL_UNARY(log1p)
PL_UNARY(sin) PL_UNARY(cos) PL_UNARY(tan) PL_UNARY(asin) PL_UNARY(acos) PL_UNARY(atan) PL_UNARY(sinh) PL_UNARY(cosh) PL_UNARY(tanh) PL_UNARY(erf)
PL_UNARY(erfc) PL_UNARY(floor) PL_UNARY(ceil) PL_UNARY(trunc) PL_UNARY(round) PL_UNARY(rint) PL_UNARY(nearbyint) PL_UNARY(fabs) PL_UNARY(tgamma)
PL_UNARY(lgamma)
PL_BINARY(pow) PL_BINARY(atan2) PL_BINARY(fmod) PL_BINARY(fmin) PL_BINARY(fmax) PL_BINARY(copysign) PL_BINARY(hypot) PL_BINARY(fdim) PL_BINARY(remainder)
double fma(double, double, double);
float fmaf(float, float, float);
long lrint(double);
long lrintf(float);
int printf(const char*, ...);
int abs(int);
void* memcpy(void*, const void*, size_t);
void* memset(void*, int, size_t);
}
#undef PL_UNARY
#undef PL_BINARY

#define PL_FLOAT(name) static inline float name(float x) { return name##f(x); }
PL_FLOAT(sqrt) PL_FLOAT(exp) PL_FLOAT(exp2) PL_FLOAT(log) PL_FLOAT(log2) PL_FLOAT(sin) PL_FLOAT(cos) PL_FLOAT(tanh) PL_FLOAT(floor) PL_FLOAT(ceil) PL_FLOAT(fabs)
#undef PL_FLOAT
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }
static inline float pow(float x, float y) { return powf(x, y); }
static inline float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float __int_as_float(int x) { return pl_emulated::unpack<float>(pl_emulated::pack(x)); }
static inline float __uint_as_float(unsigned int x) { return pl_emulated::unpack<float>(pl_emulated::pack(x)); }
static inline int __float_as_int(float x) { return pl_emulated::unpack<int>(pl_emulated::pack(x)); }
static inline unsigned int __float_as_uint(float x) { return pl_emulated::unpack<unsigned int>(pl_emulated::pack(x)); }
static inline int __popc(unsigned int x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
template <typename T> static inline T __ldg(const T* at) { return *at; }

// CUDA's min and max of any two numbers; of floats the number wins over a NaN.
template <typename A, typename B> static inline auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
template <typename A, typename B> static inline auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

#define __builtin_malloc(bytes) pl_emulated::heap(bytes)
#define __builtin_free(piece) pl_emulated::release(piece)
#define malloc(bytes) pl_emulated::heap(bytes)
#define free(piece) pl_emulated::release(piece)

#endif

#endif
