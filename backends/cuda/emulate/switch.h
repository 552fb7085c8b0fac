// Changing stacks: by hand on x86-64 and aarch64, where it takes some 12 ns; else by ucontext, thirty times slower since it changes the signal mask too.
#pragma once
#include <string.h>

#include "emulated.cuh"

namespace pl_emulated {

// Stores the place of the present stack in `from` and goes on at `to`, which such a call stored, or `prepared` made.
extern "C" __attribute__((visibility("hidden"))) void pl_switch(void** from, void* to);
#if defined(__x86_64__) && !defined(PL_UCONTEXT)
asm(R"(
.pushsection .text
.globl pl_switch
.hidden pl_switch
.type pl_switch, @function
pl_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pl_switch, .-pl_switch
.popsection
)");
static void* prepared(char* top, void (*entry)()) {
  void** sp = reinterpret_cast<void**>(top);
  *--sp = nullptr;  // where `entry` would return to; the stack is aligned as after a call
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__) && !defined(PL_UCONTEXT)
asm(R"(
.pushsection .text
.globl pl_switch
.hidden pl_switch
.type pl_switch, %function
pl_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size pl_switch, .-pl_switch
.popsection
)");
static void* prepared(char* top, void (*entry)()) {
  void** sp = reinterpret_cast<void**>(top) - 20;
  memset(sp, 0, 160);
  sp[11] = reinterpret_cast<void*>(entry);
  return sp;
}
#else
}  // namespace pl_emulated
#include <ucontext.h>

#include "machine.h"
namespace pl_emulated {
// Slower: each switch changes the signal mask too. A context lies at the top of its stack, that of the scheduler is static.
static ucontext_t main_context;
extern "C" void pl_switch(void** from, void* to) {
  ucontext_t* const mine = now != nullptr && from == &now->sp ? reinterpret_cast<ucontext_t*>(now->stack + STACK - sizeof(ucontext_t)) : &main_context;
  *from = mine;
  swapcontext(mine, static_cast<ucontext_t*>(to));
}
static void* prepared(char* top, void (*entry)()) {
  ucontext_t* const context = reinterpret_cast<ucontext_t*>(top - sizeof(ucontext_t));
  getcontext(context);
  context->uc_stack.ss_sp = top - STACK;
  context->uc_stack.ss_size = STACK - sizeof(ucontext_t);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}
#endif

}  // namespace pl_emulated
