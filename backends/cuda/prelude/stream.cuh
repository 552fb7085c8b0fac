#ifdef PIPELINK_STREAM

// Products of matrices on sm_90a: one warpgroup lets the copy engine bring tiles of both factors to a ring in shared memory, the others multiply what has
// arrived (wgmma). A processor plays the same by plain loops.
namespace pipelink {

#if PIPELINK_PTX && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PL_SM90A 1
#else
#define PL_SM90A 0
#endif

// A factor as it lies in memory, fastest index first: elements along each axis, and elements from one to the next along the second and third.
template <typename T> struct Panel {
  using Element = T;
  static constexpr bool BOXED = false;
  const T* at;
  i64 n0, n1, n2, step1, step2;
};
// A picture as a factor: of a tile the first LINES_ lines are the pixels of a box of the result, and their terms the channels of pixels around the place `STEP` times
// a pixel and `BEGIN`, `APART` from each other, TAPS in a row. Pixels across and down, pictures, boxes across and down, and pixels and pictures of a box.
template <typename T, int CHANNELS_, int LINES_, int TAPS, int STEP_X_, int STEP_Y_, int APART_X, int APART_Y, int BEGIN_X, int BEGIN_Y> struct Picture {
  using Element = T;
  static constexpr bool BOXED = true;
  static constexpr int CHANNELS = CHANNELS_, LINES = LINES_, STEP_X = STEP_X_, STEP_Y = STEP_Y_;
  const T* at;
  i64 n0, n1, n2, across, down, wide, high, pictures, step1, step2;
  struct Place {
    int x, y, picture;
  };
  // Pixel `line` of box `number` of the result.
  PL_MEMBER Place pixel(int number, int line) const {
    const int above = number / int(across), below = line / int(wide);
    return {(number - above * int(across)) * int(wide) + (line - below * int(wide)), above % int(down) * int(high) + below % int(high),
            above / int(down) * int(pictures) + below / int(high)};
  }
  // What a pixel of the result reads at a term; of all those of a box the first comes first.
  static PL_MEMBER Place term(const Place& p, int k) {
    const int tap = k / CHANNELS;
    return {p.x * STEP_X + tap % TAPS * APART_X + BEGIN_X, p.y * STEP_Y + tap / TAPS * APART_Y + BEGIN_Y, p.picture};
  }
};

// Four neighbouring lanes trade: lane `q` of them gets pair `q` of each, in their order, so that a line of 64 bytes is stored by whole sectors.
template <typename T> struct Pair {
  static PL_MEMBER u32 word(const T* at) { return u32(raw(at[0])) | u32(raw(at[1])) << (8 * int(sizeof(T))); }
  static PL_MEMBER void put(T* at, u32 word) {
    at[0] = made(word);
    at[1] = made(word >> (8 * int(sizeof(T))));
  }
  static PL_MEMBER u32 raw(T x) { return sizeof(T) == 1 ? u32(u8(x)) : u32(u16(x)); }
  static PL_MEMBER T made(u32 word) { return T(word); }
};
template <typename Rule, typename Bits> struct Pair<Narrow<Rule, Bits>> {
  using T = Narrow<Rule, Bits>;
  static PL_MEMBER u32 word(const T* at) { return u32(at[0].pattern) | u32(at[1].pattern) << (8 * int(sizeof(T))); }
  static PL_MEMBER void put(T* at, u32 word) {
    at[0].pattern = Bits(word);
    at[1].pattern = Bits(word >> (8 * int(sizeof(T))));
  }
};
PL_DEVICE void trade_words(u32* words) {
#ifdef PIPELINK_EMULATED
  __syncwarp();  // what words are made of has been read: who gets them may store in its place
#endif
  const int lane = thread() % 32;
  const bool odd = lane % 2 != 0, high = lane / 2 % 2 != 0;
  PL_UNROLL
  for (int k = 0; k < 4; k += 2) {
    const u32 got = PL_SHUFFLE(odd ? words[k] : words[k + 1], lane ^ 1);
    words[k] = odd ? got : words[k];
    words[k + 1] = odd ? words[k + 1] : got;
  }
  PL_UNROLL
  for (int k = 0; k < 2; k++) {
    const u32 got = PL_SHUFFLE(high ? words[k] : words[k + 2], lane ^ 2);
    words[k] = high ? got : words[k];
    words[k + 2] = high ? words[k + 2] : got;
  }
}
template <typename To, typename From> PL_DEVICE u32 pair_word(const From* from) {
  To two[2];
  put_two(two, from[0], from[1]);
  return Pair<To>::word(two);
}
// Four bytes of as many elements.
template <typename To, typename From> PL_DEVICE u32 four_word(const From* from) { return pair_word<To>(from) | pair_word<To>(from + 2) << 16; }
template <typename To> PL_DEVICE u32 four_word(const int* from) { return u32(four<0>(from[0], from[1], from[2], from[3])); }
// Of 16 bytes it gets pairs 2 * q of each, and then 2 * q + 1 of each.
template <int COUNT, typename To, typename From> PL_DEVICE void trade(To* to, const From* from) {
  static_assert(COUNT == 8 || (COUNT == 16 && sizeof(To) == 1), "a word of each lane for each other one");
  u32 words[4];
  PL_UNROLL
  for (int k = 0; k < 4; k++) {
    if constexpr (COUNT == 8) {
      words[k] = pair_word<To>(from + 2 * k);
    } else {
      words[k] = four_word<To>(from + 4 * k);
    }
  }
  trade_words(words);
  if constexpr (COUNT == 8) {
    PL_UNROLL
    for (int k = 0; k < 4; k++) Pair<To>::put(to + 2 * k, words[k]);
  } else {
    PL_UNROLL
    for (int k = 0; k < 4; k++) {
      const u32 bytes = permuted(words[k % 2 * 2], words[k % 2 * 2 + 1], k < 2 ? 0x5410u : 0x7632u);
      memcpy(to + 4 * k, &bytes, 4);
    }
  }
}

#if PL_SM90A
PL_DEVICE u32 shared_address(const void* at) { return u32(__cvta_generic_to_shared(at)); }

// --------------------------------------------------------------------------------------- barriers that count bytes as well

PL_DEVICE void gate_init(u32 gate, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(gate), "r"(arrivals) : "memory"); }
PL_DEVICE void gate_arrive(u32 gate) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(gate) : "memory"); }
PL_DEVICE void gate_expect(u32 gate, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gate), "r"(bytes) : "memory");
}
// One lane of a warp that is all there. The compiler knows that it is one, so what the copy engine is told can come from registers of the warp.
PL_DEVICE bool elected() {
  u32 one;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(one)::"memory");
  return one != 0;
}
PL_DEVICE void gate_wait(u32 gate, u32 phase) {
  u32 passed = 0;
  while (!passed) {
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
        : "=r"(passed) : "r"(gate), "r"(phase) : "memory");
  }
}

// ---------------------------------------------------------------------------------------------------------- the copy engine

#define PL_TELL(what, ordinal, type, letter, value) \
  asm volatile("tensormap.replace.tile." what ".shared::cta.b1024." type " [%0], " ordinal "%1;" ::"r"(at), letter(value) : "memory")
#define PL_TELL_AXIS(ordinal, size, box, each) \
  do { \
    PL_TELL("global_dim", ordinal ", ", "b32", "r", u32(size)); \
    PL_TELL("box_dim", ordinal ", ", "b32", "r", box); \
    PL_TELL("element_stride", ordinal ", ", "b32", "r", each); \
  } while (0)
#define PL_TELL_STEP(ordinal, elements) PL_TELL("global_stride", ordinal ", ", "b64", "l", i64(elements) * i64(sizeof(T)))

// Describes boxes of `box0` x `box1` elements of a panel, or those of a picture, to the copy engine. All lanes of a warp call it; `draft` is 128 bytes of shared
// memory, `map` of device memory, both at multiples of 128.
template <typename P> PL_DEVICE void describe(u8* draft, u8* map, const P& p, int box0, int box1) {
  using T = typename P::Element;
  const u32 at = shared_address(draft);
  if (thread() % 32 == 0) {
    PL_UNROLL
    for (int i = 0; i < 32; i++) reinterpret_cast<u32*>(draft)[i] = 0;
    PL_TELL("global_address", "", "b64", "l", p.at);
    if constexpr (P::BOXED) {
      PL_TELL("rank", "", "b32", "n", 3);
      PL_TELL_AXIS("0", P::CHANNELS, box0, 1);
      PL_TELL_AXIS("1", p.n0, int(p.wide) * P::STEP_X, P::STEP_X);
      PL_TELL_AXIS("2", p.n1, int(p.high) * P::STEP_Y, P::STEP_Y);
      PL_TELL_AXIS("3", p.n2, int(p.pictures), 1);
      PL_TELL_STEP("0", P::CHANNELS);
      PL_TELL_STEP("1", p.step1);
      PL_TELL_STEP("2", p.step2);
    } else {
      PL_TELL("rank", "", "b32", "n", 2);
      PL_TELL_AXIS("0", p.n0, box0, 1);
      PL_TELL_AXIS("1", p.n1, box1, 1);
      PL_TELL_AXIS("2", p.n2, 1, 1);
      PL_TELL_STEP("0", p.step1);
      PL_TELL_STEP("1", p.step2);
    }
    // Elements of 1 or 2 bytes as they are, or f32 that is rounded to tf32, no interleaving, rows of 128 bytes swizzled, zeros outside.
    PL_TELL("elemtype", "", "b32", "n", sizeof(T) == 4 ? 11 : int(sizeof(T)) - 1);
    PL_TELL("interleave_layout", "", "b32", "n", 0);
    PL_TELL("swizzle_mode", "", "b32", "n", 3);
    PL_TELL("fill_mode", "", "b32", "n", 0);
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map), "r"(at) : "memory");
  __syncwarp();
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

PL_DEVICE void box_copy(u32 to, const u8* map, int i0, int i1, int i2, u32 gate) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(map), "r"(i0),
      "r"(i1), "r"(i2), "r"(gate)
      : "memory");
}

PL_DEVICE void box_copy(u32 to, const u8* map, int i0, int i1, int i2, int i3, u32 gate) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(map), "r"(i0),
      "r"(i1), "r"(i2), "r"(i3), "r"(gate)
      : "memory");
}

// --------------------------------------------------------------------------------------------------------------------- wgmma

// Where a matrix lies: lines of 128 bytes, swizzled. Terms side by side: 8 lines after each other. Lines side by side: groups of 64 of them `leading` apart.
PL_DEVICE u64 matrix_at(u32 at, int leading) {
  return u64(at >> 4 & 0x3fff) | u64(leading >> 4 & 0x3fff) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}
PL_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PL_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// What is made of a sum begins behind this. A conversion to a narrower float would be drawn in between the products, which then wait for each other; an addition
// is not. All it changes is a sum of nothing but -0, which becomes the 0 that it is when it begins at 0.
PL_DEVICE void settle(float& sum) { asm volatile("add.f32 %0, %0, 0f00000000;" : "+f"(sum)::"memory"); }
PL_DEVICE void settle(int& sum) { asm volatile("" : "+r"(sum)::"memory"); }
template <int PENDING> PL_DEVICE void wgmma_await() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// Adds 64 rows by `columns` of products to the sums of a warpgroup, `count` of each thread; where there are no `more` than these, they take the place of what
// the registers hold. The operands behind the sums have the numbers `first` to `third`.
#define PL_WGMMA(columns, count, first, second, third, signs, types, kind, ...) \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " third ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns types \
               " {" PL_NUMBERS_##count "}, " first ", " second ", p" signs ";\n}" \
               : PL_REGISTERS_##count(kind, d) : "l"(a), "l"(b), "r"(more), ##__VA_ARGS__)
#define PL_WGMMA_TYPES(A, B, S, types, kind, signs, ...) \
  template <int N, bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(A, B, S* d, u64 a, u64 b, int more) { \
    if constexpr (N == 64) PL_WGMMA("64", 32, "%32", "%33", "%34", signs("%35", "%36"), types, kind, ##__VA_ARGS__); \
    if constexpr (N == 96) PL_WGMMA("96", 48, "%48", "%49", "%50", signs("%51", "%52"), types, kind, ##__VA_ARGS__); \
    if constexpr (N == 128) PL_WGMMA("128", 64, "%64", "%65", "%66", signs("%67", "%68"), types, kind, ##__VA_ARGS__); \
    if constexpr (N == 192) PL_WGMMA("192", 96, "%96", "%97", "%98", signs("%99", "%100"), types, kind, ##__VA_ARGS__); \
  }
#define PL_SIGNS_TURNED(x, y) ", 1, 1, " x ", " y
#define PL_SIGNS_FLOAT(x, y) ", 1, 1"
#define PL_SIGNS_NONE(x, y) ""
PL_WGMMA_TYPES(f16, f16, float, "k16.f32.f16.f16", "+f", PL_SIGNS_TURNED, "n"(int(!ALONG_A)), "n"(int(!ALONG_B)))
PL_WGMMA_TYPES(bf16, bf16, float, "k16.f32.bf16.bf16", "+f", PL_SIGNS_TURNED, "n"(int(!ALONG_A)), "n"(int(!ALONG_B)))
PL_WGMMA_TYPES(float, float, float, "k8.f32.tf32.tf32", "+f", PL_SIGNS_FLOAT)
PL_WGMMA_TYPES(i8, i8, int, "k32.s32.s8.s8", "+r", PL_SIGNS_NONE)
PL_WGMMA_TYPES(i8, u8, int, "k32.s32.s8.u8", "+r", PL_SIGNS_NONE)
PL_WGMMA_TYPES(u8, i8, int, "k32.s32.u8.s8", "+r", PL_SIGNS_NONE)
PL_WGMMA_TYPES(u8, u8, int, "k32.s32.u8.u8", "+r", PL_SIGNS_NONE)
PL_WGMMA_TYPES(f8e4m3, f8e4m3, float, "k32.f32.e4m3.e4m3", "+f", PL_SIGNS_FLOAT)
PL_WGMMA_TYPES(f8e4m3, f8e5m2, float, "k32.f32.e4m3.e5m2", "+f", PL_SIGNS_FLOAT)
PL_WGMMA_TYPES(f8e5m2, f8e4m3, float, "k32.f32.e5m2.e4m3", "+f", PL_SIGNS_FLOAT)
PL_WGMMA_TYPES(f8e5m2, f8e5m2, float, "k32.f32.e5m2.e5m2", "+f", PL_SIGNS_FLOAT)
// Adds what fewer bits have been added up in; like `settle`.
PL_DEVICE void promote(float& sum, float part) { asm volatile("add.f32 %0, %0, %1;" : "+f"(sum) : "f"(part) : "memory"); }
PL_DEVICE void promote(int& sum, int part) { sum += part; }
#endif

// The ring and the roles. Each of TEAMS warpgroups computes a tile of 64 M x N by itself, one after the other by turns: while one multiplies, another makes
// something of its sums. The warpgroup behind them feeds. Terms come 128 bytes at a time; bytes lie with their terms side by side.
// With SHORT, sums of the instruction have few bits: each team takes so many of them (of four for each 128 bytes) for themselves, and then adds them up in f32,
// for which it needs as many registers again. So its tile is half as large, the teams take neighbouring rows of the same columns, and all multiply at once: what
// one adds up runs beside what another multiplies.
template <typename A, typename B, typename S, int TEAMS, int M, int N, int STAGES, bool ALONG_A, bool ALONG_B, int SHORT = 0, typename LEFT = Panel<A>>
struct Stream {
  static_assert(N == 64 || N == 96 || N == 128 || N == 192, "the instruction is written out for so many columns");
  static_assert(ALONG_B || N % 64 == 0, "columns come 64 at a time where they lie side by side");
  static_assert(SHORT == 0 || (ALONG_A && ALONG_B && M == 1 && 4 % SHORT == 0), "bytes, of which a team has as many registers twice");
  static constexpr int SHARING = SHORT ? TEAMS : 1, ROWS = 64 * M * SHARING, DEPTH = 128 / int(sizeof(A));
  static constexpr int A_BYTES = ROWS * 128, B_BYTES = N * 128, STAGE = A_BYTES + B_BYTES;
  // Up to 1023 bytes before the ring, two drafts of descriptions and the gates behind it.
  static constexpr int SHARED = 1024 + STAGES * STAGE + 256 + 16 * STAGES + 8 * TEAMS;
  LEFT left;
  Panel<B> right;
  int steps;
  u8* maps;
  u8* draft;
  u32 ring, gates, phase, position, turn;
  int slot;
  // Lines of the left factor that are brought: what lies behind the last one need not become zeros.
  int lines;
  // The number of a warp, which the compiler is shown to be one for all its lanes: descriptions and addresses are then made once for a warp.
  int warp;

  // `shared` is SHARED bytes, `memory` 256 bytes of device memory for each block and 128 more. All tiles have the same number of `terms`, at least
  // one.
  PL_MEMBER Stream(u8* shared, u8* memory, const LEFT& a, const Panel<B>& b, int terms)
      : left(a), right(b), steps((terms + DEPTH - 1) / DEPTH), phase(0), position(0), turn(0), slot(0), lines(ROWS), warp(thread() / 32) {
    if constexpr (LEFT::BOXED) {
      lines = LEFT::LINES;
    } else if (ALONG_A && a.n1 < ROWS) {
      lines = int(a.n1);
    }
#if PL_SM90A
    warp = __shfl_sync(0xffffffffu, warp, 0);
    const u32 at = shared_address(shared), begin = (at + 1023) / 1024 * 1024;
    ring = begin;
    draft = shared + (begin - at) + STAGES * STAGE;
    gates = begin + STAGES * STAGE + 256;
    maps = memory + (128 - reinterpret_cast<u64>(memory) % 128) % 128 + i64(blockIdx.x) * 256;
    if (thread() == 0) {
      for (int s = 0; s < STAGES; s++) {
        gate_init(full(s), 1);
        gate_init(empty(s), SHARING);
      }
      for (int t = 0; t < TEAMS; t++) gate_init(turn_of(t), 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
#endif
  }
  PL_MEMBER u32 full(int s) const { return gates + 8 * s; }
  PL_MEMBER u32 empty(int s) const { return gates + 8 * (STAGES + s); }
  // Opens when it is the turn of a team to multiply: what arrives from then on is for it.
  PL_MEMBER u32 turn_of(int t) const { return gates + 8 * (2 * STAGES + t); }
  PL_MEMBER void advance() {
    position++;
    if (++slot == STAGES) {
      slot = 0;
      phase ^= 1;
    }
  }
  // Leaves out a tile of another team.
  PL_MEMBER void skip() {
    position += steps;
    slot = int(position % STAGES);
    phase = position / STAGES & 1;
  }

  // Whether a thread belongs to those that feed; if not, its team and its place in it.
  PL_MEMBER bool feeds() const { return warp >= TEAMS * 4; }
  PL_MEMBER int team() const { return warp / 4; }
  static PL_MEMBER int member() { return thread() % 128; }

  PL_MEMBER void begin_feeding() {
#if PL_SM90A
    if (TEAMS > 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (thread() / 32 == TEAMS * 4) {
      describe(draft, maps, left, DEPTH, ALONG_A ? lines : DEPTH);
      describe(draft + 128, maps + 128, right, DEPTH, ALONG_B ? N : DEPTH);
    }
#endif
  }
  PL_MEMBER void begin_multiplying() {
#if PL_SM90A
    if (TEAMS > 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
#endif
    for (int i = 0; !SHORT && i < team(); i++) skip();
  }

  // Brings a tile from line `row` of the left factor and line `column` of the right one.
  PL_MEMBER void feed(int row, int row_batch, int column, int column_batch) {
#if PL_SM90A
    if (warp != TEAMS * 4) return;
    for (int step = 0; step < steps; step++) {
      const u32 a = ring + slot * STAGE, b = a + A_BYTES, gate = full(slot);
      const int k = step * DEPTH;
      gate_wait(empty(slot), phase ^ 1);
      if (elected()) {
        gate_expect(gate, lines * 128 + B_BYTES);
        if constexpr (LEFT::BOXED) {
          const auto first = LEFT::term(left.pixel(row / ROWS, 0), k);
          box_copy(a, maps, k % LEFT::CHANNELS, first.x, first.y, first.picture, gate);
        } else if (ALONG_A) {
          box_copy(a, maps, k, row, row_batch, gate);
        } else {
          PL_UNROLL
          for (int i = 0; i < M; i++) box_copy(a + i * 8192, maps, row + 64 * i, k, row_batch, gate);
        }
        if (ALONG_B) {
          box_copy(b, maps + 128, k, column, column_batch, gate);
        } else {
          PL_UNROLL
          for (int i = 0; i < N / 64; i++) box_copy(b + i * 8192, maps + 128, column + 64 * i, k, column_batch, gate);
        }
      }
      __syncwarp();
      advance();
    }
#endif
  }

#if PL_SM90A
  PL_MEMBER void multiply_short(S* sums) {
    PL_UNROLL
    for (int i = 0; i < N / 2; i++) sums[i] = S(0);
    for (int step = 0; step < steps; step++) {
      const u32 a = ring + slot * STAGE + team() * 8192, b = ring + slot * STAGE + A_BYTES;
      gate_wait(full(slot), phase);
      PL_UNROLL
      for (int first = 0; first < 4; first += SHORT) {
        S part[N / 2];
        wgmma_fence();
        PL_UNROLL
        for (int n = 0; n < SHORT; n++) {
          wgmma<N, ALONG_A, ALONG_B>(A(), B(), part, matrix_at(a + (first + n) * 32, 16), matrix_at(b + (first + n) * 32, 16), n > 0);
        }
        wgmma_commit();
        wgmma_await<0>();
        if (first + SHORT == 4 && member() == 0) gate_arrive(empty(slot));
        PL_UNROLL
        for (int i = 0; i < N / 2; i++) promote(sums[i], part[i]);
      }
      advance();
    }
  }
#endif
  template <typename T> static PL_MEMBER S factor(T x) { return S(x); }
  // As the copy engine rounds f32 to tf32: halves go to the even one.
  static PL_MEMBER float factor(float x) {
    const u32 all = bits(x);
    return (all & 0x7f800000u) == 0x7f800000u ? x : from_bits((all + 0xfffu + (all >> 13 & 1u)) & 0xffffe000u);
  }
  // Makes the sums of a tile: those of a thread are, for each 64 rows and each 8 columns, rows `member() / 32 * 16 + lane / 4` and 8 below, two columns each.
  PL_MEMBER void multiply(S* sums, int row, int row_batch, int column, int column_batch) {
#if PL_SM90A
    if constexpr (SHORT > 0) return multiply_short(sums);
    gate_wait(turn_of(team()), team() == 0 ? turn ^ 1 : turn);
    turn ^= 1;
    int before = -1;
    for (int step = 0; step < steps; step++) {
      const u32 a = ring + slot * STAGE, b = a + A_BYTES;
      gate_wait(full(slot), phase);
      wgmma_fence();
      PL_UNROLL
      for (int n = 0; n < 4; n++) {
        PL_UNROLL
        for (int i = 0; i < M; i++) {
          wgmma<N, ALONG_A, ALONG_B>(A(), B(), sums + i * (N / 2), matrix_at(a + i * 8192 + n * (ALONG_A ? 32 : 2048), ALONG_A ? 16 : 8192),
                                     matrix_at(b + n * (ALONG_B ? 32 : 2048), ALONG_B ? 16 : 8192), n > 0 || step > 0);
        }
      }
      wgmma_commit();
      if (before >= 0) {
        wgmma_await<1>();
        if (member() == 0) gate_arrive(empty(before));
      }
      before = slot;
      advance();
    }
    if (member() == 0) gate_arrive(turn_of((team() + 1) % TEAMS));
    wgmma_await<0>();
    PL_UNROLL
    for (int i = 0; i < M * N / 2; i++) settle(sums[i]);
    if (before >= 0 && member() == 0) gate_arrive(empty(before));
    for (int i = 1; i < TEAMS; i++) skip();
#else
    for (int i = 0; i < M * N / 2; i++) sums[i] = S(0);
    const int lane = thread() % 32;
    for (int s = 0; s < M * N / 2; s++) {
      const int n = s % (N / 2), line = s / (N / 2) * 64 + member() / 32 * 16 + lane / 4 + n % 4 / 2 * 8, j = column + n / 4 * 8 + lane % 4 * 2 + n % 2;
      if (j >= (ALONG_B ? right.n1 : right.n0)) continue;
      const auto of_right = [&](int k) { return factor(right.at[(ALONG_B ? k + j * right.step1 : j + k * right.step1) + column_batch * right.step2]); };
      if constexpr (LEFT::BOXED) {
        const auto pixel = left.pixel(row / ROWS, line);
        if (line >= LEFT::LINES || pixel.picture >= left.n2) continue;
        for (int k = 0; k < (ALONG_B ? right.n0 : right.n1); k++) {
          const auto at = LEFT::term(pixel, k);
          if (at.x < 0 || at.x >= left.n0 || at.y < 0 || at.y >= left.n1) continue;
          sums[s] = sums[s] + factor(left.at[k % LEFT::CHANNELS + at.x * i64(LEFT::CHANNELS) + at.y * left.step1 + at.picture * left.step2]) * of_right(k);
        }
      } else {
        const int i = row + line, terms = int(ALONG_A ? left.n0 : left.n1);
        if (i >= (ALONG_A ? left.n1 : left.n0)) continue;
        for (int k = 0; k < terms; k++) {
          sums[s] = sums[s] + factor(left.at[(ALONG_A ? k + i * left.step1 : i + k * left.step1) + row_batch * left.step2]) * of_right(k);
        }
      }
    }
#endif
  }
};

}  // namespace pipelink

#endif
