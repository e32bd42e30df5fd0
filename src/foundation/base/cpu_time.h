// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace wideep::base {

// Processor time that the calling thread has used, in nanoseconds. Unlike wall time it does not
// grow while another thread runs on the core.
inline int64_t thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// Nanoseconds of the steady clock, which all processes of a machine share.
inline int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace wideep::base
