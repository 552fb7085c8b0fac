// Numbers: what the language's dtypes are, how they become one another, and the arithmetic of integers, by each thread for itself. It needs no header of a toolkit.
//
// Three compilers read this and what stands behind it: NVRTC (or nvcc), hipcc, and a host compiler that plays a GPU, with PIPELINK_EMULATED defined. Where
// PIPELINK_PTX is 1, PTX and intrinsics of CUDA are used; the other branch says the same in plain C++.
#ifndef PIPELINK_NUMBERS_CUH
#define PIPELINK_NUMBERS_CUH

#if defined(__CUDA_ARCH__) && !defined(PIPELINK_EMULATED)
#define PIPELINK_PTX 1
#else
#define PIPELINK_PTX 0
#endif

#ifdef PIPELINK_EMULATED
#define PL_UNROLL
#define PL_UNROLL_SOME
#define PL_DEVICE static inline
#define PL_MEMBER inline
#define PL_MATH(name) __builtin_##name
#else
#define PL_UNROLL _Pragma("unroll")
#define PL_UNROLL_SOME _Pragma("unroll 8")
#define PL_DEVICE __device__ __forceinline__
#define PL_MEMBER __device__ __forceinline__
#define PL_MATH(name) ::name
#endif

// Blocks that a multiprocessor should hold, as far as the architecture has room for their threads.
#if !PIPELINK_PTX || __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100)
#define PL_RESIDENT 2048
#elif __CUDA_ARCH__ >= 860
#define PL_RESIDENT 1536
#else
#define PL_RESIDENT 1024
#endif
#define PL_FIT(threads, blocks) ((threads) * (blocks) <= PL_RESIDENT ? (blocks) : PL_RESIDENT / (threads))

namespace pipelink {

using u32 = unsigned int;
using u64 = unsigned long long;

namespace types {
using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using i16 = short;
using i64 = long long;

// Counts elements and iterations. 32 bits unless the sizes of a call need more: then the kernels are compiled a second time with PIPELINK_WIDE.
#ifdef PIPELINK_WIDE
using index_t = i64;
#else
using index_t = int;
#endif
}  // namespace types
using namespace types;

// ------------------------------------------------------------------------------------------------------- bits, constants

PL_DEVICE u32 bits(float x) {
#if PIPELINK_PTX
  return __float_as_uint(x);
#else
  u32 u;
  __builtin_memcpy(&u, &x, 4);
  return u;
#endif
}
PL_DEVICE u64 bits(double x) {
#if PIPELINK_PTX
  return u64(__double_as_longlong(x));
#else
  u64 u;
  __builtin_memcpy(&u, &x, 8);
  return u;
#endif
}
PL_DEVICE float from_bits(u32 u) {
#if PIPELINK_PTX
  return __uint_as_float(u);
#else
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
#endif
}
PL_DEVICE double from_bits(u64 u) {
#if PIPELINK_PTX
  return __longlong_as_double(i64(u));
#else
  double x;
  __builtin_memcpy(&x, &u, 8);
  return x;
#endif
}

PL_DEVICE float inf() { return from_bits(0x7f800000u); }
PL_DEVICE float nan() { return from_bits(0x7fc00000u); }
PL_DEVICE double inf64() { return from_bits(0x7ff0000000000000ull); }
PL_DEVICE double nan64() { return from_bits(0x7ff8000000000000ull); }

PL_DEVICE bool isnan(float x) { return x != x; }
PL_DEVICE bool isnan(double x) { return x != x; }
PL_DEVICE bool isinf(float x) { return (bits(x) & 0x7fffffffu) == 0x7f800000u; }
PL_DEVICE bool isinf(double x) { return (bits(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }

// ----------------------------------------------------------------------------------------------------------- narrow floats

template <typename Wide> struct Layout;
template <> struct Layout<float> { using Bits = u32; static constexpr int width = 32, fraction = 23, bias = 127; };
template <> struct Layout<double> { using Bits = u64; static constexpr int width = 64, fraction = 52, bias = 1023; };

// A float of fewer bits: its size, the bits of its fraction, its exponent bias, and the patterns without sign of its largest number, of what
// lies beyond, and of NaN. Rounds once, to nearest even.
template <int SIZE, int FRACTION, int BIAS, u32 LARGEST, u32 BEYOND, u32 NOT_A_NUMBER> struct Format {
  template <typename Wide> static PL_MEMBER u32 narrow(Wide x) {
    using Bits = typename Layout<Wide>::Bits;
    constexpr int width = Layout<Wide>::width, fraction = Layout<Wide>::fraction, bias = Layout<Wide>::bias, drop = fraction - FRACTION;
    constexpr Bits one = 1, infinity = (((one << (width - 1 - fraction)) - 1) << fraction);
    const Bits u = bits(x), size = u & ~(one << (width - 1));
    const u32 sign = u32(u >> (width - 1)) << (SIZE - 1);
    if (size > infinity) return NOT_A_NUMBER | sign;
    // Just under half of the last kept bit, plus that bit, then cut: half to even. The exponent follows by the carry.
    const Bits rounded = (size + ((one << (drop - 1)) - 1) + ((size >> drop) & 1)) >> drop;
    if (size == infinity || rounded > LARGEST + (Bits(bias - BIAS) << FRACTION)) return BEYOND | sign;
    if (bias != BIAS && size < (Bits(1 - BIAS + bias) << fraction)) {
      // Below the smallest normal number: adding a power of two whose last bit is the smallest step lets the adder round.
      const Bits magic = Bits(1 - BIAS - FRACTION + fraction + bias) << fraction;
      return u32(bits(from_bits(size) + from_bits(magic)) - magic) | sign;
    }
    return u32(rounded - (Bits(bias - BIAS) << FRACTION)) | sign;
  }
  static PL_MEMBER float widen(u32 pattern) {
    const u32 size = pattern & ((1u << (SIZE - 1)) - 1), sign = (pattern >> (SIZE - 1)) << 31;
    if (BIAS == 127) return from_bits(pattern << (32 - SIZE));
    if (size > LARGEST) return from_bits((BEYOND != NOT_A_NUMBER && size == BEYOND ? 0x7f800000u : 0x7fc00000u) | sign);
    // Read with the wrong bias it is too small by a power of two, subnormal numbers included.
    const float placed = from_bits(size << (23 - FRACTION)) * from_bits(u32(127 - BIAS + 127) << 23);
    return from_bits(bits(placed) | sign);
  }
};

struct F16 : Format<16, 10, 15, 0x7bff, 0x7c00, 0x7e00> {
#if PIPELINK_PTX
  static PL_MEMBER u32 narrow(float x) {
    u16 u;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(u) : "f"(x));
    return u;
  }
  static PL_MEMBER u32 narrow(double x) {
    u16 u;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(u) : "d"(x));
    return u;
  }
  static PL_MEMBER float widen(u32 pattern) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(u16(pattern)));
    return x;
  }
#endif
};
struct BF16 : Format<16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0> {
#if PIPELINK_PTX
#if __CUDA_ARCH__ >= 800
  static PL_MEMBER u32 narrow(float x) {
    u16 u;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(u) : "f"(x));
    return u;
  }
  static PL_MEMBER u32 narrow(double x) { return Format::narrow(x); }
#endif
#endif
};
struct F8E4M3 : Format<8, 3, 7, 0x7e, 0x7f, 0x7f> {};
struct F8E5M2 : Format<8, 2, 15, 0x7b, 0x7c, 0x7e> {};

// An i64 as a double such that rounding that to fewer digits is as rounding the integer: bits that do not fit leave a mark in the last one.
PL_DEVICE double odd_double(i64 x) {
  const bool exact = x > -(i64(1) << 53) && x < (i64(1) << 53);
  return double(exact ? x : (x & ~i64(0x7ff)) | ((x & 0x7ff) != 0 ? i64(0x800) : i64(0)));
}

// How a narrow float lies in memory. It becomes a float by itself, and is made of a number in one rounding.
template <typename Rule, typename Bits> struct Narrow {
  Bits pattern;
  Narrow() = default;
  explicit PL_MEMBER Narrow(float x) : pattern(Bits(Rule::narrow(x))) {}
  explicit PL_MEMBER Narrow(double x) : pattern(Bits(Rule::narrow(x))) {}
  explicit PL_MEMBER Narrow(int x) : Narrow(double(x)) {}
  explicit PL_MEMBER Narrow(i64 x) : Narrow(odd_double(x)) {}
  PL_MEMBER operator float() const { return Rule::widen(pattern); }
};

namespace types {
using f16 = Narrow<F16, u16>;
using bf16 = Narrow<BF16, u16>;
using f8e4m3 = Narrow<F8E4M3, u8>;
using f8e5m2 = Narrow<F8E5M2, u8>;
}  // namespace types

// ------------------------------------------------------------------------------------------------------- floats to integers

// The fraction is dropped, what lies outside becomes the nearest integer inside, NaN becomes 0.
PL_DEVICE int to_i32(float x) {
#if PIPELINK_PTX
  return x != x ? 0 : __float2int_rz(x);
#else
  return x != x ? 0 : x <= -2147483648.0f ? -2147483647 - 1 : x >= 2147483648.0f ? 2147483647 : int(x);
#endif
}
PL_DEVICE int to_i32(double x) {
#if PIPELINK_PTX
  return x != x ? 0 : __double2int_rz(x);
#else
  return x != x ? 0 : x <= -2147483648.0 ? -2147483647 - 1 : x >= 2147483647.0 ? 2147483647 : int(x);
#endif
}
template <typename Real> PL_DEVICE i64 to_i64(Real x) {
  if (x != x) return 0;
  if (x < Real(-9223372036854775808.0)) return -9223372036854775807ll - 1;
  return x >= Real(9223372036854775808.0) ? 9223372036854775807ll : i64(x);
}
template <int LOW, int HIGH, typename Real> PL_DEVICE int to_range(Real x) {
  x = x == x ? x : Real(0);
  x = x > Real(LOW) ? x : Real(LOW);
  return int(x < Real(HIGH) ? x : Real(HIGH));
}
template <typename Real> PL_DEVICE int to_u8(Real x) { return to_range<0, 255>(x); }
template <typename Real> PL_DEVICE int to_i8(Real x) { return to_range<-128, 127>(x); }
template <typename Real> PL_DEVICE int to_u16(Real x) { return to_range<0, 65535>(x); }
template <typename Real> PL_DEVICE int to_i16(Real x) { return to_range<-32768, 32767>(x); }
// Codes: the nearest integer, halves to the even one, then the same. `code_i8<ZERO>` adds ZERO, at most 65536, to the integer: a number of 1.5 times 2 to the 23
// has no fraction, and what it is too large for saturates with it and without.
template <int ZERO> PL_DEVICE float integer(float x) { return (x + 12582912.0f) + (float(ZERO) - 12582912.0f); }
#if PIPELINK_PTX
// One instruction each, which saturates and knows NaN.
#define PL_CODES(name, type) \
  PL_DEVICE int to_##name(float x) { \
    int n; \
    asm("cvt.rzi.sat." type ".f32 %0, %1;" : "=r"(n) : "f"(x)); \
    return n; \
  } \
  template <int ZERO> PL_DEVICE int code_##name(float x) { \
    int n; \
    if (ZERO != 0) return to_##name(integer<ZERO>(x)); \
    asm("cvt.rni.sat." type ".f32 %0, %1;" : "=r"(n) : "f"(x)); \
    return n; \
  }
PL_CODES(u8, "u8")
PL_CODES(i8, "s8")
PL_CODES(u16, "u16")
PL_CODES(i16, "s16")
#else
template <int ZERO> PL_DEVICE int code_u8(float x) { return to_u8(integer<ZERO>(x)); }
template <int ZERO> PL_DEVICE int code_i8(float x) { return to_i8(integer<ZERO>(x)); }
template <int ZERO> PL_DEVICE int code_u16(float x) { return to_u16(integer<ZERO>(x)); }
template <int ZERO> PL_DEVICE int code_i16(float x) { return to_i16(integer<ZERO>(x)); }
#endif

// An integer of less than 2 to the 22, in size, as a float: the last digits of a float that has it there, which takes two quick instructions instead of a slow one.
PL_DEVICE float small_float(int i) {
#if PIPELINK_PTX
  return __int_as_float(0x4b400000 + i) - 12582912.0f;
#else
  return float(i);
#endif
}

// The last BITS of an integer, the first of them its sign, in the same way.
template <int BITS> PL_DEVICE float signed_float(int i) {
  constexpr int half = 1 << (BITS - 1);
#if PIPELINK_PTX
  return __int_as_float((i & (2 * half - 1)) ^ (0x4b000000 | half)) - (8388608.0f + float(half));
#else
  return float((i & (2 * half - 1)) - 2 * (i & half));
#endif
}

template <int LOW, int HIGH, typename Int> PL_DEVICE int sat_range(Int x) { return int(x < LOW ? LOW : x > HIGH ? HIGH : x); }
template <typename Int> PL_DEVICE int sat_u8(Int x) { return sat_range<0, 255>(x); }
template <typename Int> PL_DEVICE int sat_i8(Int x) { return sat_range<-128, 127>(x); }
template <typename Int> PL_DEVICE int sat_u16(Int x) { return sat_range<0, 65535>(x); }
template <typename Int> PL_DEVICE int sat_i16(Int x) { return sat_range<-32768, 32767>(x); }
template <typename Int> PL_DEVICE int sat_i32(Int x) { return sat_range<-2147483647 - 1, 2147483647>(x); }

// ------------------------------------------------------------------------------------------------------- integer arithmetic

template <typename Int> struct Unsigned;
template <> struct Unsigned<int> { using type = u32; };
template <> struct Unsigned<i64> { using type = u64; };

// With wrap-around, where it cannot be told that the result fits.
template <typename A, typename B> PL_DEVICE auto add(A a, B b) -> decltype(a + b) {
  using U = typename Unsigned<decltype(a + b)>::type;
  return decltype(a + b)(U(a) + U(b));
}
template <typename A, typename B> PL_DEVICE auto sub(A a, B b) -> decltype(a + b) {
  using U = typename Unsigned<decltype(a + b)>::type;
  return decltype(a + b)(U(a) - U(b));
}
template <typename A, typename B> PL_DEVICE auto mul(A a, B b) -> decltype(a + b) {
  using U = typename Unsigned<decltype(a + b)>::type;
  return decltype(a + b)(U(a) * U(b));
}
template <typename Int> PL_DEVICE Int neg(Int a) { return sub(Int(0), a); }
template <typename Int> PL_DEVICE Int abs(Int a) { return a < 0 ? neg(a) : a; }
template <typename Int> PL_DEVICE Int sign(Int a) { return Int(a > 0) - Int(a < 0); }
template <typename A, typename B> PL_DEVICE auto min(A a, B b) -> decltype(a + b) { return a < b ? a : b; }
template <typename A, typename B> PL_DEVICE auto max(A a, B b) -> decltype(a + b) { return a > b ? a : b; }

// Rounds down; by 0 it is 0, and the lowest integer by -1 is itself.
template <typename A, typename B> PL_DEVICE auto floordiv(A x, B y) -> decltype(x + y) {
  using Int = decltype(x + y);
  const Int a = x, b = y;
  if (b == 0) return 0;
  if (b == -1) return neg(a);
  const Int q = a / b, r = a % b;
  return r != 0 && (r ^ b) < 0 ? q - 1 : q;
}
template <typename A, typename B> PL_DEVICE auto mod(A x, B y) -> decltype(x + y) {
  using Int = decltype(x + y);
  const Int a = x, b = y;
  if (b == 0 || b == -1) return 0;
  const Int r = a % b;
  return r != 0 && (r ^ b) < 0 ? r + b : r;
}
// Of a number that is not negative by a positive one.
template <typename A, typename B> PL_DEVICE auto quot(A a, B b) -> decltype(a + b) {
  using U = typename Unsigned<decltype(a + b)>::type;
  return decltype(a + b)(U(a) / U(b));
}
template <typename A, typename B> PL_DEVICE auto rest(A a, B b) -> decltype(a + b) {
  using U = typename Unsigned<decltype(a + b)>::type;
  return decltype(a + b)(U(a) % U(b));
}

}  // namespace pipelink

#endif
