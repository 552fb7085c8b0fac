// What the language's functions give, by each thread for itself: quotients, roots, exponentials, powers, and their forms for `accuracy` and `fast_math`. It
// stands behind numbers.cuh.
#ifndef PIPELINK_FUNCTIONS_CUH
#define PIPELINK_FUNCTIONS_CUH

namespace pipelink {

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

// 2 to a power, within 2 units in the last place. What is below the normal numbers becomes 0 unless results that are SMALL matter.
template <bool SMALL = false> PL_DEVICE float quick_exp2(float x) {
#if PIPELINK_PTX
  float out;
  if (SMALL) asm("ex2.approx.f32 %0, %1;" : "=f"(out) : "f"(x));
  else asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return PL_MATH(exp2f)(x);
#endif
}

// Off by at most 3 units, in two thirds of the instructions of CUDA's: x times a polynomial of its square near 0, else 1 - 2 to the minus polynomial
// of |x|. Both are minimax fits (weighted least squares, Lawson) to the error in units of the result.
PL_DEVICE float erf(float x) {
#if PIPELINK_PTX
  const float t = fabsf(x), s = x * x;
  const float near = fmaf(fmaf(fmaf(fmaf(0.0042818021f, s, -0.026474483f), s, 0.11276999f), s, -0.37612221f), s, 0.12837912f);
  const float far = fmaf(fmaf(fmaf(fmaf(fmaf(0.0021400026f, t, -0.024904832f), t, 0.13828582f), t, 0.9294852f), t, 1.6223114f), t, 0.0010994206f);
  const float rest = quick_exp2(-far);  // without a branch
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
  const float rest = quick_exp2<SMALL>(-power);
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
  const float e = quick_exp2(tanh_power(x));
#if PIPELINK_PTX
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(1.0f + e));
  return x * out;
#else
  return x * (1.0f / (1.0f + e));
#endif
}
// A bf16 may be as small as what the other side of 1 is rounded away for.
PL_DEVICE float gelu_tanh_bf16(float x) {
  const float e = quick_exp2<true>(-PL_MATH(fabsf)(tanh_power(x)));
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
// 2 to the power of `rest` and of the integer that is added to 12582912.
PL_DEVICE float power_of(float rest, float shifted) { return from_bits(bits(quick_exp2(rest)) + (bits(shifted) << 23)); }
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
  return min(power_of(rest, shifted), scaled * 1.7014118346046923e+38f);
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
  const float out = power_of(rest, shifted), zero = y > 0.0f ? 0.0f : inf();
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
PL_DEVICE float fast_exp(float x) {
#if PIPELINK_PTX
  return __expf(x);
#else
  return exp(x);
#endif
}
PL_DEVICE double fast_div(double a, double b) { return a / b; }
PL_DEVICE double fast_exp(double x) { return exp(x); }

}  // namespace pipelink

#endif
