// SPDX-License-Identifier: Apache-2.0
//
// A fiber: functions, one after the other, with a stack of their own, which one OS thread enters
// and leaves. Every CUDA thread of the emulator is one.
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

  // The next enter() begins function(argument). If the function before it has not returned, it is
  // abandoned where it is, without unwinding: kernels own nothing.
  void start(void (*function)(void*), void* argument);
  // Runs the fiber until it leaves or the function returns.
  void enter();
  // From within the fiber: back to enter().
  void leave();

 private:
  static constexpr size_t kStackBytes = size_t{64} << 10;

  void take_stack();
  void clear_stack();
  static void begin();

  std::byte* stack_ = nullptr;  // mapped, above a page without access
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool awaits_function_ = false;  // the last one has returned
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
