#ifdef PIPELINK_WINDOW

// Windows of a picture whose tile lies in shared memory: the sums of a warp, by tensor cores (`form_window.py`).
namespace pipelink {

// Whether an element that is no integer may be anything, its product with zero too.
template <typename T> struct Whole { static constexpr bool value = T(1) / T(2) == T(0); };
template <typename Rule, typename Bits> struct Whole<Narrow<Rule, Bits>> { static constexpr bool value = false; };

// Products of one step of all parts with all columns.
template <typename A, typename B, typename S, int M, int T> PL_DEVICE void window_step(S* sums, const u32 (&a)[M][4], const int* weights) {
  PL_UNROLL
  for (int t = 0; t < T; t++) {
    const Many<int, 2> two = many_at<2>(weights + 64 * t);
    const u32 b[2] = {u32(two.at[0]), u32(two.at[1])};
    PL_UNROLL
    for (int i = 0; i < M; i++) mma(A(), B(), sums + 4 * (i * T + t), a[i], b);
  }
}

// M x 16 pixels, T x 8 columns. NY rows, DY apart, and NX pixels, DX apart, of PIXEL bytes; ROWS rows of the result at once, each of COLUMNS columns
// and of TAPS rows of the tile.
template <typename A, typename B, typename S, int M, int T, int NY, int DY, int NX, int DX, int STEP, int PITCH, int PIXEL, int ROWS, int COLUMNS, int TAPS, int START>
PL_DEVICE void window_multiply(S* sums, const A* row, int column, const B* factor) {
  constexpr int APART = STEP * 2 * M, CHUNKS = PIXEL / 16, STEPS = PIXEL / 32, SIDE = ROWS / 4 > 0 ? ROWS / 4 : 1;
  const int lane = thread() % 32, quarter = lane % 4;
  // Of 16 pixels a lane says where one lies, the upper or the lower eighth; behind each APART pixels there are 16 bytes that nobody wants.
  const int half = lane / 8 % 2;
  const u8* const at = reinterpret_cast<const u8*>(row) + ((column / APART + lane % 8) * (APART * CHUNKS + 1) + half * STEP * CHUNKS + lane / 16) * 16;
  const u8* const behind = at + 16 * half;
  const int* weights = reinterpret_cast<const int*>(factor) + 2 * lane;
  PL_UNROLL
  for (int n = 0; n < 4 * M * T; n++) sums[n] = S(START);
  PL_UNROLL
  for (int y = 0; y < NY; y++) {
    // Where several rows of the result are computed at once, a row of the tile is none of the terms of some of them: a product with zero would be no zero for
    // what is infinite.
    constexpr bool APARTS = ROWS > 1 && !Whole<A>::value;
    S part[APARTS ? 4 * M * T : 1];
    if (APARTS) {
      PL_UNROLL
      for (int n = 0; n < 4 * M * T; n++) part[APARTS ? n : 0] = S(0);
    }
    PL_UNROLL
    for (int x = 0; x < NX; x++) {
      PL_UNROLL
      for (int k = 0; k < STEPS; k++) {
        u32 a[M][4];
        PL_UNROLL
        for (int i = 0; i < M; i++) {
          const int pixel = STEP * 2 * i + x * DX, place = (pixel * CHUNKS + pixel / APART) * 16 + y * DY * PITCH + 32 * k;
          load_matrices<false>(a[i], (pixel % APART + STEP < APART ? at : behind) + place);
        }
        window_step<A, B, S, M, T>(APARTS ? part : sums, a, weights + ((y * NX + x) * STEPS + k) * T * 64);
      }
    }
    if (APARTS) {
      PL_UNROLL
      for (int n = 0; n < 4 * M * T; n++) {
        const int mine = quarter * SIDE + (n / 4 % T * 2 + n % 2) / COLUMNS;
        if (y >= mine && y < mine + TAPS) sums[n] = sums[n] + part[APARTS ? n : 0];
      }
    }
  }
}

// UNIT elements that lie side by side, as low bits of a word.
template <int BYTES> PL_DEVICE u32 window_unit(const void* at) {
  if (BYTES == 4) return *static_cast<const u32*>(at);
  if (BYTES == 2) return *static_cast<const u16*>(at);
  return *static_cast<const u8*>(at);
}
// The same where the window of a pixel has EACH elements of a row, from LEAD on RUN of its own; pixels of the result are STEP elements apart.
template <typename A, typename B, typename S, int M, int T, int NY, int DY, int RUN, int LEAD, int UNIT, int STEP, int PITCH, int START>
PL_DEVICE void window_gather(S* sums, const A* row, const B* factor) {
  constexpr int EACH = (LEAD + RUN + UNIT - 1) / UNIT * UNIT, BYTES = int(sizeof(A)), WORD = 4 / BYTES, UNITS = WORD / UNIT;
  constexpr int STEPS = (NY * EACH * BYTES + 31) / 32;
  const int lane = thread() % 32, quarter = lane % 4;
  const u8* const first = reinterpret_cast<const u8*>(row) + lane / 4 * STEP * BYTES;
  const int* weights = reinterpret_cast<const int*>(factor) + 2 * lane;
  PL_UNROLL
  for (int n = 0; n < 4 * M * T; n++) sums[n] = S(START);
  PL_UNROLL
  for (int k = 0; k < STEPS; k++) {
    u32 a[M][4];
    PL_UNROLL
    for (int h = 0; h < 2; h++) {
      int place[UNITS];
      u32 mask = 0;
      PL_UNROLL
      for (int u = 0; u < UNITS; u++) {
        const int term = (k * 32 + h * 16) / BYTES + quarter * WORD + u * UNIT, y = term / EACH, j = term % EACH;
        place[u] = y < NY ? y * DY * PITCH + j * BYTES : 0;
        PL_UNROLL
        for (int n = 0; n < UNIT; n++) {
          if (y < NY && j + n >= LEAD && j + n < LEAD + RUN) mask |= (BYTES == 2 ? 0xffffu : 0xffu) << (8 * BYTES * (u * UNIT + n));
        }
      }
      PL_UNROLL
      for (int i = 0; i < M; i++) {
        PL_UNROLL
        for (int half = 0; half < 2; half++) {
          u32 word = 0;
          PL_UNROLL
          for (int u = 0; u < UNITS; u++) {
            word |= window_unit<UNIT * BYTES>(first + place[u] + (16 * i + 8 * half) * STEP * BYTES) << (8 * BYTES * UNIT * u);
          }
          a[i][2 * h + half] = Whole<A>::value ? word : word & mask;
        }
      }
    }
    window_step<A, B, S, M, T>(sums, a, weights + k * T * 64);
  }
}

// ------------------------------------------------------------------------------------------------------- four warps together

// What a thread has written to shared memory is there for tensor cores that read it by themselves, behind the next barrier.
PL_DEVICE void copies_shown() {
#if PIPELINK_PTX && defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
#if PIPELINK_PTX && defined(__CUDA_ARCH_FEAT_SM90_ALL)
// 64 rows by 8 N columns; rows of 16 bytes lie after each other, halves of the terms `leading` bytes apart.
PL_DEVICE u64 plain_matrix(u32 at, int leading) { return u64(at >> 4 & 0x3fff) | u64(leading >> 4 & 0x3fff) << 16 | u64(128 >> 4) << 32; }
#define PL_GROUP(A, B, S, types, kind, more) \
  PL_DEVICE void group_mma(A, B, S (&d)[16], u64 a, u64 b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32" types " {" PL_NUMBERS_16 "}, %16, %17, 1" more ";" : PL_REGISTERS_16(kind, d) : "l"(a), "l"(b)); \
  } \
  PL_DEVICE void group_mma(A, B, S (&d)[32], u64 a, u64 b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64" types " {" PL_NUMBERS_32 "}, %32, %33, 1" more ";" : PL_REGISTERS_32(kind, d) : "l"(a), "l"(b)); \
  }
PL_GROUP(f16, f16, float, "k16.f32.f16.f16", "+f", ", 1, 1, 0, 0")
PL_GROUP(bf16, bf16, float, "k16.f32.bf16.bf16", "+f", ", 1, 1, 0, 0")
PL_GROUP(i8, i8, int, "k32.s32.s8.s8", "+r", "")
PL_GROUP(i8, u8, int, "k32.s32.s8.u8", "+r", "")
PL_GROUP(u8, i8, int, "k32.s32.u8.s8", "+r", "")
PL_GROUP(u8, u8, int, "k32.s32.u8.u8", "+r", "")
PL_DEVICE void group_settle(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }
PL_DEVICE void group_settle(int& sum) { asm volatile("" : "+r"(sum)::"memory"); }
#endif
// Of 64 pixels of a row, 16 each of four warps, 8 T columns. A tile has planes of 16 bytes of each pixel, PLANE bytes apart, rows of them PITCH.
template <typename A, typename B, typename S, int T, int NY, int DY, int NX, int DX, int PITCH, int PLANE, int PIXEL, int START>
PL_DEVICE void window_group(S* sums, const A* row, const B* factor) {
  constexpr int STEPS = PIXEL / 32;
#if PIPELINK_PTX && defined(__CUDA_ARCH_FEAT_SM90_ALL)
  S d[4 * T];
  PL_UNROLL
  for (int n = 0; n < 4 * T; n++) d[n] = S(START);
  const u32 tile = __shfl_sync(0xffffffffu, u32(__cvta_generic_to_shared(row)), 0), weights = u32(__cvta_generic_to_shared(factor));
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  PL_UNROLL
  for (int y = 0; y < NY; y++) {
    PL_UNROLL
    for (int x = 0; x < NX; x++) {
      PL_UNROLL
      for (int k = 0; k < STEPS; k++) {
        const u64 a = plain_matrix(tile + y * DY * PITCH + x * DX * 16 + 2 * k * PLANE, PLANE);
        group_mma(A(), B(), d, a, plain_matrix(weights + ((y * NX + x) * STEPS + k) * T * 256, T * 128));
      }
    }
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  PL_UNROLL
  for (int n = 0; n < 4 * T; n++) {
    group_settle(d[n]);
    sums[n] = d[n];
  }
#else
  constexpr int EACH = 16 / int(sizeof(A));
  const int lane = thread() % 32, warp = thread() / 32 % 4;
  for (int n = 0; n < 4 * T; n++) {
    const int pixel = 16 * warp + lane / 4 + n / 2 % 2 * 8, column = n / 4 * 8 + lane % 4 * 2 + n % 2;
    S sum = S(START);
    for (int y = 0; y < NY; y++) {
      for (int x = 0; x < NX; x++) {
        for (int c = 0; c < 2 * STEPS; c++) {
          const A* const left = row + (y * DY * PITCH + (pixel + x * DX) * 16 + c * PLANE) / int(sizeof(A));
          const B* const right = factor + (((y * NX + x) * 2 * STEPS + c) * 8 * T + column) * EACH;
          for (int k = 0; k < EACH; k++) plus(sum, S(left[k]), S(right[k]));
        }
      }
    }
    sums[n] = sum;
  }
#endif
}

}  // namespace pipelink

#endif
