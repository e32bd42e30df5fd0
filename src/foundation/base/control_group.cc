// SPDX-License-Identifier: Apache-2.0
//
// Everything that may limit is read and the least counts: all groups from the process's own up to
// the mount point, in both versions of the interface, at all places where distributions mount
// them. A file that is not there sets no limit, so no case needs to know which system this is.
#include "base/control_group.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/proc_file.h"

namespace wideep::base {
namespace {

// Version 1 writes "no limit" as the largest number of whole pages that fits into int64, about
// 2^63: every value from 2^62 on is taken for it.
constexpr uint64_t kUnlimited = uint64_t{1} << 62;

// The files of a group's directory that both versions have under different names.
struct MemoryFiles {
  const char* limit;
  const char* usage;
  const char* unused_file_pages;  // a line of memory.stat
};
constexpr MemoryFiles kMemoryV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr MemoryFiles kMemoryV2 = {"memory.max", "memory.current", "inactive_file"};

// One line of /proc/self/cgroup: "4:memory:/a/b", or "0::/a/b" in version 2.
struct Membership {
  std::string controllers;  // separated by commas; empty in version 2
  std::string path;

  bool has(const std::string& controller) const {
    return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
  }
};

std::vector<Membership> read_memberships(const std::string& proc) {
  std::vector<Membership> all;
  for (const std::string& line : read_lines(proc + "/self/cgroup")) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    all.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return all;
}

// The directories of a group and of all its parents, up to the mount point.
std::vector<std::string> group_directories(const std::string& mount, const std::string& group) {
  std::vector<std::string> directories;
  for (std::filesystem::path path = group; path.has_relative_path(); path = path.parent_path()) {
    directories.push_back(mount + path.string());
  }
  directories.push_back(mount);
  return directories;
}

void limit_memory(const std::string& directory, const MemoryFiles& files, ControlGroup* group) {
  const auto limit = read_number(directory + "/" + files.limit);  // absent: "max", or no such file
  if (!limit || *limit >= kUnlimited) return;
  const uint64_t usage = read_number(directory + "/" + files.usage).value_or(0);
  const uint64_t unused =
      read_field(directory + "/memory.stat", files.unused_file_pages).value_or(0);
  // The kernel drops inactive file pages before it refuses memory, so they count as free. Both
  // numbers change between the two reads, hence the bounds at 0.
  const uint64_t used = usage - std::min(usage, unused);
  const uint64_t free = *limit - std::min(*limit, used);
  if (group->memory_free_bytes && *group->memory_free_bytes <= free) return;
  group->memory_limit_bytes = *limit;
  group->memory_free_bytes = free;
}

void limit_cpus(double quota, double period, ControlGroup* group) {
  if (quota <= 0.0 || period <= 0.0) return;
  group->cpus = std::min(quota / period, group->cpus.value_or(quota / period));
}

void limit_cpus_v1(const std::string& directory, ControlGroup* group) {
  // −1 means no limit; read_number refuses its sign.
  const auto quota = read_number(directory + "/cpu.cfs_quota_us");
  const auto period = read_number(directory + "/cpu.cfs_period_us");
  if (quota && period) limit_cpus(double(*quota), double(*period), group);
}

// The file holds quota and period in µs, "150000 100000", or "max 100000" for no limit.
void limit_cpus_v2(const std::string& directory, ControlGroup* group) {
  const std::vector<std::string> lines = read_lines(directory + "/cpu.max");
  if (lines.empty()) return;
  std::istringstream words(lines[0]);
  double quota = 0.0, period = 0.0;
  if (words >> quota >> period) limit_cpus(quota, period, group);
}

}  // namespace

ControlGroup read_control_group(const std::string& proc, const std::string& sys) {
  ControlGroup group;
  // Distributions mount the hierarchies at different places: version 1's cpu controller alone or
  // together with cpuacct, version 2 at the root or, beside version 1, in unified/. All are tried;
  // those that do not exist set no limit.
  const std::string root = sys + "/fs/cgroup";
  for (const Membership& member : read_memberships(proc)) {
    if (member.has("memory")) {
      for (const auto& directory : group_directories(root + "/memory", member.path)) {
        limit_memory(directory, kMemoryV1, &group);
      }
    }
    if (member.has("cpu")) {
      for (const char* mount : {"/cpu", "/cpu,cpuacct"}) {
        for (const auto& directory : group_directories(root + mount, member.path)) {
          limit_cpus_v1(directory, &group);
        }
      }
    }
    if (member.controllers.empty()) {
      for (const char* mount : {"", "/unified"}) {
        for (const auto& directory : group_directories(root + mount, member.path)) {
          limit_memory(directory, kMemoryV2, &group);
          limit_cpus_v2(directory, &group);
        }
      }
    }
  }
  return group;
}

}  // namespace wideep::base
