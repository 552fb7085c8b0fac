// Bytes, four to a word: how threads take, pick, multiply and store them. It stands behind threads.cuh.
#ifndef PIPELINK_BYTES_CUH
#define PIPELINK_BYTES_CUH

namespace pipelink {

// Bytes 0 to 3 are those of a, 4 to 7 those of b; each four bits of `at` say which is taken, the lowest first.
PL_DEVICE u32 permuted(u32 a, u32 b, u32 at) {
#if PIPELINK_PTX
  return __byte_perm(a, b, at);
#else
  const u64 both = u64(b) << 32 | a;
  u32 out = 0;
  for (int k = 0; k < 4; k++) out |= u32(both >> (8 * (at >> (4 * k) & 7u)) & 255u) << (8 * k);
  return out;
#endif
}
template <int AT> PL_DEVICE int picked(int a, int b) { return int(permuted(u32(a), u32(b), AT)); }
// One byte of each of four words. Words that give the same byte are put together so that a neighbour, which gives the next one, finds the same halves.
template <int A, int B> PL_DEVICE u32 halves(u32 a, u32 b) {
  return permuted(a, b, A != B ? u32(A | (4 + B) << 4) : A < 2 ? 0x5140u : 0x7362u);
}
template <int AT> PL_DEVICE int four(int a, int b, int c, int d) {
  constexpr int A = AT & 3, B = AT >> 4 & 3, C = AT >> 8 & 3, D = AT >> 12 & 3, LOW = A == B ? A % 2 * 2 : 0, HIGH = C == D ? C % 2 * 2 : 0;
  return int(permuted(halves<A, B>(u32(a), u32(b)), halves<C, D>(u32(c), u32(d)), LOW | (LOW + 1) << 4 | (4 + HIGH) << 8 | (5 + HIGH) << 12));
}

// c and the products of the bytes of a and b, which have signs (s) or none (u).
#if PIPELINK_PTX
#define PL_DOT(name, left, right)                                                             \
  PL_DEVICE int dot_##name(int a, int b, int c) {                                                           \
    int out;                                                                                                \
    asm("dp4a." left "." right " %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c)); \
    return out;                                                                                             \
  }
PL_DOT(ss, "s32", "s32") PL_DOT(us, "u32", "s32") PL_DOT(su, "s32", "u32") PL_DOT(uu, "u32", "u32")
#else
template <typename A, typename B> PL_DEVICE int dot(int a, int b, int c) {
  u32 out = u32(c);
  for (int k = 0; k < 4; k++) out += u32(int(A(u32(a) >> (8 * k))) * int(B(u32(b) >> (8 * k))));
  return int(out);
}
PL_DEVICE int dot_ss(int a, int b, int c) { return dot<i8, i8>(a, b, c); }
PL_DEVICE int dot_us(int a, int b, int c) { return dot<u8, i8>(a, b, c); }
PL_DEVICE int dot_su(int a, int b, int c) { return dot<i8, u8>(a, b, c); }
PL_DEVICE int dot_uu(int a, int b, int c) { return dot<u8, u8>(a, b, c); }
#endif
// One byte of a word. As a float it is the last digits of one that has a byte there: with a sign, by 128 more.
template <int AT> PL_DEVICE int byte_s(int a) { return int(i8(u32(a) >> (8 * AT))); }
template <int AT> PL_DEVICE int byte_u(int a) { return int(u8(u32(a) >> (8 * AT))); }
template <int AT> PL_DEVICE float float_byte_s(int a) { return from_bits(permuted(u32(a) ^ 0x80808080u, 0x4b000000u, 0x7540 | AT)) - 8388736.0f; }
template <int AT> PL_DEVICE float float_byte_u(int a) { return from_bits(permuted(u32(a), 0x4b000000u, 0x7540 | AT)) - 8388608.0f; }
// The number that an integer has added to the bits of 1.5 times 2 to the 23.
PL_DEVICE float last_digits(int i) { return from_bits(u32(i)) - 12582912.0f; }

// COUNT bytes as they lie, or a word instead of each four of them: then nothing is read.
template <int COUNT, typename T> PL_DEVICE void load_words(int* to, const T* from, bool outside = false, int other = 0) {
  Many<u32, COUNT / 4> all;
  PL_UNROLL
  for (int k = 0; k < COUNT / 4; k++) all.at[k] = u32(other);
  if (!outside) all = many_at<COUNT / 4>(reinterpret_cast<const u32*>(from));
  PL_UNROLL
  for (int k = 0; k < COUNT / 4; k++) to[k] = int(all.at[k]);
}
// The low bytes of integers.
template <int COUNT> PL_DEVICE void store_bytes(void* to, const int* from) {
  if constexpr (COUNT % 4 == 0) {
    Many<u32, COUNT / 4> all;
    PL_UNROLL
    for (int k = 0; k < COUNT / 4; k++) all.at[k] = u32(four<0>(from[4 * k], from[4 * k + 1], from[4 * k + 2], from[4 * k + 3]));
    put_many<COUNT / 4>(static_cast<u32*>(to), all);
  } else {
    Many<u8, COUNT> all;
    PL_UNROLL
    for (int k = 0; k < COUNT; k++) all.at[k] = u8(from[k]);
    put_many<COUNT>(static_cast<u8*>(to), all);
  }
}
template <int COUNT> PL_DEVICE void store_many(i8* to, const int* from) { store_bytes<COUNT>(to, from); }
template <int COUNT> PL_DEVICE void store_many(u8* to, const int* from) { store_bytes<COUNT>(to, from); }
// Bytes that a thread may hold as words.
template <int COUNT, typename T> PL_DEVICE void store_held(T* to, const T* from) {
  if constexpr (COUNT % 4 == 0) {
    Many<u32, COUNT / 4> all;
    PL_UNROLL
    for (int k = 0; k < COUNT / 4; k++) memcpy(&all.at[k], from + 4 * k, 4);
    put_many<COUNT / 4>(reinterpret_cast<u32*>(to), all);
  } else {
    Many<T, COUNT> all;
    memcpy(&all, from, COUNT);
    put_many<COUNT>(to, all);
  }
}
template <int COUNT> PL_DEVICE void store_many(i8* to, const i8* from) { store_held<COUNT>(to, from); }
template <int COUNT> PL_DEVICE void store_many(u8* to, const u8* from) { store_held<COUNT>(to, from); }

}  // namespace pipelink

#endif
