// SPDX-License-Identifier: Apache-2.0
//
// The machine we run on, and what of it this process may use: processors, memory, limits.
//
// Reading never fails: what the kernel does not tell is 0, empty or absent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/control_group.h"

namespace wideep::base {

// The hardware as hwloc sees it, without what the administrator has taken from this process.
struct Topology {
  struct Cache {
    int level = 0;  // 1: data only
    uint64_t bytes = 0;
    int num_cores = 0;  // that share one
  };

  std::vector<std::vector<int>> cores;    // each core's processors (hardware threads) by number
  std::vector<uint64_t> numa_node_bytes;  // memory of each NUMA node
  std::vector<Cache> caches;              // one per level, ascending
};

// synthetic: a made-up machine in hwloc's words, e.g. "numa:2 core:4 pu:2"; empty: this one.
Topology read_topology(const std::string& synthetic = "");

struct HugePages {
  // Reserved in advance by the administrator (hugetlb); no other memory can come from them.
  struct Pool {
    uint64_t page_bytes = 0;
    uint64_t num_pages = 0;
    uint64_t num_free = 0;
  };

  // When the kernel makes huge pages by itself: "always", "madvise" (where a program asks),
  // "never"; empty: this kernel cannot.
  std::string transparent;
  std::vector<Pool> reserved;  // pools with pages, by page size

  uint64_t reserved_bytes() const;
};

struct Machine {
  std::string processor;  // its name; may be empty
  Topology topology;
  int num_processors = 0;    // online, hardware threads
  std::vector<int> allowed;  // the processors this process may run on (affinity), by number
  ControlGroup control_group;
  uint64_t memory_bytes = 0;
  uint64_t free_memory_bytes = 0;  // that programs can get without swapping
  HugePages huge_pages;
  uint64_t dev_shm_bytes = 0;

  // Cores with an allowed processor, and no more than the control group's processor time keeps
  // busy; at least 1.
  int usable_cores() const;
  // What this process can allocate: free memory, or less where the control group leaves less.
  uint64_t usable_memory_bytes() const;
};

// proc and sys: trees like /proc and /sys.
Machine read_machine(const std::string& proc = "/proc", const std::string& sys = "/sys");

}  // namespace wideep::base
