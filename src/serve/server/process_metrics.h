// SPDX-License-Identifier: Apache-2.0
//
// What this process uses of the machine, under the names that Prometheus' client libraries have, and
// what it is a build of.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wideep::server {

// What /proc says of a process.
struct ProcessUse {
  double cpu_seconds = 0.0;    // of all threads, in user space and in the kernel
  double start_seconds = 0.0;  // since 1970
  uint64_t virtual_bytes = 0;
  uint64_t resident_bytes = 0;  // shared memory that it has touched included
  int64_t threads = 0;
  int64_t open_fds = 0;
  std::optional<uint64_t> max_fds;  // nullopt: without a limit
};

// Of the text of /proc/[pid]/stat; with open_fds and max_fds as given there: 0 and nullopt. boot:
// seconds since 1970 ("btime" of /proc/stat). nullopt: the text is something else.
std::optional<ProcessUse> read_stat(std::string_view stat, double boot);

// Of this process. nullopt: there is no /proc.
std::optional<ProcessUse> this_process();

// process_…, as Prometheus' text. Without /proc: "".
std::string process_metrics();

struct BuildInfo {
  std::string version, commit, isa, model;
};
// wideep_build_info, whose labels they are.
std::string build_info(const BuildInfo& build);

}  // namespace wideep::server
