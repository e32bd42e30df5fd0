// SPDX-License-Identifier: Apache-2.0
//
// A fiber: a function with a stack of its own, which one OS thread enters and leaves. Every CUDA
// thread of the emulator is one.
//
// Thread safety: all fibers of a machine belong to one OS thread.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace wideep::cuda {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next enter() begins function(argument) on an empty stack. What the fiber did before is
  // abandoned where it is, without unwinding: kernels own nothing.
  void start(void (*function)(void*), void* argument);
  // Runs the fiber until it leaves.
  void enter();
  // From within the fiber: back to enter(). The function must leave at its end, not return.
  void leave();

 private:
  static constexpr size_t kStackBytes = size_t{64} << 10;

  void take_stack();
  static void begin();

  std::byte* stack_ = nullptr;  // mapped, above a page without access
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;  // while the fiber is not running
  void* caller_ = nullptr;         // while it is
#else
  ucontext_t context_;
  ucontext_t caller_;
#endif
  // For sanitizers, which have to know the stack that is in use.
  [[maybe_unused]] void* sanitizer_fiber_ = nullptr;
  [[maybe_unused]] void* sanitizer_caller_ = nullptr;
  [[maybe_unused]] const void* caller_stack_ = nullptr;
  [[maybe_unused]] size_t caller_stack_bytes_ = 0;
};

}  // namespace wideep::cuda
