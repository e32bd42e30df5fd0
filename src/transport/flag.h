// SPDX-License-Identifier: Apache-2.0
//
// What is done to flags: raised by who writes, slept on by who reads.
//
// Thread safety: atomic operations only.
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/shared_memory.h"

namespace wideep::transport {

// Flags may run ahead of their reader and wrap around.
inline bool reached(uint32_t flag, uint32_t value) {
  return static_cast<int32_t>(flag - value) >= 0;
}

inline bool is_at(const Flag& flag, uint32_t value) {
  return reached(flag.value.load(std::memory_order_acquire), value);
}

// Sleeps while the flag has the value `seen`, at most so long. Whatever ends it, the caller looks
// again.
void sleep_on(Flag& flag, uint32_t seen, std::chrono::nanoseconds at_most);

// For its sender alone; wakes the readers that sleep.
void raise_flag(Flag& flag, uint32_t value);

}  // namespace wideep::transport
