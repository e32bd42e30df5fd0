// SPDX-License-Identifier: Apache-2.0
//
// A switch saves six registers and the stack pointer. swapcontext would do a system call for the
// signal mask each time, and a test makes millions of switches; it serves other processors. Stacks
// are kept for the next fibers, with a page without access below each. Sanitizers have to be told
// of every switch, or they take another stack for an overflow.
#include "cuda/emulated/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "base/check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WIDEEP_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define WIDEEP_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WIDEEP_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define WIDEEP_TSAN 1
#endif

#if defined(WIDEEP_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(WIDEEP_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace wideep::cuda {
namespace {

constexpr size_t kGuardBytes = 4096;

// Stacks of fibers that are gone: tests make some hundred fibers for each of some thousand
// machines. The address sanitizer keeps a stack of its own beside each of them, for variables that
// are used after their function has returned; made anew for each fiber they would fill the memory.
struct FreeStack {
  std::byte* stack;
  void* of_sanitizer;  // null: none yet
};
thread_local std::vector<FreeStack> free_stacks;

Fiber* starting = nullptr;  // the fiber whose first enter() is under way

}  // namespace

#if defined(__x86_64__)
// wideep_switch_stack(void** from, void* to): keeps the registers that a function must preserve on
// the stack in use, leaves its pointer in *from, and continues on the stack `to`.
asm(R"(
.text
.p2align 4
.type wideep_switch_stack, @function
wideep_switch_stack:
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
.size wideep_switch_stack, .-wideep_switch_stack
)");
extern "C" void wideep_switch_stack(void** from, void* to);
#endif

Fiber::Fiber() {
  take_stack();
#if defined(WIDEEP_TSAN)
  sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(WIDEEP_TSAN)
  __tsan_destroy_fiber(sanitizer_fiber_);
#endif
#if defined(WIDEEP_ASAN)
  free_stacks.push_back({stack_, sanitizer_fiber_});
#else
  free_stacks.push_back({stack_, nullptr});
#endif
}

void Fiber::take_stack() {
  if (!free_stacks.empty()) {
    stack_ = free_stacks.back().stack;
#if defined(WIDEEP_ASAN)
    sanitizer_fiber_ = free_stacks.back().of_sanitizer;
#endif
    free_stacks.pop_back();
    return;
  }
  void* mapped = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  WIDEEP_CHECK(mapped != MAP_FAILED);
  WIDEEP_CHECK_EQ(mprotect(mapped, kGuardBytes, PROT_NONE), 0);
  stack_ = static_cast<std::byte*>(mapped) + kGuardBytes;
}

void Fiber::start(void (*function)(void*), void* argument) {
  function_ = function;
  argument_ = argument;
  if (!awaits_function_) clear_stack();
  awaits_function_ = false;
}

// The next enter() calls begin().
void Fiber::clear_stack() {
#if defined(WIDEEP_ASAN)
  __asan_unpoison_memory_region(stack_, kStackBytes);  // what an abandoned function left there
#endif
#if defined(__x86_64__)
  // As wideep_switch_stack leaves a stack: six registers, then the address to return to. At that
  // address the stack must be 8 beyond a multiple of 16, as after a call.
  auto* top = reinterpret_cast<uint64_t*>(stack_ + kStackBytes) - 3;
  top[0] = 0;
  top[-1] = reinterpret_cast<uint64_t>(&Fiber::begin);
  for (int i = 2; i <= 7; ++i) top[-i] = 0;
  stack_pointer_ = top - 7;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::begin, 0);
#endif
}

void Fiber::begin() {
  Fiber* self = starting;
#if defined(WIDEEP_ASAN)
  __sanitizer_finish_switch_fiber(self->sanitizer_fiber_, &self->caller_stack_,
                                  &self->caller_stack_bytes_);
#endif
  for (;;) {
    self->function_(self->argument_);
    self->awaits_function_ = true;
    self->leave();
  }
}

void Fiber::enter() {
  starting = this;
#if defined(WIDEEP_TSAN)
  sanitizer_caller_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_fiber_, 0);
#endif
#if defined(WIDEEP_ASAN)
  __sanitizer_start_switch_fiber(&sanitizer_caller_, stack_, kStackBytes);
#endif
#if defined(__x86_64__)
  wideep_switch_stack(&caller_, stack_pointer_);
#else
  swapcontext(&caller_, &context_);
#endif
#if defined(WIDEEP_ASAN)
  __sanitizer_finish_switch_fiber(sanitizer_caller_, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#if defined(WIDEEP_TSAN)
  __tsan_switch_to_fiber(sanitizer_caller_, 0);
#endif
#if defined(WIDEEP_ASAN)
  __sanitizer_start_switch_fiber(&sanitizer_fiber_, caller_stack_, caller_stack_bytes_);
#endif
#if defined(__x86_64__)
  wideep_switch_stack(&stack_pointer_, caller_);
#else
  swapcontext(&context_, &caller_);
#endif
#if defined(WIDEEP_ASAN)
  __sanitizer_finish_switch_fiber(sanitizer_fiber_, &caller_stack_, &caller_stack_bytes_);
#endif
}

}  // namespace wideep::cuda
