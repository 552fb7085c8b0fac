#ifdef PIPELINK_ATTEND

// Attention on sm_90a: a warpgroup lets the copy engine bring queries, and tiles of keys and values to rings in shared memory; the others have 64 queries each,
// multiply (wgmma) and make weights of scores in registers. While one of them makes weights, another multiplies, and each makes the weights of a tile while
// the values of the one before are under way. What is rare is not looked for meanwhile: rows of which the result may be wrong are computed again in the end. A
// processor plays the same by plain loops.
namespace pipelink {

// A factor as it lies in memory, fastest axis first; `row` is the axis along which queries or keys lie.
template <typename T> struct Lines {
  const T* at;
  i64 size[5], step[5];
  int row;
};

// One tile of queries: the first place in each factor, and the keys that it sees. Query `i` of it sees those from `low + i` and below `high + i` alone, and of
// these those whose bits are set, if there are bits (16 bytes for each tile of keys; `begin` is the first key of a tile then).
struct Seen {
  i64 q[5], k[5], v[5], begin, end, low, high;
  const u8* bits;
};
struct alignas(16) TileBits {
  u32 word[4];
};

#if PL_SM90A
// Describes boxes of 64 elements by `lines` to the copy engine; otherwise as `describe`. Who copies waits until it is done, and acquires the map.
template <typename T> PL_DEVICE void describe_lines(u8* draft, u8* map, const Lines<T>& p, int lines) {
  const u32 at = shared_address(draft);
  if (thread() % 32 == 0) {
    PL_UNROLL
    for (int i = 0; i < 32; i++) reinterpret_cast<u32*>(draft)[i] = 0;
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at), "l"(p.at) : "memory");
    asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 4;" ::"r"(at) : "memory");
#define PL_AXIS(i) \
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], " #i ", %1;" ::"r"(at), "r"(i == 0 ? 64 : i == p.row ? lines : 1) : "memory"); \
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], " #i ", %1;" ::"r"(at), "r"(u32(p.size[i])) : "memory"); \
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], " #i ", %1;" ::"r"(at), "r"(1) : "memory")
#define PL_STEP(i, n) \
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], " #n ", %1;" ::"r"(at), "l"(p.step[i] * i64(sizeof(T))) : "memory")
    PL_AXIS(0);
    PL_AXIS(1);
    PL_AXIS(2);
    PL_AXIS(3);
    PL_AXIS(4);
    PL_STEP(1, 0);
    PL_STEP(2, 1);
    PL_STEP(3, 2);
    PL_STEP(4, 3);
#undef PL_AXIS
#undef PL_STEP
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(at) : "memory");
    asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(at) : "memory");
    asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(at) : "memory");
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map), "r"(at) : "memory");
}
// Copies `lines` lines from `line` on, WIDE elements of each: 64 by 64, `lines * 128` bytes apart.
template <int WIDE> PL_DEVICE void lines_copy(u32 to, int lines, const u8* map, const i64 (&at)[5], int row, int line, u32 gate) {
  PL_UNROLL
  for (int part = 0; part < WIDE / 64; part++) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(
            to + part * lines * 128),
        "l"(map), "r"(int(at[0]) + 64 * part), "r"(int(at[1]) + (row == 1 ? line : 0)), "r"(int(at[2]) + (row == 2 ? line : 0)),
        "r"(int(at[3]) + (row == 3 ? line : 0)), "r"(int(at[4]) + (row == 4 ? line : 0)), "r"(gate)
        : "memory");
  }
}
PL_DEVICE void part_sync(int part, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(part), "r"(threads) : "memory"); }
PL_DEVICE void part_arrive(int part, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(part), "r"(threads) : "memory"); }

// A product of 64 rows by N columns and 16 terms: terms of both factors lie side by side in shared memory. `MORE`: it is added to the sums.
template <int N> struct Columns {};
#define PL_NUMBERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PL_SCORES(T, type) \
  template <bool MORE, bool ALONG_B> PL_DEVICE void product(Columns<128>, T, float* d, u64 a, u64 b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" PL_NUMBERS_64 "}, %64, %65, %66, 1, 1, 0, %67;" \
                 : PL_REGISTERS_64("+f", d) : "l"(a), "l"(b), "n"(int(MORE)), "n"(int(!ALONG_B))); \
  }
#define PL_WEIGHTED(T, type, columns, sums, operands) \
  template <bool MORE, bool ALONG_B> PL_DEVICE void product(Columns<columns>, T, float* d, const u32* a, u64 b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" PL_NUMBERS_##sums "}, " operands \
                 : PL_REGISTERS_##sums("+f", d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(MORE)), "n"(int(!ALONG_B))); \
  }
#define PL_PRODUCTS(T, type) \
  PL_SCORES(T, type) \
  PL_WEIGHTED(T, type, 32, 16, "{%16, %17, %18, %19}, %20, %21, 1, 1, %22;") \
  PL_WEIGHTED(T, type, 64, 32, "{%32, %33, %34, %35}, %36, %37, 1, 1, %38;") \
  PL_WEIGHTED(T, type, 96, 48, "{%48, %49, %50, %51}, %52, %53, 1, 1, %54;") \
  PL_WEIGHTED(T, type, 128, 64, "{%64, %65, %66, %67}, %68, %69, 1, 1, %70;")
PL_PRODUCTS(f16, "f16")
PL_PRODUCTS(bf16, "bf16")
#endif

// Scores have TERMS terms, a multiple of 16; values have WIDE columns, a multiple of 32. Both lie in lines of 64.
template <typename F, typename V, int TEAMS, int KEYS, int TERMS, int WIDE, int STAGES, bool CHOSEN = false> struct Attend {
  static_assert(TEAMS <= 3 && KEYS == 128, "what the instructions are written out for");
  static constexpr int ROWS = 64 * TEAMS, THREADS = 128 * TEAMS, K_LINE = (TERMS + 63) / 64 * 64, V_LINE = (WIDE + 63) / 64 * 64;
  static constexpr int Q_BYTES = ROWS * K_LINE * 2, K_BYTES = KEYS * K_LINE * 2, V_BYTES = KEYS * V_LINE * 2;
  // Up to 1023 bytes before the queries of two tiles; behind the rings three drafts of descriptions, the gates, and 8 bytes that nobody reads.
  static constexpr int SHARED = 1024 + 2 * Q_BYTES + STAGES * (K_BYTES + V_BYTES) + 384 + 8 * (4 * STAGES + 4) + 8;
  Lines<F> q, k;
  Lines<V> v;
  float scale, factor;
  u8 *shared, *maps, *draft;
  u32 queries, keys, values, gates, k_phase, v_phase, q_phase;
  int k_slot, v_slot, q_slot;
  bool back;

  // `memory` is 384 bytes of device memory for each block and 128 more.
  PL_MEMBER Attend(u8* shared, u8* memory, const Lines<F>& q, const Lines<F>& k, const Lines<V>& v, float scale)
      : q(q), k(k), v(v), scale(scale), factor(scale * 1.4426950408889634f), shared(shared), k_phase(0), v_phase(0), q_phase(0), k_slot(0), v_slot(0), q_slot(0), back(false) {
#if PL_SM90A
    const u32 at = shared_address(shared);
    queries = (at + 1023) / 1024 * 1024;
    keys = queries + 2 * Q_BYTES;
    values = keys + STAGES * K_BYTES;
    gates = values + STAGES * V_BYTES + 384;
    draft = shared + (gates - 384 - at);
    maps = memory + (128 - reinterpret_cast<u64>(memory) % 128) % 128 + i64(blockIdx.x) * 384;
    if (thread() == 0) {
      for (int s = 0; s < STAGES; s++) {
        gate_init(k_full(s), 1);
        gate_init(k_empty(s), TEAMS);
        gate_init(v_full(s), 1);
        gate_init(v_empty(s), TEAMS);
      }
      for (int s = 0; s < 2; s++) {
        gate_init(q_full(s), 1);
        gate_init(q_empty(s), TEAMS);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
#endif
  }
  PL_MEMBER u32 k_full(int s) const { return gates + 8 * s; }
  PL_MEMBER u32 k_empty(int s) const { return gates + 8 * (STAGES + s); }
  PL_MEMBER u32 v_full(int s) const { return gates + 8 * (2 * STAGES + s); }
  PL_MEMBER u32 v_empty(int s) const { return gates + 8 * (3 * STAGES + s); }
  PL_MEMBER u32 q_full(int s) const { return gates + 8 * (4 * STAGES + s); }
  PL_MEMBER u32 q_empty(int s) const { return gates + 8 * (4 * STAGES + 2 + s); }
  static PL_MEMBER void advance(int& slot, u32& phase, int slots = STAGES) {
    if (++slot == slots) {
      slot = 0;
      phase ^= 1;
    }
  }
  static PL_MEMBER int steps(const Seen& at) { return at.end > at.begin ? int((at.end - at.begin + KEYS - 1) / KEYS) : 0; }

  // From one turn of this block to its next: blocks take theirs in order, then in reverse order.
  template <typename I> PL_MEMBER void wind(I& turn) {
    turn += 2 * I(back ? blockIdx.x : gridDim.x - 1 - blockIdx.x) + 1;
    back = !back;
  }
  static PL_MEMBER bool feeds() { return thread() >= THREADS; }
  static PL_MEMBER int member() { return thread(); }

  PL_MEMBER void begin_feeding() {
#if PL_SM90A
    if (TEAMS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    // Each map is described by a warp of its own; all that takes long.
    const int warp = (thread() - THREADS) / 32;
    if (warp == 0) describe_lines(draft, maps, q, ROWS);
    if (warp == 1) describe_lines(draft + 128, maps + 128, k, KEYS);
    if (warp == 2) describe_lines(draft + 256, maps + 256, v, KEYS);
    part_sync(TEAMS + 1, 128);
    if (warp == 0) {
      for (int i = 0; i < 3; i++) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(maps + 128 * i) : "memory");
    }
#endif
  }
  PL_MEMBER void begin_multiplying() {
#if PL_SM90A
    if (TEAMS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    else asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    if (team() == TEAMS - 1) part_arrive(1, 256);
#endif
  }
  PL_MEMBER void end_multiplying() {
#if PL_SM90A
    if (team() == 0) part_sync(1, 256);
#endif
  }
  static PL_MEMBER int team() { return thread() / 128; }

  // ------------------------------------------------------------------------------------------------------------------------ copies

#if PL_SM90A
  PL_MEMBER void feed_keys(const Seen& at, int step) {
    gate_wait(k_empty(k_slot), k_phase ^ 1);
    gate_expect(k_full(k_slot), K_BYTES);
    lines_copy<K_LINE>(keys + k_slot * K_BYTES, KEYS, maps + 128, at.k, k.row, int(at.begin) + step * KEYS, k_full(k_slot));
    advance(k_slot, k_phase);
  }
  PL_MEMBER void feed_values(const Seen& at, int step) {
    gate_wait(v_empty(v_slot), v_phase ^ 1);
    gate_expect(v_full(v_slot), V_BYTES);
    lines_copy<V_LINE>(values + v_slot * V_BYTES, KEYS, maps + 256, at.v, v.row, int(at.begin) + step * KEYS, v_full(v_slot));
    advance(v_slot, v_phase);
  }
#endif
  // Brings what a tile of queries needs, the last keys first.
  PL_MEMBER void feed(const Seen& at) {
#if PL_SM90A
    const int count = steps(at);
    if (thread() != THREADS || count == 0) return;
    gate_wait(q_empty(q_slot), q_phase ^ 1);
    gate_expect(q_full(q_slot), Q_BYTES);
    lines_copy<K_LINE>(queries + q_slot * Q_BYTES, ROWS, maps, at.q, q.row, 0, q_full(q_slot));
    advance(q_slot, q_phase, 2);
    feed_keys(at, count - 1);
    for (int step = count - 2; step >= 0; step--) {
      feed_keys(at, step);
      feed_values(at, step + 1);
    }
    feed_values(at, 0);
#endif
  }

  // ---------------------------------------------------------------------------------------------------------------------- products

#if PL_SM90A
  PL_MEMBER void scores(float* s) {
    const u32 a = queries + q_slot * Q_BYTES + team() * 8192, b = keys + k_slot * K_BYTES;
    PL_UNROLL
    for (int n = 0; n < TERMS / 16; n++) {
      const u64 left = matrix_at(a + n / 4 * (ROWS * 128) + n % 4 * 32, 16), right = matrix_at(b + n / 4 * (KEYS * 128) + n % 4 * 32, 16);
      if (n == 0) product<false, true>(Columns<KEYS>(), F(), s, left, right);
      else product<true, true>(Columns<KEYS>(), F(), s, left, right);
    }
    wgmma_commit();
  }
  PL_MEMBER void weigh(float* sums, const u32* p) {
    PL_UNROLL
    for (int n = 0; n < KEYS / 16; n++) {
      product<true, false>(Columns<WIDE>(), V(), sums, p + 4 * n, matrix_at(values + v_slot * V_BYTES + n * 2048, KEYS * 128));
    }
    wgmma_commit();
  }
  static PL_MEMBER void round(u32* p, const float* s) {
    PL_UNROLL
    for (int n = 0; n < KEYS / 4; n++) p[n] = rounded_pair(V(), s[2 * n], s[2 * n + 1]);
  }
  static PL_MEMBER void hold(float* s) {
    PL_UNROLL
    for (int n = 0; n < KEYS / 2; n++) asm volatile("" : "+f"(s[n])::"memory");
  }
#endif

  // ----------------------------------------------------------------------------------------------------------------------- softmax

  static PL_MEMBER bool visible(const Seen& at, i64 row, i64 key) {
    return key < at.end && key >= at.low + row && key < at.high + row && (!CHOSEN || (at.bits[key / 8] >> key % 8 & 1) != 0);
  }
  // Whether a query sees a key at all.
  static PL_MEMBER bool sees(const Seen& at, i64 row) {
    const i64 first = max(at.begin, at.low + row), last = min(at.end, at.high + row);
    for (i64 key = first / 8 * 8; key < last; key += 8) {
      u32 byte = at.bits[key / 8];
      if (key < first) byte &= 0xffu << int(first - key);
      if (last - key < 8) byte &= (1u << int(last - key)) - 1;
      if (byte != 0) return true;
    }
    return false;
  }
  // The bits of a tile of keys.
  static PL_MEMBER TileBits bits_of(const Seen& at, int step) {
    return CHOSEN ? *reinterpret_cast<const TileBits*>(at.bits + at.begin / 8 + i64(step) * (KEYS / 8)) : TileBits{{~0u, ~0u, ~0u, ~0u}};
  }
  // Whether some key of a tile is not chosen, which all lanes of a warp are asked.
  static PL_MEMBER bool unchosen(const TileBits& bits) {
    const u32 all = bits.word[0] & bits.word[1] & bits.word[2] & bits.word[3];
#if PL_SM90A
    // The bits are the same for all; the vote shows that to the compiler.
    return CHOSEN && __any_sync(0xffffffffu, all != ~0u);
#else
    return CHOSEN && all != ~0u;
#endif
  }
  static PL_MEMBER void choose(float* s, const TileBits& bits) {
    const int pair = thread() % 4 * 2;
    PL_UNROLL
    for (int j = 0; j < KEYS / 8; j++) {
      const u32 two = bits.word[j / 4] >> (j % 4 * 8 + pair);
      PL_UNROLL
      for (int n = 0; n < 4; n++) {
        if ((two >> n % 2 & 1) == 0) s[4 * j + n] = -inf();
      }
    }
  }
  // Whether some query does not see some key of a tile.
  static PL_MEMBER bool partial(const Seen& at, int step) {
    const i64 first = at.begin + i64(step) * KEYS, last = first + KEYS;
    return last > at.end || last > at.high || first < at.low + ROWS - 1;
  }
  // Scores that are not seen become -inf.
  static PL_MEMBER void mask(float* s, const Seen& at, int step) {
    const int lane = thread() % 32;
    const i64 row = thread() / 32 * 16 + lane / 4, first = at.begin + i64(step) * KEYS + lane % 4 * 2;
    PL_UNROLL
    for (int r = 0; r < 2; r++) {
      // Numbers of the keys of a tile, so that they fit.
      const i64 stop = min(at.end, at.high + row + 8 * r) - first, from = at.low + row + 8 * r - first;
      const int last = int(min(max(stop, i64(0)), i64(KEYS))), low = int(min(max(from, i64(0)), i64(KEYS)));
      PL_UNROLL
      for (int j = 0; j < KEYS / 8; j++) {
        PL_UNROLL
        for (int e = 0; e < 2; e++) {
          if (8 * j + e >= last || 8 * j + e < low) s[4 * j + 2 * r + e] = -inf();
        }
      }
    }
  }
  // As `online_row`: scores become weights; `keep` is what everything before is to be multiplied with.
  PL_MEMBER void softmax(float* s, float* top, float* total, float (&keep)[2]) {
    PL_UNROLL
    for (int r = 0; r < 2; r++) {
      float most = top[r];
      PL_UNROLL
      for (int j = 0; j < KEYS / 8; j++) most = PL_MATH(fmaxf)(PL_MATH(fmaxf)(most, s[4 * j + 2 * r]), s[4 * j + 2 * r + 1]);
      most = PL_MATH(fmaxf)(most, float(PL_SHUFFLE(most, thread() % 32 ^ 1)));
      most = PL_MATH(fmaxf)(most, float(PL_SHUFFLE(most, thread() % 32 ^ 2)));
      // Products with the factor are rounded in one way, so that weights fit together whatever the rounding is.
      const float base = most == -inf() ? 0.0f : most * factor;
      keep[r] = weight_exp2(top[r] * factor - base);
      top[r] = most;
      float sum = 0.0f;
      PL_UNROLL
      for (int j = 0; j < KEYS / 8; j++) {
        PL_UNROLL
        for (int e = 0; e < 2; e++) sum += s[4 * j + 2 * r + e] = weight_exp2(fma(s[4 * j + 2 * r + e], factor, -base));
      }
      total[r] = fma(total[r], keep[r], sum);
    }
  }
  static PL_MEMBER void rescale(float* sums, const float (&keep)[2]) {
    PL_UNROLL
    for (int n = 0; n < WIDE / 2; n++) sums[n] *= keep[n / 2 % 2];
  }

  // Whether a warp has to compute its rows again, one key after the other: for scores so large that the rounding of a product with them is more than weights
  // have room for, and for sums that may be no numbers because of values that a query does not see, which a weight of 0 does not keep out.
  PL_MEMBER bool doubtful(const float* sums, const float* top, bool hidden) {
    bool large = false;
    PL_UNROLL
    for (int r = 0; r < 2; r++) large = large || (top[r] != -inf() && !(PL_MATH(fabsf)(top[r] * factor) < 1e7f));
    float nought = 0.0f;
    if (hidden) {
      PL_UNROLL
      for (int n = 0; n < WIDE / 2; n++) nought = fma(sums[n], 0.0f, nought);
    }
    u32 out = large || !(nought == 0.0f);
#if PL_SM90A
    return __any_sync(0xffffffffu, out != 0) != 0;
#else
    PL_UNROLL
    for (int with = 1; with < 32; with *= 2) out |= u32(PL_SHUFFLE(out, thread() % 32 ^ with));
    return out != 0;
#endif
  }
  // Rows of a warp by plain arithmetic.
  PL_MEMBER void again(float* sums, float* top, float* total, const Seen& at) {
    const int lane = thread() % 32;
    const i64 row = thread() / 32 * 16 + lane / 4;
    const F* const mine[2] = {line(q, at.q, row), line(q, at.q, row + 8)};
    PL_UNROLL
    for (int n = 0; n < WIDE / 2; n++) sums[n] = 0.0f;
    PL_UNROLL
    for (int r = 0; r < 2; r++) {
      top[r] = -inf();
      total[r] = 0.0f;
    }
#pragma unroll 1
    for (i64 key = at.begin; key < at.end; key++) {
      const F* const other = line(k, at.k, key);
      const V* const value = line(v, at.v, key);
      float weight[2], keep[2];
      bool sees[2];
      PL_UNROLL
      for (int r = 0; r < 2; r++) {
        float s = 0.0f;
        sees[r] = visible(at, row + 8 * r, key) && at.q[q.row] + row + 8 * r < q.size[q.row];
#pragma unroll 1
        for (int t = 0; t < int(min(q.size[0], k.size[0])); t += 4) {
          const int here = t + lane % 4;
          if (sees[r] && here < int(min(q.size[0], k.size[0]))) s = fma(float(mine[r][here]), float(other[here]), s);
        }
        s += float(PL_SHUFFLE(s, lane ^ 1));
        s += float(PL_SHUFFLE(s, lane ^ 2));
        const float most = sees[r] ? PL_MATH(fmaxf)(top[r], s) : top[r], off = most == -inf() ? 0.0f : most;
        keep[r] = weight_exp2((top[r] - off) * factor);
        weight[r] = weight_exp2((s - off) * factor);
        top[r] = most;
        if (sees[r]) total[r] = fma(total[r], keep[r], lane % 4 == 0 ? weight[r] : 0.0f);
        weight[r] = float(V(weight[r]));
      }
      PL_UNROLL
      for (int n = 0; n < WIDE / 2; n++) {
        const int c = n / 4 * 8 + lane % 4 * 2 + n % 2, r = n / 2 % 2;
        if (sees[r] && c < v.size[0]) sums[n] = fma(weight[r], float(value[c]), sums[n] * keep[r]);
      }
    }
  }
  template <typename T> static PL_MEMBER const T* line(const Lines<T>& p, const i64 (&at)[5], i64 number) {
    i64 place = number * p.step[p.row];
    for (int i = 0; i < 5; i++) place += at[i] * p.step[i];
    return p.at + place;
  }

  // Of a tile of queries each thread has rows `thread() / 32 * 16 + lane / 4` and 8 below, and of each 8 columns two.
  PL_MEMBER void multiply(float* sums, float* top, float* total, const Seen& at) {
    float keep[2];
    PL_UNROLL
    for (int r = 0; r < 2; r++) {
      top[r] = -inf();
      total[r] = 0.0f;
    }
    PL_UNROLL
    for (int n = 0; n < WIDE / 2; n++) sums[n] = 0.0f;
    const int count = steps(at);
    if (count == 0) {
      unseen(top, total, at);
      return;
    }
#if PL_SM90A
    TileBits bits = bits_of(at, count - 1);
    bool hidden = unchosen(bits);
    const bool leads = thread() % 128 == 0;
    float s[KEYS / 2];
    u32 p[KEYS / 4];
    gate_wait(q_full(q_slot), q_phase);
    gate_wait(k_full(k_slot), k_phase);
    wgmma_fence();
    scores(s);
    wgmma_await<0>();
    if (leads) gate_arrive(k_empty(k_slot));
    advance(k_slot, k_phase);
    if (partial(at, count - 1)) mask(s, at, count - 1);
    if (hidden) choose(s, bits);
    softmax(s, top, total, keep);
    round(p, s);
    for (int step = count - 2; step >= 0; step--) {
      bits = bits_of(at, step);
      gate_wait(k_full(k_slot), k_phase);
      part_sync(1 + team(), 256);
      wgmma_fence();
      scores(s);
      gate_wait(v_full(v_slot), v_phase);
      weigh(sums, p);
      part_arrive(1 + (team() + 1) % TEAMS, 256);
      wgmma_await<1>();
      hold(s);
      if (leads) gate_arrive(k_empty(k_slot));
      advance(k_slot, k_phase);
      const bool some = partial(at, step), less = unchosen(bits);
      if (some) mask(s, at, step);
      if (less) choose(s, bits);
      hidden = hidden || less;
      softmax(s, top, total, keep);
      hold(s);
      // Never so. Without something that depends on the weights, the wait for the values is drawn before they are made.
      if (total[0] + total[1] < -1.0f) asm volatile("st.shared.u32 [%0], %1;" ::"r"(gates + 8 * (4 * STAGES + 4)), "r"(0) : "memory");
      wgmma_await<0>();
      if (leads) gate_arrive(v_empty(v_slot));
      advance(v_slot, v_phase);
      round(p, s);
      // Most tiles have no score above all before.
      if (__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) rescale(sums, keep);
    }
    if (leads) gate_arrive(q_empty(q_slot));
    advance(q_slot, q_phase, 2);
    gate_wait(v_full(v_slot), v_phase);
    wgmma_fence();
    weigh(sums, p);
    wgmma_await<0>();
    if (leads) gate_arrive(v_empty(v_slot));
    advance(v_slot, v_phase);
    PL_UNROLL
    for (int n = 0; n < WIDE / 2; n++) settle(sums[n]);
    if (doubtful(sums, top, partial(at, count - 1) || partial(at, 0) || hidden)) again(sums, top, total, at);
#else
    float s[KEYS / 2];
    const int lane = thread() % 32, pair = lane % 4 * 2;
    for (int step = count - 1; step >= 0; step--) {
      const i64 first = at.begin + i64(step) * KEYS, row = thread() / 32 * 16 + lane / 4;
      for (int n = 0; n < KEYS / 2; n++) {
        const i64 i = row + n / 2 % 2 * 8, j = first + n / 4 * 8 + pair + n % 2;
        s[n] = -inf();
        if (j < at.end && at.q[q.row] + i < q.size[q.row] && at.k[k.row] + j < k.size[k.row]) {
          const F *const a = line(q, at.q, i), *const b = line(k, at.k, j);
          s[n] = 0.0f;
          for (int t = 0; t < int(min(q.size[0], k.size[0])); t++) s[n] = fma(float(a[t]), float(b[t]), s[n]);
        }
      }
      if (partial(at, step)) mask(s, at, step);
      if (unchosen(bits_of(at, step))) choose(s, bits_of(at, step));
      softmax(s, top, total, keep);
      rescale(sums, keep);
      for (int j = 0; j < KEYS && first + j < at.end; j++) {
        const i64 key = first + j;
        const V* const b = line(v, at.v, key);
        const bool there = at.v[v.row] + key < v.size[v.row];
        for (int r = 0; r < 2; r++) {
          const float weight = float(V(float(PL_SHUFFLE(s[j / 8 * 4 + 2 * r + j % 2], lane / 4 * 4 + j % 8 / 2))));
          if (!there || !visible(at, row + 8 * r, key)) continue;
          for (int n = 2 * r; n < WIDE / 2; n += n % 2 == 0 ? 1 : 3) {
            const int c = n / 4 * 8 + pair + n % 2;
            if (c < v.size[0]) sums[n] = fma(weight, float(b[c]), sums[n]);
          }
        }
      }
    }
    if (doubtful(sums, top, false)) again(sums, top, total, at);
#endif
    unseen(top, total, at);
  }
  // Tells of rows that see no key: bounds alone do not where keys are chosen.
  static PL_MEMBER void unseen(const float* top, float* total, const Seen& at) {
    const i64 row = thread() / 32 * 16 + thread() % 32 / 4;
    PL_UNROLL
    for (int r = 0; r < 2; r++) {
      if (CHOSEN && top[r] == -inf() && !sees(at, row + 8 * r)) total[r] = -1.0f;
    }
  }
};

}  // namespace pipelink

#endif
