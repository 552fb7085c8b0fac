#ifdef PIPELINK_OWN

// Sums of products that each thread holds for itself, and a softmax that goes on from tile to tile (see `form_own.py`). A warp has whole rows: of each 16 x 8
// tile a lane has rows `lane / 4` and 8 below, columns `2 * (lane % 4)` and 1 right of it.
namespace pipelink {

// Two numbers rounded, the first one in the lower half.
template <typename T> PL_DEVICE u32 rounded_pair(T, float a, float b) { return u32(T(a).pattern) | u32(T(b).pattern) << 16; }
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
PL_DEVICE u32 rounded_pair(f16, float a, float b) {
  u32 out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(b), "f"(a));
  return out;
}
PL_DEVICE u32 rounded_pair(bf16, float a, float b) {
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(b), "f"(a));
  return out;
}
#endif

// 2 to the x, subnormal results flushed: of weights the largest of which is 1.
PL_DEVICE float weight_exp2(float x) { return quick_exp2(x); }

template <int COUNT> PL_DEVICE void zero(float (&sums)[COUNT]) {
  PL_UNROLL
  for (int n = 0; n < COUNT; n++) sums[n] = 0.0f;
}
// One step of 16 terms: `a` has the left factor of M tiles, the right one is loaded.
template <typename A, typename B, int M, int N, bool ALONG, int PITCH> PL_DEVICE void dot_step(float (&sums)[M * N * 4], const u32 (&a)[M][4], const B* at) {
  PL_UNROLL
  for (int j = 0; j < N / 2; j++) {
    u32 b[4];
    load_matrices<!ALONG>(b, at + (ALONG ? 16 * j * PITCH : 16 * j));
    PL_UNROLL
    for (int i = 0; i < M; i++) {
      mma(A(), B(), &sums[(i * N + 2 * j) * 4], a[i], &b[0]);
      mma(A(), B(), &sums[(i * N + 2 * j + 1) * 4], a[i], &b[2]);
    }
  }
}
// Where a lane begins to load a right factor.
template <bool ALONG, int PITCH, typename B> PL_DEVICE const B* dot_right(const B* right) {
  const int row = thread() % 8, low = thread() / 8 % 2, high = thread() / 16 % 2;
  return ALONG ? right + (8 * high + row) * PITCH + 8 * low : right + (8 * low + row) * PITCH + 8 * high;
}

template <typename A, typename B, int M, int N, int DEPTH, bool FRESH, bool ALONG_A, int PITCH_A, bool ALONG_B, int PITCH_B>
PL_DEVICE void dot(float (&sums)[M * N * 4], const A* left, const B* right) {
  const int row = thread() % 8, low = thread() / 8 % 2, high = thread() / 16 % 2, top = thread() / 32 * (16 * M);
  const A* const a_at = ALONG_A ? left + (top + 8 * low + row) * PITCH_A + 8 * high : left + (8 * high + row) * PITCH_A + top + 8 * low;
  const B* const b_at = dot_right<ALONG_B, PITCH_B>(right);
  if (FRESH) zero(sums);
  PL_UNROLL
  for (int k = 0; k < DEPTH; k += 16) {
    u32 a[M][4];
    PL_UNROLL
    for (int i = 0; i < M; i++) load_matrices<!ALONG_A>(a[i], a_at + (ALONG_A ? 16 * i * PITCH_A + k : k * PITCH_A + 16 * i));
    dot_step<A, B, M, N, ALONG_B, PITCH_B>(sums, a, b_at + (ALONG_B ? k : k * PITCH_B));
  }
}

// The left factor is what each thread has of an earlier product: the places of its elements are those that the instruction asks for.
template <typename A, typename B, int M, int N, int DEPTH, bool FRESH, bool ALONG_B, int PITCH_B>
PL_DEVICE void dot_own(float (&sums)[M * N * 4], const float (&left)[M * DEPTH / 2], const B* right) {
  const B* const b_at = dot_right<ALONG_B, PITCH_B>(right);
  if (FRESH) zero(sums);
  PL_UNROLL
  for (int k = 0; k < DEPTH; k += 16) {
    u32 a[M][4];
    PL_UNROLL
    for (int i = 0; i < M; i++) {
      const float* const p = left + i * (DEPTH / 2) + k / 2;
      PL_UNROLL
      for (int n = 0; n < 4; n++) a[i][n] = rounded_pair(A(), p[2 * n], p[2 * n + 1]);
    }
    dot_step<A, B, M, N, ALONG_B, PITCH_B>(sums, a, b_at + (ALONG_B ? k : k * PITCH_B));
  }
}

struct RowMax {
  static PL_MEMBER float of(float a, float b) { return max(a, b); }
};
struct RowSum {
  static PL_MEMBER float of(float a, float b) { return a + b; }
};
// The values of the four lanes that have a row.
template <typename Rule> PL_DEVICE float across_row(float x) {
  const int lane = thread() % PL_LANES;
  x = Rule::of(x, float(PL_SHUFFLE(x, lane ^ 1)));
  return Rule::of(x, float(PL_SHUFFLE(x, lane ^ 2)));
}
template <typename Rule, int COUNT> PL_DEVICE void across_rows(float (&x)[COUNT]) {
  PL_UNROLL
  for (int n = 0; n < COUNT; n++) x[n] = across_row<Rule>(x[n]);
}

// Scores times SCALE become exponentials of their distance from the largest so far; returned is what everything before is to be multiplied with.
template <int N> PL_DEVICE float online_row(float* scores, float& top, float& total, float scale) {
  float most = top;
  PL_UNROLL
  for (int j = 0; j < N; j++) most = max(max(most, scores[4 * j]), scores[4 * j + 1]);
  most = across_row<RowMax>(most);
  const float factor = scale * 1.4426950408889634f, base = most * factor;
  float keep, sum = 0.0f;
  if (base > -1e7f && base < 1e7f) {
    // The same rounded number is taken off everywhere, and the one before it from what came before: it cancels.
    keep = weight_exp2(top * factor - base);
    PL_UNROLL
    for (int j = 0; j < N; j++) {
      PL_UNROLL
      for (int e = 0; e < 2; e++) sum += scores[4 * j + e] = weight_exp2(fma(scores[4 * j + e], factor, -base));
    }
  } else {
    // Infinities, a NaN, or scores so large that the rounding of a product with them is more than weights have room for.
    const float off = most == -inf() ? 0.0f : most;
    keep = weight_exp2((top - off) * factor);
    PL_UNROLL
    for (int j = 0; j < N; j++) {
      PL_UNROLL
      for (int e = 0; e < 2; e++) sum += scores[4 * j + e] = weight_exp2((scores[4 * j + e] - off) * factor);
    }
  }
  top = most;
  total = fma(total, keep, sum);
  return keep;
}
template <int M, int N> PL_DEVICE void online(float (&scores)[M * N * 4], float (&top)[2 * M], float (&total)[2 * M], float scale) {
  PL_UNROLL
  for (int r = 0; r < 2 * M; r++) online_row<N>(&scores[r / 2 * N * 4 + r % 2 * 2], top[r], total[r], scale);
}
template <int M, int N, int WIDE>
PL_DEVICE void online(float (&scores)[M * N * 4], float (&top)[2 * M], float (&total)[2 * M], float (&sums)[M * WIDE * 4], float scale) {
  PL_UNROLL
  for (int r = 0; r < 2 * M; r++) {
    const float keep = online_row<N>(&scores[r / 2 * N * 4 + r % 2 * 2], top[r], total[r], scale);
    if (keep != 1.0f) {  // most tiles have no score above all before
      PL_UNROLL
      for (int j = 0; j < WIDE; j++) {
        PL_UNROLL
        for (int e = 0; e < 2; e++) sums[(r / 2 * WIDE + j) * 4 + r % 2 * 2 + e] *= keep;
      }
    }
  }
}

}  // namespace pipelink

#endif
