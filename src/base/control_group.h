// SPDX-License-Identifier: Apache-2.0
//
// What the control groups of this process (a container, a service, a batch job) allow it: memory
// and processor time. Both versions of the interface, and both at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace wideep::base {

// Absent: no limit.
struct ControlGroup {
  std::optional<uint64_t> memory_limit_bytes;  // of the group that has the least left
  std::optional<uint64_t> memory_free_bytes;   // left of it; file pages nobody uses count as free
  std::optional<double> cpus;                  // processors' worth of time, e.g. 1.5
};

// proc and sys: "/proc" and "/sys", or trees that look like them. Every group from the process's
// own up to the root counts: the tightest decides. What cannot be read sets no limit. A process in
// a container that sees the host's group paths is judged by the groups that the container sees.
ControlGroup read_control_group(const std::string& proc, const std::string& sys);

}  // namespace wideep::base
