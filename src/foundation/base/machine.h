// SPDX-License-Identifier: Apache-2.0
//
// The hardware of this machine, and the part of it that this process may use: processors, memory,
// limits.
//
// Reading never fails: values that the kernel does not provide are 0, empty or absent.
// Thread safety: pure functions that read files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/control_group.h"

namespace wideep::base {

// The hardware as hwloc reports it, without parts that the administrator has disallowed for this
// process (cpusets).
struct Topology {
  struct Cache {
    int level = 0;  // level 1 is the data cache
    uint64_t bytes = 0;
    int num_cores = 0;  // cores that share one cache
  };

  std::vector<std::vector<int>> cores;    // each core's processors (hardware threads) by number
  std::vector<uint64_t> numa_node_bytes;  // memory of each NUMA node
  std::vector<Cache> caches;              // one per level, ascending
};

// synthetic: hwloc's description of a made-up machine, e.g. "numa:2 core:4 pu:2"; empty: this
// machine.
Topology read_topology(const std::string& synthetic = "");

struct HugePages {
  // Pages of one size that the administrator has reserved (hugetlb); they serve no other purpose.
  struct Pool {
    uint64_t page_bytes = 0;
    uint64_t num_pages = 0;
    uint64_t num_free = 0;
  };

  // Transparent huge pages: "always", "madvise" (where a program asks), "never"; empty: the kernel
  // has none.
  std::string transparent;
  std::vector<Pool> reserved;  // pools that are not empty, by page size

  uint64_t reserved_bytes() const;
};

struct Machine {
  std::string processor;  // name of the model; may be empty
  Topology topology;
  int num_processors = 0;    // hardware threads that are online
  std::vector<int> allowed;  // numbers of the processors this process may run on (affinity)
  ControlGroup control_group;
  uint64_t memory_bytes = 0;
  uint64_t free_memory_bytes = 0;  // available to programs without swapping
  HugePages huge_pages;
  uint64_t dev_shm_bytes = 0;  // size of the file system at /dev/shm

  // The number of cores with an allowed processor, limited by the control group's processor time;
  // at least 1.
  int usable_cores() const;
  // The memory that this process can allocate: the free memory, limited by the control group.
  uint64_t usable_memory_bytes() const;
};

// proc and sys: directories with the structure of /proc and /sys.
Machine read_machine(const std::string& proc = "/proc", const std::string& sys = "/sys");

}  // namespace wideep::base
