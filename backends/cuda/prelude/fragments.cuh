#ifdef PIPELINK_FRAGMENTS

// Matrix fragments: products of matrices by tensor cores, and copies to shared memory that run beside everything else. Each instruction of PTX stands in one
// function, beside the same in plain C++, by which a processor plays it lane by lane.
namespace pipelink {

// --------------------------------------------------------------------------------------------------------------- copies

// Begins to copy 16 bytes to shared memory; zeros where `inside` does not hold.
PL_DEVICE void copy_async(void* to, const void* from, bool inside) {
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
  const u32 at = u32(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0) : "memory");
#elif defined(PIPELINK_EMULATED)
  pl_emulated::copy_later(to, inside ? from : nullptr);
#else
  const uint4 zero = {0, 0, 0, 0};
  *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : zero;
#endif
}
// Closes a group of copies.
PL_DEVICE void copies_commit() {
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(PIPELINK_EMULATED)
  pl_emulated::copies_commit();
#endif
}
// Waits until at most the last `PENDING` groups of this thread are under way.
template <int PENDING> PL_DEVICE void copies_await() {
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#elif defined(PIPELINK_EMULATED)
  pl_emulated::copies_await(PENDING);
#endif
}

// ----------------------------------------------------------------------------------------------------------- instructions

PL_DEVICE u64 both(u32 low, u32 high) { return u64(low) | u64(high) << 32; }

// Four matrices of 8 rows of 16 bytes: lane `n` says where row `n % 8` of matrix `n / 8` is, and gets of each matrix 4 bytes of row `lane / 4`; `TURNED`:
// two elements of 2 bytes of column `lane / 4`.
template <bool TURNED> PL_DEVICE void load_matrices(u32 (&out)[4], const void* row) {
#if PIPELINK_PTX
  const u32 at = u32(__cvta_generic_to_shared(row));
  if (TURNED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
  }
#else
  const int lane = thread() % PL_LANES, group = lane / 4, pair = lane % 4;
  for (int i = 0; i < 4; i++) {
    if (TURNED) {
      const u16* const first = reinterpret_cast<const u16*>(PL_SHUFFLE(reinterpret_cast<u64>(row), 8 * i + 2 * pair));
      const u16* const second = reinterpret_cast<const u16*>(PL_SHUFFLE(reinterpret_cast<u64>(row), 8 * i + 2 * pair + 1));
      out[i] = u32(first[group]) | u32(second[group]) << 16;
    } else {
      out[i] = reinterpret_cast<const u32*>(PL_SHUFFLE(reinterpret_cast<u64>(row), 8 * i + group))[pair];
    }
  }
#endif
}

// Adds to 4 of 16 x 8 sums: rows `lane / 4` and 8 below, columns `2 * (lane % 4)` and 1 right of it.
#if !PIPELINK_PTX || __CUDA_ARCH__ < 890
// Element `n` of 8 bytes.
template <typename T> struct Elements {
  static PL_MEMBER T of(u64 word, int n) { return T(word >> (8 * n)); }
};
template <typename Rule, typename Bits> struct Elements<Narrow<Rule, Bits>> {
  static PL_MEMBER Narrow<Rule, Bits> of(u64 word, int n) {
    Narrow<Rule, Bits> out;
    out.pattern = Bits(word >> (8 * int(sizeof(Bits)) * n));
    return out;
  }
};
template <> struct Elements<float> {
  static PL_MEMBER float of(u64 word, int n) { return from_bits(u32(word >> (32 * n))); }
};
#if PIPELINK_PTX
#define PL_TAKE(value, from) __shfl_sync(0xffffffffu, value, from)
#else
#define PL_TAKE(value, from) PL_SHUFFLE(value, from)
#endif
PL_DEVICE void plus(float& sum, float a, float b) { sum = sum + a * b; }
PL_DEVICE void plus(int& sum, int a, int b) { sum = add(sum, mul(a, b)); }
// Where a device has no such instruction, slowly; no program is scheduled so.
#if PIPELINK_PTX
#define PL_RARE static __device__ __noinline__
#else
#define PL_RARE PL_DEVICE
#endif
template <typename A, typename B, typename S> PL_RARE void mma_plain(S* sums, const u32* a, const u32* b) {
  const int lane = thread() % PL_LANES, group = lane / 4, pair = lane % 4;
  constexpr int each = 4 / int(sizeof(A));
  for (int t = 0; t < 4; t++) {
    // Of each lane of the row: words 0 and 2 belong to the upper row, 1 and 3 to the lower one.
    const u64 upper = PL_TAKE(both(a[0], a[2]), 4 * group + t), lower = PL_TAKE(both(a[1], a[3]), 4 * group + t);
    const u64 left = PL_TAKE(both(b[0], b[1]), 8 * pair + t), right = PL_TAKE(both(b[0], b[1]), 8 * pair + 4 + t);
    for (int n = 0; n < 2 * each; n++) {
      plus(sums[0], Elements<A>::of(upper, n), Elements<B>::of(left, n));
      plus(sums[1], Elements<A>::of(upper, n), Elements<B>::of(right, n));
      plus(sums[2], Elements<A>::of(lower, n), Elements<B>::of(left, n));
      plus(sums[3], Elements<A>::of(lower, n), Elements<B>::of(right, n));
    }
  }
}
#endif

// A factor of f32 is rounded to the 10 bits that tensor cores take of it, halves away from zero; others are what they are.
template <typename T> struct Ready {
  static PL_MEMBER void words(u32 (&)[4]) {}
};
template <> struct Ready<float> {
  static PL_MEMBER void words(u32 (&all)[4]) {
    PL_UNROLL
    for (int n = 0; n < 4; n++) {
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(all[n]) : "f"(from_bits(all[n])));
#else
      if ((all[n] & 0x7f800000u) != 0x7f800000u) all[n] = (all[n] + 0x1000u) & ~0x1fffu;
#endif
    }
  }
};

#define PL_MMA(A, B, S, letter, name) \
  PL_DEVICE void mma(A, B, S* sums, const u32* a, const u32* b) { \
    asm volatile("mma.sync.aligned." name " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+" letter(sums[0]), "+" letter(sums[1]), "+" letter(sums[2]), "+" letter(sums[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
#if PIPELINK_PTX && __CUDA_ARCH__ >= 800
PL_MMA(f16, f16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
PL_MMA(bf16, bf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
PL_MMA(float, float, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")
PL_MMA(i8, i8, int, "r", "m16n8k32.row.col.s32.s8.s8.s32")
PL_MMA(i8, u8, int, "r", "m16n8k32.row.col.s32.s8.u8.s32")
PL_MMA(u8, i8, int, "r", "m16n8k32.row.col.s32.u8.s8.s32")
PL_MMA(u8, u8, int, "r", "m16n8k32.row.col.s32.u8.u8.s32")
#endif
#if PIPELINK_PTX && __CUDA_ARCH__ >= 890
PL_MMA(f8e4m3, f8e4m3, float, "f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
PL_MMA(f8e4m3, f8e5m2, float, "f", "m16n8k32.row.col.f32.e4m3.e5m2.f32")
PL_MMA(f8e5m2, f8e4m3, float, "f", "m16n8k32.row.col.f32.e5m2.e4m3.f32")
PL_MMA(f8e5m2, f8e5m2, float, "f", "m16n8k32.row.col.f32.e5m2.e5m2.f32")
#endif
#if PIPELINK_PTX && __CUDA_ARCH__ < 800
// Half as many terms at a time.
PL_DEVICE void mma(f16, f16, float* sums, const u32* a, const u32* b) {
  PL_UNROLL
  for (int half = 0; half < 2; half++) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
}
// Bytes: 8 rows and half as many terms at a time.
#define PL_MMA_HALVES(A, B, name) \
  PL_DEVICE void mma(A, B, int* sums, const u32* a, const u32* b) { \
    PL_UNROLL \
    for (int part = 0; part < 4; part++) { \
      int* const two = sums + 2 * (part % 2); \
      asm volatile("mma.sync.aligned.m8n8k16.row.col." name " {%0, %1}, {%2}, {%3}, {%0, %1};" \
                   : "+r"(two[0]), "+r"(two[1]) : "r"(a[part]), "r"(b[part / 2])); \
    } \
  }
PL_MMA_HALVES(i8, i8, "s32.s8.s8.s32")
PL_MMA_HALVES(i8, u8, "s32.s8.u8.s32")
PL_MMA_HALVES(u8, i8, "s32.u8.s8.s32")
PL_MMA_HALVES(u8, u8, "s32.u8.u8.s32")
#endif
#if !PIPELINK_PTX || __CUDA_ARCH__ < 890
template <typename A, typename B, typename S> PL_DEVICE void mma(A, B, S* sums, const u32* a, const u32* b) { mma_plain<A, B>(sums, a, b); }
#endif

// --------------------------------------------------------------------------------------------------------------- fragments

// A matrix of sums that a block holds in registers: WARPS_M x WARPS_N warps with M x N tiles of 16 x 8 each. Factors lie in shared memory, row by row (`ALONG`)
// or term by term, with PITCH elements from one line to the next.
template <typename A, typename B, typename S, int WARPS_M, int WARPS_N, int M, int N> struct Fragment {
  S sums[M * N * 4];
  PL_MEMBER Fragment() {
    PL_UNROLL
    for (int i = 0; i < M * N * 4; i++) sums[i] = S(0);
  }
  static PL_MEMBER int top() { return thread() / 32 / WARPS_N * (M * 16); }
  static PL_MEMBER int left_edge() { return thread() / 32 % WARPS_N * (N * 8); }

  template <int DEPTH, bool ALONG_A, int PITCH_A, bool ALONG_B, int PITCH_B> PL_MEMBER void multiply(const A* left, const B* right) {
    constexpr int half = 16 / int(sizeof(A)), step = 2 * half;
    const int lane = thread() % 32, row = lane % 8, low = lane / 8 % 2, high = lane / 16;
    // The matrices of the left factor: upper rows, lower rows, then both for the second half of the terms; of the right one the halves come first.
    const int m = top() + 8 * low + row, n = left_edge() + 8 * high + row;
    const A* const a_at = ALONG_A ? left + m * PITCH_A + half * high : left + (half * high + row) * PITCH_A + top() + 8 * low;
    const B* const b_at = ALONG_B ? right + n * PITCH_B + half * low : right + (half * low + row) * PITCH_B + left_edge() + 8 * high;
    PL_UNROLL
    for (int k = 0; k < DEPTH; k += step) {
      u32 a[M][4], b[N / 2][4];
      PL_UNROLL
      for (int i = 0; i < M; i++) {
        load_matrices<!ALONG_A>(a[i], a_at + (ALONG_A ? 16 * i * PITCH_A + k : k * PITCH_A + 16 * i));
        Ready<A>::words(a[i]);
      }
      PL_UNROLL
      for (int j = 0; j < N / 2; j++) {
        load_matrices<!ALONG_B>(b[j], b_at + (ALONG_B ? 16 * j * PITCH_B + k : k * PITCH_B + 16 * j));
        Ready<B>::words(b[j]);
      }
      PL_UNROLL
      for (int i = 0; i < M; i++) {
        PL_UNROLL
        for (int j = 0; j < N; j++) mma(A(), B(), &sums[(i * N + j) * 4], a[i], &b[j / 2][j % 2 * 2]);
      }
    }
  }

  // Tiles `part` of all warps, 16 rows for each row of warps.
  template <int PITCH> PL_MEMBER void store(int part, S* to) const {
    const int lane = thread() % 32;
    S* const at = to + (thread() / 32 / WARPS_N * 16 + lane / 4) * PITCH + left_edge() + lane % 4 * 2;
    PL_UNROLL
    for (int i = 0; i < M; i++) {
      if (i == part) {
        PL_UNROLL
        for (int j = 0; j < N; j++) {
          PL_UNROLL
          for (int n = 0; n < 4; n++) at[n / 2 * 8 * PITCH + 8 * j + n % 2] = sums[(i * N + j) * 4 + n];
        }
      }
    }
  }
};

// ------------------------------------------------------------------------------------------------------------------ strips

// BYTES side by side as words, wherever they begin; `WIDE`: at a multiple of BYTES.
template <int BYTES, bool WIDE> PL_DEVICE void bytes_at(int* words, const u8* at) {
  if (WIDE || reinterpret_cast<u64>(at) % BYTES == 0) {
    const Many<int, BYTES / 4> all = many_at<BYTES / 4>(reinterpret_cast<const int*>(at));
    PL_UNROLL
    for (int k = 0; k < BYTES / 4; k++) words[k] = all.at[k];
  } else {
    PL_UNROLL
    for (int k = 0; k < BYTES / 4; k++) {
      words[k] = int(u32(at[4 * k]) | u32(at[4 * k + 1]) << 8 | u32(at[4 * k + 2]) << 16 | u32(at[4 * k + 3]) << 24);
    }
  }
}
// The part that a lane has of a line of BYTES, of which it knows the beginning: 16 of each 64, 8 of 32 that are left, 4 of 16 that are left.
template <int BYTES, bool WIDE, typename T> PL_DEVICE void strip_line(int* words, const T* line, bool inside) {
  constexpr int WHOLE = BYTES / 64, WORDS = 4 * WHOLE + (BYTES % 64 + 16) / 32 * 2;
  PL_UNROLL
  for (int k = 0; k < WORDS; k++) words[k] = 0;
  if (!inside) return;
  const u8* const at = reinterpret_cast<const u8*>(line);
  const int quarter = thread() % 4;
  PL_UNROLL
  for (int c = 0; c < WHOLE; c++) bytes_at<16, WIDE>(words + 4 * c, at + 64 * c + 16 * quarter);
  if (BYTES % 64 >= 32) bytes_at<8, WIDE>(words + 4 * WHOLE, at + 64 * WHOLE + 8 * quarter);
  if (BYTES % 32 != 0) bytes_at<4, WIDE>(words + WORDS - 2, at + BYTES - 16 + 4 * quarter);
}
// 0, of which no compiler knows that it is: there are fewer than a million multiprocessors. What it is added to is a value of its own, which may lie in other
// registers: without that each product of a strip copied the words of its rows, which were loaded in another order, to registers beside each other.
PL_DEVICE u32 unknown_zero() {
#if PIPELINK_PTX
  u32 count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count >> 20;
#else
  return 0;
#endif
}
// Sums of M x N tiles of 16 x 8. The words of a lane are those of the upper and the lower row of each 16, two for each step; those of the other factor lie in
// shared memory as the lanes want them, those of two steps together, an odd last one by itself.
template <int STEPS, int COUNT, typename A, typename B, typename S, int M, int N> PL_DEVICE void strip_steps(S* sums, const int* words, const int* weights, int k) {
  const u32 zero = unknown_zero();
  const Many<int, 2 * COUNT> all = many_at<2 * COUNT>(weights);
  PL_UNROLL
  for (int p = 0; p < COUNT; p++) {
    const u32 b[2] = {u32(all.at[2 * p]), u32(all.at[2 * p + 1])};
    PL_UNROLL
    for (int i = 0; i < M; i++) {
      const int* const upper = words + (2 * i * STEPS + k + p) * 2;
      const int* const lower = upper + 2 * STEPS;
      const u32 a[4] = {u32(upper[0]) | zero, u32(lower[0]) | zero, u32(upper[1]) | zero, u32(lower[1]) | zero};
      mma(A(), B(), sums + i * N * 4, a, b);
    }
  }
}
template <typename A, typename B, typename S, int M, int N, int STEPS> PL_DEVICE void strip_multiply(S* sums, const int* words, const B* factor) {
  const int lane = thread() % 32;
  PL_UNROLL
  for (int i = 0; i < 4 * M * N; i++) sums[i] = S(0);
  // All tiles of a step follow each other: they share the registers of the rows.
  const int* const weights = reinterpret_cast<const int*>(factor);
  PL_UNROLL
  for (int k = 0; k + 1 < STEPS; k += 2) {
    PL_UNROLL
    for (int j = 0; j < N; j++) strip_steps<STEPS, 2, A, B, S, M, N>(sums + 4 * j, words, weights + 64 * (j * STEPS + k) + 4 * lane, k);
  }
  if (STEPS % 2 != 0) {
    PL_UNROLL
    for (int j = 0; j < N; j++) strip_steps<STEPS, 1, A, B, S, M, N>(sums + 4 * j, words, weights + 64 * (j * STEPS + STEPS - 1) + 2 * lane, STEPS - 1);
  }
}

// ---------------------------------------------------------------------------------------------------------------- few rows

// 16 bytes of elements of two, which need not begin at a multiple of more than two.
PL_DEVICE void halves_at(int* words, const u8* at) {
  if (reinterpret_cast<u64>(at) % 4 == 0) {
    PL_UNROLL
    for (int k = 0; k < 4; k++) words[k] = reinterpret_cast<const int*>(at)[k];
  } else {
    const u16* const halves = reinterpret_cast<const u16*>(at);
    PL_UNROLL
    for (int k = 0; k < 4; k++) words[k] = int(u32(halves[2 * k]) | u32(halves[2 * k + 1]) << 16);
  }
}
template <int BYTES, bool WIDE, typename T> PL_DEVICE void words_at(int* words, const T* at) {
  PL_UNROLL
  for (int n = 0; n < BYTES / 16; n++) {
    const u8* const part = reinterpret_cast<const u8*>(at) + 16 * n;
    if (WIDE || sizeof(T) != 2 || reinterpret_cast<u64>(part) % 16 == 0) {
      bytes_at<16, WIDE>(words + 4 * n, part);
    } else {
      halves_at(words + 4 * n, part);
    }
  }
}
// A word of what a lane has of a column: as it is, or f32 that are rounded two at a time.
template <typename B> PL_DEVICE u32 word_of(const B* values) {
  u32 out;
  memcpy(&out, values, 4);
  return out;
}
template <typename B> PL_DEVICE u32 word_of(const float* values) {
  B two[2];
  put_two(two, values[0], values[1]);
  u32 out;
  memcpy(&out, two, 4);
  return out;
}
template <int BYTES, typename T> PL_DEVICE void pack_words(int* words, const T* values) {
  PL_UNROLL
  for (int n = 0; n < BYTES / 4; n++) words[n] = int(word_of(values + 4 / int(sizeof(T)) * n));
}
// Elements of a column as they lie, four bytes to a word: as they are, or bytes or pairs of four bits (the lower one first, with signs) that become numbers,
// which are multiplied by a scale if they are SCALED.
template <typename T, bool NIBBLES, bool SCALED> struct Packed {
  const int* words;
  float scale;
};
template <typename T> struct HasSign {
  static constexpr bool value = false;
};
template <> struct HasSign<i8> {
  static constexpr bool value = true;
};
// Four bytes, with a sign or without, as halves: a byte is the last digits of a float, or of 1024 and more.
template <bool SIGNED, typename B> PL_DEVICE void halves_of(B, u32* two, u32 bytes) {
  float all[4];
  PL_UNROLL
  for (int k = 0; k < 4; k++) all[k] = from_bits(permuted(SIGNED ? bytes ^ 0x80808080u : bytes, 0x4b000000u, 0x7540u | u32(k))) - (SIGNED ? 8388736.0f : 8388608.0f);
  two[0] = word_of<B>(all);
  two[1] = word_of<B>(all + 2);
}
#if PIPELINK_PTX
template <bool SIGNED> PL_DEVICE void halves_of(f16, u32* two, u32 bytes) {
  const u32 all = SIGNED ? bytes ^ 0x80808080u : bytes, least = SIGNED ? 0x64806480u : 0x64006400u;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(two[0]) : "r"(permuted(all, 0x64646464u, 0x4140u)), "r"(least));
  asm("sub.f16x2 %0, %1, %2;" : "=r"(two[1]) : "r"(permuted(all, 0x64646464u, 0x4342u)), "r"(least));
}
#endif
// Two words of a column, of step `n`.
template <typename B, typename V> PL_DEVICE void column_words(u32* two, const V* values, int n) {
  constexpr int EACH = 4 / int(sizeof(B));
  two[0] = word_of<B>(values + 2 * EACH * n);
  two[1] = word_of<B>(values + 2 * EACH * n + EACH);
}
template <typename B, typename T, bool NIBBLES, bool SCALED> PL_DEVICE void column_words(u32* two, Packed<T, NIBBLES, SCALED> values, int n) {
  constexpr bool SIGNED = HasSign<T>::value;
  if constexpr (NIBBLES) {
    const u32 bytes = u32(values.words[n / 2]) ^ 0x88888888u;
    PL_UNROLL
    for (int k = 0; k < 2; k++) {
      // Both numbers of a byte as the last digits of a float, the upper one sixteen times.
      const u32 both = permuted(bytes, 0x4b000000u, 0x7540u | u32(n % 2 * 2 + k));
      const float pair[2] = {(from_bits(both & 0xffffff0fu) - 8388616.0f) * values.scale,
                             (from_bits(both & 0xfffffff0u) - 8388736.0f) * (SCALED ? 0.0625f * values.scale : 0.0625f)};
      two[k] = word_of<B>(pair);
    }
  } else if constexpr (SCALED) {
    const u32 bytes = SIGNED ? u32(values.words[n]) ^ 0x80808080u : u32(values.words[n]);
    float all[4];
    PL_UNROLL
    for (int k = 0; k < 4; k++) all[k] = (from_bits(permuted(bytes, 0x4b000000u, 0x7540u | u32(k))) - (SIGNED ? 8388736.0f : 8388608.0f)) * values.scale;
    two[0] = word_of<B>(all);
    two[1] = word_of<B>(all + 2);
  } else if constexpr (sizeof(B) == sizeof(T)) {
    two[0] = u32(values.words[2 * n]);
    two[1] = u32(values.words[2 * n + 1]);
  } else {
    halves_of<SIGNED>(B(), two, u32(values.words[n]));
  }
}
// Halves: four words of eight columns for each term of a lane, two words of each row for each step.
template <typename A, typename B, int HALVES, int STEPS, typename S> PL_DEVICE void few_multiply_across(S* sums, const int* words, const int* values) {
  PL_UNROLL
  for (int n = 0; n < STEPS; n++) {
    const int* const upper = words + 2 * n;
    const int* const lower = words + 2 * n + (HALVES - 1) * 2 * STEPS;
    const u32 a[4] = {u32(upper[0]), HALVES == 2 ? u32(lower[0]) : 0u, u32(upper[1]), HALVES == 2 ? u32(lower[1]) : 0u};
    PL_UNROLL
    for (int j = 0; j < 8; j++) {
      const int* const at = values + 16 * n + j / 2;
      const u32 halves = j % 2 == 0 ? 0x5410u : 0x7632u;
      const u32 b[2] = {permuted(u32(at[0]), u32(at[4]), halves), permuted(u32(at[8]), u32(at[12]), halves)};
      mma(A(), B(), sums + 4 * j, a, b);
    }
  }
}
// Two words of each row and of the column for each step.
template <typename A, typename B, int HALVES, int STEPS, typename S, typename V> PL_DEVICE void few_multiply(S* sums, const int* words, V values) {
  PL_UNROLL
  for (int n = 0; n < STEPS; n++) {
    const int* const upper = words + 2 * n;
    const int* const lower = words + 2 * n + (HALVES - 1) * 2 * STEPS;
    const u32 a[4] = {u32(upper[0]), HALVES == 2 ? u32(lower[0]) : 0u, u32(upper[1]), HALVES == 2 ? u32(lower[1]) : 0u};
    u32 b[2];
    column_words<B>(b, values, n);
    mma(A(), B(), sums, a, b);
  }
}

}  // namespace pipelink

#endif
