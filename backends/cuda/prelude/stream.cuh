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
  const T* at;
  i64 n0, n1, n2, step1, step2;
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
template <typename To, typename From> PL_DEVICE void trade(To* to, const From* from) {
  const int lane = thread() % 32;
  const bool odd = lane % 2 != 0, high = lane / 2 % 2 != 0;
  u32 words[4];
  PL_UNROLL
  for (int k = 0; k < 4; k++) {
    To two[2];
    put_two(two, from[2 * k], from[2 * k + 1]);
    words[k] = Pair<To>::word(two);
  }
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
  PL_UNROLL
  for (int k = 0; k < 4; k++) Pair<To>::put(to + 2 * k, words[k]);
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

// Describes boxes of `box0` x `box1` elements of a panel to the copy engine. All lanes of a warp call it; `draft` is 128 bytes of shared memory, `map` of device
// memory, both at multiples of 128.
template <typename T> PL_DEVICE void describe(u8* draft, u8* map, const Panel<T>& p, int box0, int box1) {
  const u32 at = shared_address(draft);
  if (thread() % 32 == 0) {
    PL_UNROLL
    for (int i = 0; i < 32; i++) reinterpret_cast<u32*>(draft)[i] = 0;
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at), "l"(p.at) : "memory");
    asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 2;" ::"r"(at) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(at), "r"(box0) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(at), "r"(box1) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 2, %1;" ::"r"(at), "r"(1) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(at), "r"(u32(p.n0)) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(at), "r"(u32(p.n1)) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 2, %1;" ::"r"(at), "r"(u32(p.n2)) : "memory");
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(at), "l"(p.step1 * i64(sizeof(T))) : "memory");
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 1, %1;" ::"r"(at), "l"(p.step2 * i64(sizeof(T))) : "memory");
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(at), "r"(1) : "memory");
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(at), "r"(1) : "memory");
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 2, %1;" ::"r"(at), "r"(1) : "memory");
    // Elements of 1 or 2 bytes as they are, or f32 that is rounded to tf32, no interleaving, rows of 128 bytes swizzled, zeros outside.
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], %1;" ::"r"(at), "n"(sizeof(T) == 4 ? 11 : int(sizeof(T)) - 1) : "memory");
    asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(at) : "memory");
    asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(at) : "memory");
    asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(at) : "memory");
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
// Adds 64 rows by 192 columns of products to the sums of a warpgroup, 96 of each thread; where there are no `more` than these, they take the place of what the
// registers hold.
#define PL_WGMMA_192(type) \
  asm volatile( \
      "{\n .reg .pred p;\n setp.ne.b32 p, %100, 0;\nwgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
      "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, " \
      "%71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
      "%94, %95" \
      "}, %96, %97, p, 1, 1, %98, %99;\n}" \
      : \
      "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),  \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),  \
      "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]),  \
      "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
      "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]),  \
      "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),  \
      "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),  \
      "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),  \
      "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),  \
      "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]),  \
      "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]) \
      : "l"(a), "l"(b), "n"(int(!ALONG_A)), "n"(int(!ALONG_B)), "r"(more))

#define PL_WGMMA_192_BYTES(left, right) \
  asm volatile( \
      "{\n .reg .pred p;\n setp.ne.b32 p, %98, 0;\nwgmma.mma_async.sync.aligned.m64n192k32.s32." left "." right " {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
      "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, " \
      "%71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
      "%94, %95" \
      "}, %96, %97, p;\n}" \
      : \
      "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),  \
      "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]),  \
      "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]),  \
      "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]),  \
      "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]),  \
      "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]), "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]),  \
      "+r"(d[54]), "+r"(d[55]), "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]),  \
      "+r"(d[63]), "+r"(d[64]), "+r"(d[65]), "+r"(d[66]), "+r"(d[67]), "+r"(d[68]), "+r"(d[69]), "+r"(d[70]), "+r"(d[71]),  \
      "+r"(d[72]), "+r"(d[73]), "+r"(d[74]), "+r"(d[75]), "+r"(d[76]), "+r"(d[77]), "+r"(d[78]), "+r"(d[79]), "+r"(d[80]),  \
      "+r"(d[81]), "+r"(d[82]), "+r"(d[83]), "+r"(d[84]), "+r"(d[85]), "+r"(d[86]), "+r"(d[87]), "+r"(d[88]), "+r"(d[89]),  \
      "+r"(d[90]), "+r"(d[91]), "+r"(d[92]), "+r"(d[93]), "+r"(d[94]), "+r"(d[95]) \
      : "l"(a), "l"(b), "r"(more))
#define PL_WGMMA_192_TF32 \
  asm volatile( \
      "{\n .reg .pred p;\n setp.ne.b32 p, %98, 0;\nwgmma.mma_async.sync.aligned.m64n192k8.f32.tf32.tf32 {" \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
      "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, " \
      "%71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
      "%94, %95" \
      "}, %96, %97, p, 1, 1;\n}" \
      : \
      "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),  \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),  \
      "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]),  \
      "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),  \
      "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]),  \
      "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),  \
      "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),  \
      "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),  \
      "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),  \
      "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]),  \
      "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]) \
      : "l"(a), "l"(b), "r"(more))


template <bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(f16, f16, float* d, u64 a, u64 b, int more) { PL_WGMMA_192("f16"); }
template <bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(bf16, bf16, float* d, u64 a, u64 b, int more) { PL_WGMMA_192("bf16"); }
template <bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(i8, i8, int* d, u64 a, u64 b, int more) { PL_WGMMA_192_BYTES("s8", "s8"); }
template <bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(i8, u8, int* d, u64 a, u64 b, int more) { PL_WGMMA_192_BYTES("s8", "u8"); }
template <bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(u8, i8, int* d, u64 a, u64 b, int more) { PL_WGMMA_192_BYTES("u8", "s8"); }
template <bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(u8, u8, int* d, u64 a, u64 b, int more) { PL_WGMMA_192_BYTES("u8", "u8"); }
template <bool ALONG_A, bool ALONG_B> PL_DEVICE void wgmma(float, float, float* d, u64 a, u64 b, int more) { PL_WGMMA_192_TF32; }
#endif

// The ring and the roles. Each of TEAMS warpgroups computes a tile of 64 M x N by itself, one after the other by turns: while one multiplies, another makes
// something of its sums. The warpgroup behind them feeds. Terms come 128 bytes at a time; bytes lie with their terms side by side.
template <typename A, typename B, typename S, int TEAMS, int M, int N, int STAGES, bool ALONG_A, bool ALONG_B> struct Stream {
  static_assert(N == 192, "the instruction is written out for so many columns");
  static constexpr int ROWS = 64 * M, DEPTH = 128 / int(sizeof(A)), A_BYTES = ROWS * 128, B_BYTES = N * 128, STAGE = A_BYTES + B_BYTES;
  // Up to 1023 bytes before the ring, two drafts of descriptions and the gates behind it.
  static constexpr int SHARED = 1024 + STAGES * STAGE + 256 + 16 * STAGES + 8 * TEAMS;
  Panel<A> left;
  Panel<B> right;
  int steps;
  u8* maps;
  u8* draft;
  u32 ring, gates, phase, position, turn;
  int slot;
  // The number of a warp, which the compiler is shown to be one for all its lanes: descriptions and addresses are then made once for a warp.
  int warp;

  // `shared` is SHARED bytes, `memory` 256 bytes of device memory for each block and 128 more. All tiles have the same number of `terms`, at least
  // one.
  PL_MEMBER Stream(u8* shared, u8* memory, const Panel<A>& a, const Panel<B>& b, int terms)
      : left(a), right(b), steps((terms + DEPTH - 1) / DEPTH), phase(0), position(0), turn(0), slot(0), warp(thread() / 32) {
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
        gate_init(empty(s), 1);
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
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (thread() / 32 == TEAMS * 4) {
      describe(draft, maps, left, DEPTH, ALONG_A ? ROWS : DEPTH);
      describe(draft + 128, maps + 128, right, DEPTH, ALONG_B ? N : DEPTH);
    }
#endif
  }
  PL_MEMBER void begin_multiplying() {
#if PL_SM90A
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
#endif
    for (int i = 0; i < team(); i++) skip();
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
        gate_expect(gate, STAGE);
        if (ALONG_A) {
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

  template <typename T> static PL_MEMBER S factor(T x) { return S(x); }
  // As the copy engine rounds f32 to tf32: halves go to the even one.
  static PL_MEMBER float factor(float x) {
    const u32 all = bits(x);
    return (all & 0x7f800000u) == 0x7f800000u ? x : from_bits((all + 0xfffu + (all >> 13 & 1u)) & 0xffffe000u);
  }
  // Makes the sums of a tile: those of a thread are, for each 64 rows and each 8 columns, rows `member() / 32 * 16 + lane / 4` and 8 below, two columns each.
  PL_MEMBER void multiply(S* sums, int row, int row_batch, int column, int column_batch) {
#if PL_SM90A
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
          wgmma<ALONG_A, ALONG_B>(A(), B(), sums + i * (N / 2), matrix_at(a + i * 8192 + n * (ALONG_A ? 32 : 2048), ALONG_A ? 16 : 8192),
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
    const int lane = thread() % 32, terms = int(ALONG_A ? left.n0 : left.n1);
    for (int s = 0; s < M * N / 2; s++) {
      const int n = s % (N / 2), i = row + s / (N / 2) * 64 + member() / 32 * 16 + lane / 4 + n % 4 / 2 * 8, j = column + n / 4 * 8 + lane % 4 * 2 + n % 2;
      if (i >= (ALONG_A ? left.n1 : left.n0) || j >= (ALONG_B ? right.n1 : right.n0)) continue;
      for (int k = 0; k < terms; k++) {
        const i64 p = ALONG_A ? k + i * left.step1 : i + k * left.step1, q = ALONG_B ? k + j * right.step1 : j + k * right.step1;
        sums[s] = sums[s] + factor(left.at[p + row_batch * left.step2]) * factor(right.at[q + column_batch * right.step2]);
      }
    }
#endif
  }
};

}  // namespace pipelink

#endif
