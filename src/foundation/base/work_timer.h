// SPDX-License-Identifier: Apache-2.0
//
// For tests that tell work in proportion to its input from work that grows with its square: the
// processor time of the calling thread, which other programs on the machine hardly change.
#pragma once

#include <cstdint>

#include "base/cpu_time.h"
#include "base/sanitized.h"

namespace wideep::base {

class WorkTimer {
 public:
  // Since the construction, in a build without sanitizers, which take up to ten times as long.
  double seconds() const {
    return static_cast<double>(thread_cpu_ns() - begin_ns_) * 1e-9 / (kSanitized ? 10 : 1);
  }

 private:
  int64_t begin_ns_ = thread_cpu_ns();
};

}  // namespace wideep::base
