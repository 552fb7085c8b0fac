// A look at every access to memory.
//
// Kernels are compiled with `-fsanitize=thread` and `-fsanitize=signed-integer-overflow,…`, and linked with this instead of the compilers' own run times: so
// each load and store of a kernel calls `__tsan_read4(address)` or its like here. An access is looked up among the regions of the launch (buffers, shared
// memory, scratch). Outside of all it is refused before it happens, and so are a write to an operand, a read of shared memory that nobody has written, and
// a race: two threads of a block that touch an element without a barrier between them, or two blocks that do so at all, one of them writing.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "switch.h"

namespace pl_emulated {

static constexpr u64 MOST_CELLS = 1 << 26;

static u64 position(Address at) {
  u64 low = 0, high = known_count;
  while (low < high) {
    const u64 mid = (low + high) / 2;
    if (known[mid].region.begin <= at) low = mid + 1;
    else high = mid;
  }
  return low;
}

static void add(const Region& r) {
  if (known_count == known_room) known = static_cast<Known*>(realloc(known, (known_room = 2 * known_room + 16) * sizeof(Known)));
  const u64 at = position(r.begin);
  memmove(known + at + 1, known + at, (known_count - at) * sizeof(Known));
  Cell* cells = nullptr;
  // Of very large memory nothing is noted: cells take many times as much.
  const u64 count = (r.bytes + r.element - 1) / r.element + 1;
  if ((r.flags & TRACKED) && count < MOST_CELLS) cells = static_cast<Cell*>(calloc(count, sizeof(Cell)));
  known[at] = {r, cells};
  known_count++;
}

static Known* find(Address at) {
  if (recent < known_count && at - known[recent].region.begin < known[recent].region.bytes) return &known[recent];
  const u64 next = position(at);
  if (next == 0 || at - known[next - 1].region.begin >= known[next - 1].region.bytes) return nullptr;
  return &known[recent = next - 1];
}

void* heap(u64 bytes) {
  void* const piece = malloc(bytes);
  if (piece != nullptr) add({"heap", Address(piece), bytes, 1, WRITABLE | TRACKED});
  return piece;
}

void release(void* piece) {
  if (piece == nullptr) return;
  Known* const k = find(Address(piece));
  if (k == nullptr || k->region.begin != Address(piece)) fail("memory is given back that was not taken, or twice");
  ::free(k->cells);
  ::free(piece);
  memmove(k, k + 1, (known_count - u64(k - known) - 1) * sizeof(Known));
  known_count--;
}

Atomic::Atomic() {
  // A thread that spins waits for another.
  if (++spins > SPINS) fail("threads spin on atomics, and nothing changes");
  if (spins % 1024 == 0) leave(State::ready);
  atomics++;
}
Atomic::~Atomic() { atomics--; }
void fence(bool grid) { fenced = fenced || grid; }
u64 clock() { return ++ticks; }

// -------------------------------------------------------------------------------------------------------------------- accesses

static constexpr int CODE_STEP = 1;  // a return address lies behind its call
static int code_of(void* pc) { return int(static_cast<char*>(pc) - reinterpret_cast<char*>(&pl_switch)) - CODE_STEP; }

// How far an address lies from a region.
static u64 distance(const Region& r, Address at) { return at < r.begin ? r.begin - at : at - (r.begin + r.bytes); }

static void outside(Address at, unsigned size, bool write, void* pc) {
  char me[64];
  thread_name(me, sizeof me, number);
  const char* what = write ? "writes" : "reads";
  const u64 next = position(at);
  const Known* near = next > 0 ? &known[next - 1] : nullptr;
  if (next < known_count && (near == nullptr || distance(known[next].region, at) < distance(near->region, at))) near = &known[next];
  if (near == nullptr || distance(near->region, at) > 1ull << 36) {
    fail("[%d] %s %s %u bytes at %p, which is no memory of the kernel", code_of(pc), me, what, size, reinterpret_cast<void*>(at));
  }
  const Region& r = near->region;
  const long long off = (long long)(at - r.begin) / r.element - (at < r.begin && (r.begin - at) % r.element);
  fail("[%d] %s %s %u bytes at element %lld of '%s', which has %llu", code_of(pc), me, what, size, off, r.name, r.bytes / r.element);
}

// Whether what was done before may happen at the same time as what the present thread does.
static bool collides(const Touch& before, bool shared) {
  // A kernel that fences orders its accesses by flags of its own, which is not followed here.
  if (before.block == 0 || fenced || (before.thread == ATOMIC && atomics)) return false;
  if (before.block != block_number + 1) return !shared;
  if (before.epoch != epoch || before.thread == number) return false;
  const bool one_warp = before.thread < ATOMIC && before.thread / LANES == number / LANES;
  return !(one_warp && before.warp_epoch < now->warp_epoch);
}

static void race(const Region& region, u64 index, const Touch& before, bool wrote, bool write, void* pc) {
  char me[64], other[64], where[64] = "";
  thread_name(me, sizeof me, number);
  if (before.thread == MANY) snprintf(other, sizeof other, "several threads");
  else if (before.thread == ATOMIC) snprintf(other, sizeof other, "an atomic");
  else thread_name(other, sizeof other, before.thread);
  if (before.block != block_number + 1) snprintf(where, sizeof where, before.block == MANY_BLOCKS ? " of several blocks" : " of block %u", before.block - 1);
  fail("[%d] race at '%s'[%llu]: %s %s it, %s%s %s it [%d] and no barrier lies between", code_of(pc), region.name, index, me,
       write ? "writes" : "reads", other, where, wrote ? "wrote" : "read", before.code);
}

static void touch(const Region& region, Cell& c, u64 index, bool write, void* pc) {
  const bool shared = (region.flags & SHARED) != 0;
  const Touch me{block_number + 1, epoch, atomics ? ATOMIC : u16(number), now->warp_epoch, code_of(pc)};
  if (collides(c.written, shared)) race(region, index, c.written, true, write, pc);
  if (write) {
    if (collides(c.read, shared)) race(region, index, c.read, false, true, pc);
    c.written = me;
    return;
  }
  if (shared && c.written.block != block_number + 1) {
    char name[64];
    fail("[%d] %s reads '%s'[%llu], which nobody has written", code_of(pc), thread_name(name, sizeof name, number), region.name, index);
  }
  if (atomics) return;  // what it writes next tells enough
  Touch& r = c.read;
  if (r.block == 0 || (r.block == me.block && r.epoch < me.epoch) || (shared && r.block != me.block)) r = me;
  else if (r.block != me.block) r.block = MANY_BLOCKS, r.thread = MANY, r.epoch = epoch;
  else if (r.thread != me.thread) r.thread = MANY;
}

static void look(void* address, unsigned size, bool write, void* pc) {
  const Address at = Address(address);
  if (now == nullptr || at - Address(now->stack) < STACK) return;
  if (at - Address(&threadIdx) < sizeof threadIdx || at - Address(&blockIdx) < sizeof blockIdx) return;
  if (at - Address(&blockDim) < sizeof blockDim || at - Address(&gridDim) < sizeof gridDim || at - Address(&dynamic_shared) < 8) return;
  Known* const k = find(at);
  if (k == nullptr || at + size > k->region.begin + k->region.bytes) outside(at, size, write, pc);
  char me[64];
  const Region& r = k->region;
  if (at % size != 0 && (size & (size - 1)) == 0) {
    fail("[%d] %s touches %u bytes at an odd address in '%s'", code_of(pc), thread_name(me, sizeof me, number), size, r.name);
  }
  if (write && !(r.flags & WRITABLE)) {
    fail("[%d] %s writes '%s'[%llu], which may only be read", code_of(pc), thread_name(me, sizeof me, number), r.name, (at - r.begin) / r.element);
  }
  if (k->cells == nullptr) return;
  const u64 first = (at - r.begin) / r.element, last = (at + size - 1 - r.begin) / r.element;
  for (u64 e = first; e <= last; e++) touch(r, k->cells[e], (at - r.begin) / size, write, pc);
}

void copy_later(void* to, const void* from) {
  Copies& mine = copies[number];
  if (mine.count == MAX_COPIES) fail("a thread begins more than %d copies and never waits", MAX_COPIES);
  mine.list[mine.count++] = {to, from, mine.group};
}

void copies_commit() { copies[number].group++; }

void copies_await(int pending) {
  Copies& mine = copies[number];
  void* const pc = __builtin_return_address(0);
  int left = 0;
  for (int i = 0; i < mine.count; i++) {
    const Copy& c = mine.list[i];
    if (c.group >= mine.group - pending) {
      mine.list[left++] = c;
      continue;
    }
    if (c.from != nullptr) look(const_cast<void*>(c.from), 16, false, pc);
    look(c.to, 16, true, pc);
    if (c.from != nullptr) memcpy(c.to, c.from, 16);
    else memset(c.to, 0, 16);
  }
  mine.count = left;
}

}  // namespace pl_emulated

// -------------------------------------------------------------------------------------------------- what instrumented code calls

using namespace pl_emulated;

#define HIDDEN extern "C" __attribute__((visibility("hidden")))
#define PC __builtin_return_address(0)
#define PL_LOOKS(size) \
  HIDDEN void __tsan_read##size(void* at) { look(at, size, false, PC); } \
  HIDDEN void __tsan_write##size(void* at) { look(at, size, true, PC); } \
  HIDDEN void __tsan_read_write##size(void* at) { look(at, size, false, PC), look(at, size, true, PC); } \
  HIDDEN void __tsan_unaligned_read##size(void* at) { look(at, size, false, PC); } \
  HIDDEN void __tsan_unaligned_write##size(void* at) { look(at, size, true, PC); } \
  HIDDEN void __tsan_volatile_read##size(void* at) { look(at, size, false, PC); } \
  HIDDEN void __tsan_volatile_write##size(void* at) { look(at, size, true, PC); }
PL_LOOKS(1)
PL_LOOKS(2)
PL_LOOKS(4)
PL_LOOKS(8)
PL_LOOKS(16)
HIDDEN void __tsan_read_range(void* at, u64 size) { look(at, unsigned(size), false, PC); }
HIDDEN void __tsan_write_range(void* at, u64 size) { look(at, unsigned(size), true, PC); }
HIDDEN void* __tsan_memcpy(void* to, const void* from, u64 size) {
  look(const_cast<void*>(from), unsigned(size), false, PC), look(to, unsigned(size), true, PC);
  return memcpy(to, from, size);
}
HIDDEN void* __tsan_memset(void* to, int value, u64 size) {
  look(to, unsigned(size), true, PC);
  return memset(to, value, size);
}
HIDDEN void __tsan_func_entry(void*) {}
HIDDEN void __tsan_func_exit() {}
HIDDEN void __tsan_init() {}

// Each handler gets the place in the text first.
struct Text {
  const char* file;
  u32 line, column;
};
static void undefined(const void* data, const char* what) {
  const Text& text = *static_cast<const Text*>(data);
  char me[64];
  fail("%s:%u: %s: %s", text.file, text.line, thread_name(me, sizeof me, number), what);
}
#define PL_UNDEFINED(name, what, ...) HIDDEN void __ubsan_handle_##name(__VA_ARGS__) { undefined(data, what); }
PL_UNDEFINED(add_overflow, "a sum of integers does not fit", void* data, void*, void*)
PL_UNDEFINED(sub_overflow, "a difference of integers does not fit", void* data, void*, void*)
PL_UNDEFINED(mul_overflow, "a product of integers does not fit", void* data, void*, void*)
PL_UNDEFINED(negate_overflow, "a negated integer does not fit", void* data, void*)
PL_UNDEFINED(divrem_overflow, "a division by zero, or of the lowest integer by -1", void* data, void*, void*)
PL_UNDEFINED(shift_out_of_bounds, "a shift by more bits than there are", void* data, void*, void*)
PL_UNDEFINED(out_of_bounds, "an index outside of its array", void* data, void*)
PL_UNDEFINED(float_cast_overflow, "a float does not fit the integer that it is made", void* data, void*)
