// SPDX-License-Identifier: Apache-2.0
//
// The limits of memory and processor time that control groups (of a container, a service, a batch
// job) set for this process. Supports version 1 and 2 of the kernel's interface, and both at once.
//
// Thread safety: pure functions that read files. Reading never fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace wideep::base {

// An empty optional means no limit.
struct ControlGroup {
  std::optional<uint64_t> memory_limit_bytes;  // of the group with the least free memory
  std::optional<uint64_t> memory_free_bytes;   // free in that group; inactive file pages are free
  std::optional<double> cpus;                  // processors' worth of time, e.g. 1.5
};

// proc and sys: "/proc" and "/sys", or directories with the same structure. The process's own group
// and all its parents are read, and the tightest limit counts. A file that cannot be read sets no
// limit. In a container whose /proc names the host's groups, those directories do not exist, so the
// limits of the container's mount point apply.
ControlGroup read_control_group(const std::string& proc, const std::string& sys);

}  // namespace wideep::base
