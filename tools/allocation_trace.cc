// SPDX-License-Identifier: Apache-2.0
//
// Replaces the global operator new so that allocations of the forward thread appear in its trace
// (TLLM_PROFILE_RECORD_GC). When they are not recorded, the cost is one read of a thread-local
// flag.
#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/trace.h"

namespace {

void* allocate(size_t size, size_t alignment) {
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(size == 0 ? 1 : size);
  const size_t whole = (size + alignment - 1) / alignment * alignment;
  if (whole < size) return nullptr;  // wrapped around
  return std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
}

void* obtain(size_t size, size_t alignment) {
  const int64_t start_ns = wideep::base::allocation_start();
  void* found = allocate(size, alignment);
  while (found == nullptr) {
    // The standard requires this loop: the handler may free memory, or throw, or not exist.
    const std::new_handler make_room = std::get_new_handler();
    if (make_room == nullptr) throw std::bad_alloc();
    make_room();
    found = allocate(size, alignment);
  }
  wideep::base::record_allocation(start_ns, size);
  return found;
}

}  // namespace

// All other forms of operator new call these. noinline: if gcc inlined only one of new and delete,
// it would warn that malloc and operator delete (or new and free) do not match.
[[gnu::noinline]] void* operator new(size_t size) {
  return obtain(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return obtain(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
