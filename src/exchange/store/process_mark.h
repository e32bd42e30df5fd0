// SPDX-License-Identifier: Apache-2.0
//
// Who has begun something in shared memory: a process, told from a later one with its number by the
// time when it was started.
//
// Thread safety: all functions.
#pragma once

#include <cstdint>

namespace wideep::store {

struct ProcessMark {
  int32_t process = 0;
  uint64_t start = 0;  // in ticks since the machine was started; 0: /proc does not say
  bool operator==(const ProcessMark&) const = default;
};

ProcessMark mark_of_this_process();

// Whether the process has ended, be it that nobody has waited for it yet. In doubt it is alive.
bool has_ended(const ProcessMark& mark);

}  // namespace wideep::store
