// Runs the blocks of one launch: stacks that change places, barriers, warp operations. `accesses.h` looks at what they touch.
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#define PL_MACHINE
#include "accesses.h"
#include "emulated.cuh"
#include "machine.h"
#include "switch.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace pl_emulated {

static void leave(State state) {
  Fiber* const me = now;
  me->state = state;
  pl_switch(&me->sp, scheduler);
}

static void body() {
  launch->run(launch->slots);
  if (copies[number].count != 0) fail("a thread returns while copies that it began are under way");
  leave(State::done);
}

// ------------------------------------------------------------------------------------------------------------------ failures

static char* thread_name(char* to, u64 room, u32 t) {
  if (blockDim.y * blockDim.z == 1) snprintf(to, room, "thread %u", t);
  else snprintf(to, room, "thread (%u, %u, %u)", t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y));
  return to;
}

// Records the first failure, with the kernel and where its blocks stand. From a thread it does not return.
static void fail(const char* format, ...) {
  if (!failed) {
    failed = true;
    const int n = snprintf(launch->message, launch->room, "kernel %s, block (%u, %u, %u) of (%u, %u, %u): ", launch->kernel, blockIdx.x, blockIdx.y,
                           blockIdx.z, gridDim.x, gridDim.y, gridDim.z);
    va_list args;
    va_start(args, format);
    if (n >= 0 && u64(n) < launch->room) vsnprintf(launch->message + n, launch->room - n, format, args);
    va_end(args);
  }
  if (now != nullptr) leave(State::done);
}

void stop(Place place, const char* why) {
  char me[64];
  fail("%s:%d: %s stops: %s", place.file, place.line, thread_name(me, sizeof me, number), why);
  __builtin_unreachable();
}

// ------------------------------------------------------------------------------------------------------ barriers and warps

int barrier(Place place, int fold, int value) {
  now->place = place;
  now->fold = fold;
  now->value = u64(value);
  leave(State::barrier);
  return int(now->answer);
}

int lane() { return int(number % LANES); }

static u32 lanes_in(State state) {
  u32 mask = 0;
  const u32 first = number / LANES * LANES;
  for (u32 i = 0; i < LANES && first + i < threads; i++) mask |= u32(fibers[first + i].state == state) << i;
  return mask;
}

unsigned active_lanes() { return 1u << lane(); }

static bool same(const Place& a, const Place& b) { return a.number == b.number && a.line == b.line && strcmp(a.file, b.file) == 0; }

// What one lane of a complete warp operation gets.
static u64 answer(const Fiber* warp, const Fiber& f) {
  u64 out = 0;
  if (f.op == WarpOp::take) return warp[f.from].value;
  for (u32 i = 0; i < LANES; i++) {
    if (!(f.mask >> i & 1)) continue;
    out |= u64(f.op == WarpOp::ballot ? warp[i].value != 0 : f.op == WarpOp::match && warp[i].value == f.value) << i;
  }
  return out;
}

u64 warp(Place place, WarpOp op, unsigned mask, u64 value, int from) {
  Fiber* const warp = fibers + number / LANES * LANES;
  Fiber& me = *now;
  me.place = place, me.op = op, me.mask = mask, me.value = value, me.from = from;
  const u32 there = lanes_in(State::warp) | 1u << lane();
  if (!(mask >> lane() & 1)) fail("%s:%d: lane %d is not in its own mask %08x", place.file, place.line, lane(), mask);
  const u32 gone = mask & ~(there | lanes_in(State::ready) | lanes_in(State::barrier));
  if (gone) {
    const u32 first = u32(__builtin_ctz(gone));
    const u32 thread = number / LANES * LANES + first;
    fail("%s:%d: lane %u of the mask %08x %s", place.file, place.line, first, mask, thread < threads ? "has returned" : "does not exist");
  }
  if (op == WarpOp::take && !(mask >> (from & 31) & 1)) {
    fail("%s:%d: lane %d reads lane %d, which is not in the mask %08x", place.file, place.line, lane(), from & 31, mask);
  }
  if ((mask & ~there) != 0) {
    leave(State::warp);
    return me.answer;
  }
  u16 latest = 0;
  for (u32 i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    const Fiber& f = warp[i];
    if (!same(f.place, place) || f.mask != mask) {
      fail("lanes of one warp wait at different operations: lane %d at %s:%d with the mask %08x, lane %u at %s:%d with %08x", lane(), place.file, place.line,
           mask, i, f.place.file, f.place.line, f.mask);
    }
    latest = f.warp_epoch > latest ? f.warp_epoch : latest;
  }
  for (u32 i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    warp[i].answer = answer(warp, warp[i]);
    if (op == WarpOp::sync) warp[i].warp_epoch = u16(latest + 1);
    if (&warp[i] != &me) warp[i].state = State::ready;
  }
  return me.answer;
}

// -------------------------------------------------------------------------------------------------------------------- launches

static void start() {
  for (u32 t = 0; t < threads; t++) {
    Fiber& f = fibers[t];
    f.stack = launch->stacks + t * (STACK + GUARD) + GUARD;
    f.sp = prepared(f.stack + STACK, body);
    f.state = State::ready;
    f.warp_epoch = 0;
    copies[t].count = copies[t].group = 0;
  }
}

static void go(u32 t) {
  number = t;
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  now = &fibers[t];
  now->state = State::running;
  pl_switch(&scheduler, now->sp);
  now = nullptr;
}

// Every thread waits or is done: the barrier opens, or something is wrong.
static bool open() {
  u32 at_barrier = threads, done = threads, in_warp = threads, answers[4] = {0, 0, 1, 0};
  for (u32 t = threads; t-- > 0;) {
    const Fiber& f = fibers[t];
    (f.state == State::barrier ? at_barrier : f.state == State::done ? done : in_warp) = t;
  }
  const Place& p = fibers[in_warp < threads ? in_warp : at_barrier].place;
  if (in_warp < threads) {
    fail("deadlock at %s:%d: thread %u waits for the lanes %08x of its warp, and some never come", p.file, p.line, in_warp, fibers[in_warp].mask);
    return false;
  }
  if (done < threads) {
    fail("thread %u waits at the barrier %s:%d, thread %u has returned", at_barrier, p.file, p.line, done);
    return false;
  }
  for (u32 t = 0; t < threads; t++) {
    const Fiber& f = fibers[t];
    if (!same(f.place, p)) {
      fail("threads wait at different barriers: thread %u at %s:%d, thread %u at %s:%d", at_barrier, p.file, p.line, t, f.place.file, f.place.line);
      return false;
    }
    answers[1] += u32(f.value != 0);
    answers[2] &= u32(f.value != 0);
    answers[3] |= u32(f.value != 0);
  }
  for (u32 t = 0; t < threads; t++) fibers[t].answer = answers[fibers[t].fold], fibers[t].state = State::ready;
  epoch++;
  return true;
}

// One block. Its threads run in the order of their numbers, those of every other block and after every other barrier the other way round.
static bool run_block() {
  for (u64 i = 0; i < launch->count; i++) {
    const Region& r = launch->regions[i];
    if (r.flags & SHARED) memset(reinterpret_cast<void*>(r.begin), 0xff, r.bytes);
  }
  memset(dynamic, 0xff, launch->shared_bytes);
  epoch = 0;
  start();
  for (;;) {
    bool moved = false, all = true;
    const bool backwards = ((epoch ^ block_number) & 1) != 0;
    for (u32 i = 0; i < threads; i++) {
      const u32 t = backwards ? threads - 1 - i : i;
      if (fibers[t].state == State::ready) {
        go(t);
        moved = true;
      }
      if (failed) return false;
      all = all && fibers[t].state == State::done;
    }
    if (all) return true;
    if (!moved && !open()) return false;
  }
}

static int run_grid() {
  gridDim = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
  blockDim = dim3(launch->block[0], launch->block[1], launch->block[2]);
  threads = blockDim.x * blockDim.y * blockDim.z;
  if (threads == 0 || threads > MAX_THREADS || launch->shared_bytes > sizeof dynamic) {
    fail("a launch of %u threads a block with %llu bytes of shared memory is not possible", threads, launch->shared_bytes);
    return 1;
  }
  block_number = 0;
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++) {
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++) {
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++, block_number++) {
        if (!run_block()) return 1;
      }
    }
  }
  return 0;
}

}  // namespace pl_emulated

using namespace pl_emulated;

// Runs a kernel. 0, or 1 with a message; numbers in brackets are places in the code, counted from `pl_switch_address`.
extern "C" int pl_launch(const Launch* given) {
  launch = given;
  failed = fenced = false;
  spins = atomics = recent = 0;
  known_count = 0;
  dynamic_shared = dynamic;
  for (u64 i = 0; i < given->count; i++) add(given->regions[i]);
  if (given->shared_bytes) add({"shared memory", Address(dynamic), given->shared_bytes, 1, WRITABLE | SHARED | TRACKED});
  const int result = run_grid();
  now = nullptr;
  for (u64 i = 0; i < known_count; i++) ::free(known[i].cells);
  return result;
}
// Stacks for the largest block, which all libraries share; null where there is no room.
extern "C" void* pl_stacks() {
  const u64 each = STACK + GUARD;
  char* const all = static_cast<char*>(mmap(nullptr, MAX_THREADS * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (all == MAP_FAILED) return nullptr;
  for (u32 t = 0; t < MAX_THREADS; t++) mprotect(all + t * each, GUARD, PROT_NONE);
  return all;
}
extern "C" void* pl_switch_address() { return reinterpret_cast<void*>(&pl_switch); }
