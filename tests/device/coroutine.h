// Stacks for coroutines. Everything that a suspended function needs is on its own stack, above the address that is kept of the
// stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// Saves the callee-saved registers on this stack, stores the stack pointer to `from`, and continues at `to`.
extern "C" void explore_switch_stack(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.globl explore_switch_stack
.type explore_switch_stack, @function
explore_switch_stack:
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
.size explore_switch_stack, .-explore_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl explore_switch_stack
.type explore_switch_stack, %function
explore_switch_stack:
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
  mov x2, sp
  str x2, [x0]
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
.size explore_switch_stack, .-explore_switch_stack
)");
#else
#error "switching stacks is written for x86-64 and AArch64 only"
#endif

namespace explore {

inline void switch_stack(void** from, void* to) { explore_switch_stack(from, to); }

// Prepares a stack on which `enter` begins after a switch to it. `enter` must never return.
inline void* prepare(char* stack, size_t bytes, void (*enter)()) {
  std::memset(stack, 0, bytes);
  const uint64_t address = reinterpret_cast<uint64_t>(enter);
#if defined(__x86_64__)
  // Six registers, the address to continue at, and the caller's place: a function begins with its stack 8 off a multiple of 16.
  char* at = stack + bytes - 64;
  std::memcpy(at + 48, &address, sizeof address);
#else
  char* at = stack + bytes - 160;
  std::memcpy(at + 88, &address, sizeof address);
#endif
  return at;
}

}  // namespace explore
