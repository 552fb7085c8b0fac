// What the parts of the machine share: launches, regions of memory, threads and where they stand.
#pragma once
#include "emulated.cuh"

namespace pl_emulated {

// A stack for each thread of a block, and below it pages that may not be touched.
static constexpr u64 STACK = 448 << 10, GUARD = 64 << 10;
static constexpr unsigned MAX_THREADS = 1024, LANES = 32;
static constexpr u64 SPINS = 1 << 24;

using Address = unsigned long long;
using u32 = unsigned int;
using u16 = unsigned short;

enum Flags : u32 { WRITABLE = 1, SHARED = 2, TRACKED = 4 };

// As `library.py` lays it out.
struct Region {
  const char* name;
  Address begin;
  u64 bytes;
  u32 element, flags;
};
struct Launch {
  void (*run)(void* const*);
  void* const* slots;
  u32 grid[3], block[3];
  u64 shared_bytes;
  const Region* regions;
  u64 count;
  const char* kernel;
  char* message;
  u64 room;
  char* stacks;
};

// Who touched an element: block + 1 (0: nobody), barriers before, thread, `__syncwarp`s before, where in the code.
struct Touch {
  u32 block, epoch;
  u16 thread, warp_epoch;
  int code;
};
struct Cell {
  Touch written, read;
};
static constexpr u32 MANY_BLOCKS = ~0u;
static constexpr u16 MANY = 0xffff, ATOMIC = 0xfffe;

struct Known {
  Region region;
  Cell* cells;
};

enum class State : unsigned char { ready, running, barrier, warp, done };

// Copies that a thread has begun, the oldest first, with the numbers of their groups.
static constexpr int MAX_COPIES = 256;
struct Copy {
  void* to;
  const void* from;
  int group;
};
struct Copies {
  Copy list[MAX_COPIES];
  int count, group;
};

struct __attribute__((visibility("hidden"))) Fiber {
  void* sp;
  char* stack;
  State state;
  u16 warp_epoch;
  Place place;
  WarpOp op;
  u32 mask;
  int fold, from;
  u64 value, answer;
};

unsigned char* dynamic_shared;
alignas(64) static unsigned char dynamic[228 << 10];
static Fiber fibers[MAX_THREADS];
static Copies copies[MAX_THREADS];
static Fiber* now;
static u32 number, threads, block_number, epoch, atomics;
static void* scheduler;
static const Launch* launch;
static bool failed, fenced;
static u64 spins, ticks;
static Known* known;
static u64 known_count, known_room, recent;

static char* thread_name(char* to, u64 room, u32 t);
__attribute__((format(printf, 1, 2))) static void fail(const char* format, ...);
static void leave(State state);

}  // namespace pl_emulated
