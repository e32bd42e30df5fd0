// SPDX-License-Identifier: Apache-2.0
#include "transport/flag.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace wideep::transport {

void sleep_on(Flag& flag, uint32_t seen, std::chrono::nanoseconds at_most) {
  const timespec timeout{.tv_sec = static_cast<time_t>(at_most.count() / 1'000'000'000),
                         .tv_nsec = static_cast<long>(at_most.count() % 1'000'000'000)};
  // Not FUTEX_PRIVATE: the word is shared between processes. The kernel compares the word with
  // `seen` under its lock, so a raise between the caller's load and this call is not missed.
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&flag.value), FUTEX_WAIT, seen, &timeout,
            nullptr, 0);
}

void raise_flag(Flag& flag, uint32_t value) {
  flag.processor.store(static_cast<uint16_t>(::sched_getcpu()), std::memory_order_relaxed);
  // Both sequentially consistent, as are the reader's fetch_add of sleepers and its load of value
  // (Endpoint::sleep_until): either the reader sees the new value, or this load sees the reader.
  // With release and acquire only, both could miss each other and the reader would oversleep.
  flag.value.store(value);
  if (flag.sleepers.load() == 0) return;  // saves the system call
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&flag.value), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

}  // namespace wideep::transport
