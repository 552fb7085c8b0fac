// Numbers: what the language's dtypes are and what their arithmetic and functions give, by each thread for itself. It needs no header of a toolkit.
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

// ---------------------------------------------------------------------------------------------------------------- functions

#define PL_UNARY(name) \
  PL_DEVICE float name(float x) { return PL_MATH(name##f)(x); } \
  PL_DEVICE double name(double x) { return PL_MATH(name)(x); }
#define PL_BINARY(name) \
  PL_DEVICE float name(float x, float y) { return PL_MATH(name##f)(x, y); } \
  PL_DEVICE double name(double x, double y) { return PL_MATH(name)(x, y); }
PL_UNARY(floor) PL_UNARY(ceil) PL_UNARY(exp) PL_UNARY(expm1) PL_UNARY(log) PL_UNARY(log1p)
PL_UNARY(sin) PL_UNARY(cos) PL_UNARY(tan) PL_UNARY(tanh)
PL_BINARY(atan2) PL_BINARY(fmin) PL_BINARY(fmax)

PL_DEVICE float abs(float x) { return PL_MATH(fabsf)(x); }
PL_DEVICE double abs(double x) { return PL_MATH(fabs)(x); }
PL_DEVICE float round(float x) { return PL_MATH(rintf)(x); }  // half to even
PL_DEVICE double round(double x) { return PL_MATH(rint)(x); }
PL_DEVICE float fma(float a, float b, float c) { return PL_MATH(fmaf)(a, b, c); }
PL_DEVICE double fma(double a, double b, double c) { return PL_MATH(fma)(a, b, c); }

// A unit in the last place, without the branch to a slow path that keeps neighbours from running side by side. Squares have their roots.
PL_DEVICE float sqrt(float x) {
#if PIPELINK_PTX
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return PL_MATH(sqrtf)(x);
#endif
}
PL_DEVICE double sqrt(double x) { return PL_MATH(sqrt)(x); }

// A quotient by a number that the compiler knows: its reciprocal, and one step that puts the last bit right. That step is by minus what is left over, so that it
// is -0 where nothing is: added to a zero it leaves the sign of the zero, if the divisor is positive.
PL_DEVICE float div_by_positive(float x, float y) {
  const float inverse = 1.0f / y, near = x * inverse, right = fma(-fma(near, y, -x), inverse, near);
  return right == right ? right : near;
}
PL_DEVICE float div_by(float x, float y) { return y < 0.0f ? div_by_positive(-x, -y) : div_by_positive(x, y); }

// Quotients by a number d that many have in common. With r = 1 / d rounded to nearest, x * r and one step by what is left over are x / d rounded to nearest
// whatever the digits, as long as nothing on the way is below the normal numbers. The step is as above, for d > 0; a zero by d < 0 is in doubt instead.
PL_DEVICE float inverse(float d) {
  const float size = PL_MATH(fabsf)(d);
  return size >= 7.8886090522101181e-31f && size <= 33554432.0f ? 1.0f / d : nan();  // 2 to the -100 and to the 25
}
PL_DEVICE float quotient(float x, float d, float r) {
  const float near = x * r;
  return fma(-fma(near, d, -x), r, near);
}
// Whether that may be another number: x is below 2 to the -100 and no zero, or something was not finite.
PL_DEVICE bool doubtful(float x, float quotient, float r) {
  const u32 negative = bits(r) >> 31;
  return 2u * bits(x) - 1u + negative < 2u * 0x0d800000u - 1u || quotient != quotient;
}

// Off by at most 3 units, in two thirds of the instructions of CUDA's: x times a polynomial of its square near 0, else 1 - 2 to the minus polynomial
// of |x|. Both are minimax fits (weighted least squares, Lawson) to the error in units of the result.
PL_DEVICE float erf(float x) {
#if PIPELINK_PTX
  const float t = fabsf(x), s = x * x;
  const float near = fmaf(fmaf(fmaf(fmaf(0.0042818021f, s, -0.026474483f), s, 0.11276999f), s, -0.37612221f), s, 0.12837912f);
  const float far = fmaf(fmaf(fmaf(fmaf(fmaf(0.0021400026f, t, -0.024904832f), t, 0.13828582f), t, 0.9294852f), t, 1.6223114f), t, 0.0010994206f);
  float rest;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(-far));
  return t < 0.7f ? fmaf(near, x, x) : copysignf(1.0f - rest, x);
#else
  return PL_MATH(erff)(x);
#endif
}
PL_DEVICE double erf(double x) { return PL_MATH(erf)(x); }

// x times the normal distribution, for a result that is rounded to f16 or bf16: off by at most a sixteenth of its last digit. The distribution of -|x| is
// 2 to the minus polynomial of |x| (weighted least squares, Lawson), which grows beyond the stretch of the fit as well.
// SMALL: numbers below the normal ones are kept, since a bf16 may be as small.
template <bool SMALL> PL_DEVICE float gelu_from(float x, float power) {
#if PIPELINK_PTX
  float rest;
  if (SMALL) asm("ex2.approx.f32 %0, %1;" : "=f"(rest) : "f"(-power));
  else asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(-power));
#else
  const float rest = PL_MATH(exp2f)(-power);
#endif
  return x * (x > 0.0f ? 1.0f - rest : rest);
}
PL_DEVICE float gelu_f16(float x) {
  const float t = PL_MATH(fabsf)(x);
  float p = fma(1.0158048553421395e-06f, t, -4.9275469791609794e-05f);
  p = fma(p, t, 0.0008584638126194477f);
  p = fma(p, t, -0.008301818743348122f);
  p = fma(p, t, 0.0536629892885685f);
  p = fma(p, t, 0.4586635231971741f);
  p = fma(p, t, 1.1512025594711304f);
  return gelu_from<false>(x, fma(p, t, 0.9999971389770508f));
}
PL_DEVICE float gelu_bf16(float x) {
  const float t = PL_MATH(fabsf)(x);
  float p = fma(1.880003930310181e-09f, t, -1.3789502872896264e-07f);
  p = fma(p, t, 4.445782451512059e-06f);
  p = fma(p, t, -8.338921907125041e-05f);
  p = fma(p, t, 0.001018864568322897f);
  p = fma(p, t, -0.008657237514853477f);
  p = fma(p, t, 0.05393112078309059f);
  p = fma(p, t, 0.4588252007961273f);
  p = fma(p, t, 1.1509639024734497f);
  return gelu_from<true>(x, fma(p, t, 1.000031590461731f));
}
// The same of the approximation by a hyperbolic tangent, 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)) with u = 0.7978845608 (x + 0.044715 x ^ 3).
PL_DEVICE float tanh_power(float x) { return x * fma(x * x, -0.102943241596f, -2.3022081976f); }
PL_DEVICE float gelu_tanh_f16(float x) {
  const float power = tanh_power(x);
#if PIPELINK_PTX
  float e, out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(power));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(1.0f + e));
  return x * out;
#else
  return x * (1.0f / (1.0f + PL_MATH(exp2f)(power)));
#endif
}
// A bf16 may be as small as what the other side of 1 is rounded away for.
PL_DEVICE float gelu_tanh_bf16(float x) {
  const float power = -PL_MATH(fabsf)(tanh_power(x));
#if PIPELINK_PTX
  float e;
  asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(power));
#else
  const float e = PL_MATH(exp2f)(power);
#endif
  const float least = e / (1.0f + e);
  return x * (x > 0.0f ? 1.0f - least : least);
}

// CUDA's logarithm of f64 is a unit off at some powers of two, where it is a whole number.
PL_DEVICE float log2(float x) { return PL_MATH(log2f)(x); }
PL_DEVICE double log2(double x) {
  const u64 u = bits(x), exponent = u >> 52;
  if ((u & 0x000fffffffffffffull) == 0 && exponent > 0 && exponent < 0x7ff) return double(int(exponent) - 1023);
  return PL_MATH(log2)(x);
}
// CUDA's power is a unit or two off where a product is exact: 3.0 ** 1.0 is 3, 5.0 ** 2.0 is 25.
PL_DEVICE float pow(float x, float y) {
  if (y == 1.0f) return x;
  if (y == 2.0f) return x * x;
  if (y == 3.0f) return x * x * x;
  if (y == -1.0f) return 1.0f / x;
  return PL_MATH(powf)(x, y);
}
// A NaN or a number in 0..1e30 to a constant power in 0..0.8, within 3 units in the last place (2.5 seen for a third of all numbers up to 1, on an H200): log2 of
// the digits is off by at most 2 to the -22. The whole part of log2(x) * y is split off exactly; what a zero gives is stopped by a zero.
PL_DEVICE float min(float a, float b);
PL_DEVICE float pow_root(float x, float y) {
  const float scaled = x * 8388608.0f;  // what lies below the normal numbers is one
  const u32 u = bits(scaled), exponent = (u - 0x4ab504f3u) & 0xff800000u;
  const float digits = from_bits(u - exponent - 0x0b800000u);
#if PIPELINK_PTX
  float part;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(digits));
#else
  const float part = PL_MATH(log2f)(digits);
#endif
  const float whole = float(int(exponent)), step = y * 1.1920928955078125e-07f, shifted = fma(whole, step, 12582912.0f), n = shifted - 12582912.0f;
  const float rest = fma(part, y, fma(whole, step, -n));
#if PIPELINK_PTX
  float z;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(rest));
#else
  const float z = PL_MATH(exp2f)(rest);
#endif
  return min(from_bits(bits(z) + (bits(shifted) << 23)), scaled * 1.7014118346046923e+38f);
}
// A number to a constant power of a size of at most 0.8, within 4 units in the last place: the whole part of log2(x) * y is split off exactly, what is left of
// it is small enough for f32. UNIT: x is a NaN or in 0..1e30.
template <bool UNIT> PL_DEVICE float pow_small(float x, float y) {
  if (y == 0.5f || y == 0.25f) {
    const float root = sqrt(!UNIT && x == -inf() ? inf() : x + 0.0f);
    return y == 0.5f ? root : sqrt(root);
  }
  if (UNIT && y > 0.0f) return pow_root(x, y);
  const bool low = UNIT || x < 1.17549435e-38f;  // scaled so that what lies below the normal numbers is one
  const float scaled = x * (low ? 8388608.0f : 1.0f);
  const u32 u = bits(scaled), exponent = (u - 0x3f3504f3u) & 0xff800000u;
  const float f = from_bits(u - exponent) - 1.0f, whole = fma(float(int(exponent)), 1.1920928955078125e-07f, low ? -23.0f : 0.0f);
  float p = -0.14574454724788666f;
  p = fma(p, f, 0.2368900030851364f);
  p = fma(p, f, -0.25006890296936035f);
  p = fma(p, f, 0.2867075204849243f);
  p = fma(p, f, -0.36008724570274353f);
  p = fma(p, f, 0.48093944787979126f);
  p = fma(p, f, -0.7213571667671204f);
  p = fma(p, f, 1.4426947832107544f);
  const float part = p * f;
  const float power = whole * y, shifted = power + 12582912.0f, n = shifted - 12582912.0f;
  const float rest = fma(part, y, fma(whole, y, -n));
#if PIPELINK_PTX
  float z;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(rest));
#else
  const float z = PL_MATH(exp2f)(rest);
#endif
  const float out = from_bits(bits(z) + (bits(shifted) << 23)), zero = y > 0.0f ? 0.0f : inf();
  if (UNIT) return x == 0.0f ? zero : fma(x, 0.0f, out);  // a NaN stays one
  if (x > 0.0f && x < inf()) return out;
  return x == 0.0f ? zero : isinf(x) ? (y > 0.0f ? inf() : 0.0f) : nan();
}
PL_DEVICE double pow(double x, double y) {
  if (y == 1.0) return x;
  if (y == 2.0) return x * x;
  if (y == 3.0) return x * x * x;
  if (y == -1.0) return 1.0 / x;
  return PL_MATH(pow)(x, y);
}

// CUDA's is one unit off at some powers of two below the normal numbers: here whole exponents are taken out first, so that they stay exact.
PL_DEVICE float exp2(float x) {
#if PIPELINK_PTX
  if (x != x) return x;
  const float inside = fminf(fmaxf(x, -151.0f), 129.0f), whole = rintf(inside);
  const int n = int(whole), half = n >> 1;
  return exp2f(inside - whole) * from_bits(u32(half + 127) << 23) * from_bits(u32(n - half + 127) << 23);
#else
  return PL_MATH(exp2f)(x);
#endif
}
PL_DEVICE double exp2(double x) { return PL_MATH(exp2)(x); }

PL_DEVICE float rsqrt(float x) {
#if PIPELINK_PTX
  return rsqrtf(x);
#else
  return float(1.0 / PL_MATH(sqrt)(double(x)));
#endif
}
PL_DEVICE double rsqrt(double x) {
#if PIPELINK_PTX
  return ::rsqrt(x);
#else
  return 1.0 / PL_MATH(sqrt)(x);
#endif
}

// -1 or 1; zeros and NaN stay what they are.
PL_DEVICE float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
PL_DEVICE double sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x; }

// A NaN wins.
PL_DEVICE float min(float a, float b) {
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a < b || a != a ? a : b;
#endif
}
PL_DEVICE float max(float a, float b) {
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a > b || a != a ? a : b;
#endif
}
PL_DEVICE double min(double a, double b) { return a < b || a != a ? a : b; }
PL_DEVICE double max(double a, double b) { return a > b || a != a ? a : b; }

// Floor modulo and division: C's remainder moved to the sign of the divisor.
PL_DEVICE float mod(float a, float b) {
  float r = PL_MATH(fmodf)(a, b);
  if (r != 0.0f && (r < 0.0f) != (b < 0.0f)) r = r + b;
  return r == 0.0f ? PL_MATH(copysignf)(r, b) : r;
}
PL_DEVICE double mod(double a, double b) {
  double r = PL_MATH(fmod)(a, b);
  if (r != 0.0 && (r < 0.0) != (b < 0.0)) r = r + b;
  return r == 0.0 ? PL_MATH(copysign)(r, b) : r;
}
// A quotient of two floats is an integer, or further from one than a double rounds.
PL_DEVICE float floordiv(float a, float b) { return float(PL_MATH(floor)(double(a) / double(b))); }
PL_DEVICE double floordiv(double a, double b) {
  const double quotient = a / b, whole = PL_MATH(rint)((a - mod(a, b)) / b);
  if (whole == 0.0) return PL_MATH(copysign)(0.0, quotient);
  return abs(quotient) < 4503599627370496.0 && abs(whole) < inf64() ? whole : PL_MATH(floor)(quotient);
}

// `accuracy = exact`: correctly rounded, whatever options the file is compiled with.
PL_DEVICE float exact_div(float a, float b) {
#if PIPELINK_PTX
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
PL_DEVICE double exact_div(double a, double b) { return a / b; }
PL_DEVICE float times(float x, float factor, float rest) { return fma(x, factor, x * rest); }
// The same quotient, where all that is asked of it is a code of at most 16 bits: the reciprocal of b, which is one for many, and two steps (`quotient`).
PL_DEVICE float div_for_code(float a, float b) {
  const float size = PL_MATH(fabsf)(b);
  if (!(size >= 8.2718061255302767e-25f && size <= 1.152921504606847e18f)) return exact_div(a, b);  // 2 to the -80 and to the 60
  const float inverse = exact_div(1.0f, b), near = a * inverse, right = fma(-fma(near, b, -a), inverse, near);
  return right == right ? right : near;
}
PL_DEVICE float exact_sqrt(float x) {
#if PIPELINK_PTX
  return __fsqrt_rn(x);
#else
  return PL_MATH(sqrtf)(x);
#endif
}
PL_DEVICE double exact_sqrt(double x) { return sqrt(x); }

// `fast_math`: approximations that still know NaN and infinities.
PL_DEVICE float fast_div(float a, float b) {
#if PIPELINK_PTX
  float y;
  asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a / b;
#endif
}
PL_DEVICE float fast_sqrt(float x) {
#if PIPELINK_PTX
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return sqrt(x);
#endif
}
PL_DEVICE float fast_exp(float x) {
#if PIPELINK_PTX
  return __expf(x);
#else
  return exp(x);
#endif
}
PL_DEVICE double fast_div(double a, double b) { return a / b; }
PL_DEVICE double fast_sqrt(double x) { return sqrt(x); }
PL_DEVICE double fast_exp(double x) { return exp(x); }

}  // namespace pipelink

#endif
