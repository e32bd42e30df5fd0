// SPDX-License-Identifier: Apache-2.0
//
// Operations on flags (SharedMemory::flag): the sender raises a flag, readers test it or sleep on
// it.
//
// Thread safety: any thread or process that maps the flag; raise_flag: only the flag's sender, or
// its proxy.
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/shared_memory.h"

namespace wideep::transport {

// A flag may be ahead of the value that a reader waits for, and wraps around at 2³².
inline bool reached(uint32_t flag, uint32_t value) {
  return static_cast<int32_t>(flag - value) >= 0;
}

// Acquire: if true, everything the sender wrote before it raised the flag is visible.
inline bool has_reached(const Flag& flag, uint32_t value) {
  return reached(flag.value.load(std::memory_order_acquire), value);
}

// Sleeps while the flag has the value `seen`, for `at_most`. May return early: the caller reads the
// flag again. REQUIRES: the caller has counted itself in flag.sleepers.
void sleep_on(Flag& flag, uint32_t seen, std::chrono::nanoseconds at_most);

// Release: publishes everything the caller wrote before. Wakes all sleeping readers.
void raise_flag(Flag& flag, uint32_t value);

}  // namespace wideep::transport
