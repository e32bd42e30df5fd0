// SPDX-License-Identifier: Apache-2.0
//
// hwloc for what the hardware is, files of /proc and /sys for what this process may use of it. The
// roots of both are arguments, so that tests read made-up machines.
#include "base/machine.h"

#include <hwloc.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/proc_file.h"

namespace wideep::base {
namespace {

using TopologyHandle = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

TopologyHandle load_topology(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, hwloc_topology_destroy};
  TopologyHandle topology(raw, hwloc_topology_destroy);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    topology.reset();
  } else if (hwloc_topology_load(raw) != 0) {
    topology.reset();
  }
  return topology;
}

std::vector<int> processors_of(hwloc_obj_t object) {
  std::vector<int> processors;
  for (int i = hwloc_bitmap_first(object->cpuset); i >= 0;
       i = hwloc_bitmap_next(object->cpuset, i)) {
    processors.push_back(i);
  }
  return processors;
}

std::vector<Topology::Cache> caches_of(hwloc_topology_t topology) {
  std::vector<Topology::Cache> caches;
  for (const hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    if (cache == nullptr) continue;
    caches.push_back({.level = static_cast<int>(cache->attr->cache.depth),
                      .bytes = cache->attr->cache.size,
                      .num_cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, cache->cpuset,
                                                                          HWLOC_OBJ_CORE)});
  }
  return caches;
}

// The setting of a file such as "always [madvise] never": the word in brackets.
std::string bracketed_word(const std::string& path) {
  const std::vector<std::string> lines = read_lines(path);
  if (lines.empty()) return {};
  const size_t open = lines[0].find('['), close = lines[0].find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return lines[0].substr(open + 1, close - open - 1);
}

std::vector<HugePages::Pool> read_huge_page_pools(const std::string& directory) {
  constexpr std::string_view kPrefix = "hugepages-";  // hugepages-2048kB
  std::vector<HugePages::Pool> pools;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(directory, absent)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const HugePages::Pool pool = {
        .page_bytes = std::strtoull(name.c_str() + kPrefix.size(), nullptr, 10) * 1024,
        .num_pages = read_number(entry.path() / "nr_hugepages").value_or(0),
        .num_free = read_number(entry.path() / "free_hugepages").value_or(0)};
    if (pool.num_pages > 0) pools.push_back(pool);
  }
  // A directory lists its entries in any order.
  std::sort(pools.begin(), pools.end(),
            [](const auto& a, const auto& b) { return a.page_bytes < b.page_bytes; });
  return pools;
}

std::string read_processor_name(const std::string& proc) {
  const std::string name = read_text_field(proc + "/cpuinfo", "model name");
  // Arm's /proc/cpuinfo has no "model name"; some kernels name the board in "Model".
  return name.empty() ? read_text_field(proc + "/cpuinfo", "Model") : name;
}

int count_online_processors(const std::string& sys) {
  const std::vector<std::string> lines = read_lines(sys + "/devices/system/cpu/online");
  return lines.empty() ? 0 : static_cast<int>(parse_cpu_list(lines[0]).size());
}

uint64_t read_dev_shm_bytes() {
  struct statvfs space = {};
  if (::statvfs("/dev/shm", &space) != 0) return 0;
  return uint64_t{space.f_blocks} * space.f_frsize;
}

}  // namespace

Topology read_topology(const std::string& synthetic) {
  Topology result;
  const TopologyHandle topology = load_topology(synthetic);
  if (topology == nullptr) return result;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, object)) != nullptr) {
    result.cores.push_back(processors_of(object));
  }
  while ((object = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, object)) !=
         nullptr) {
    result.numa_node_bytes.push_back(object->attr->numanode.local_memory);
  }
  result.caches = caches_of(topology.get());
  return result;
}

uint64_t HugePages::reserved_bytes() const {
  uint64_t bytes = 0;
  for (const Pool& pool : reserved) bytes += pool.page_bytes * pool.num_pages;
  return bytes;
}

int Machine::usable_cores() const {
  const auto is_allowed = [&](int number) {
    return std::find(allowed.begin(), allowed.end(), number) != allowed.end();
  };
  auto cores = static_cast<double>(std::count_if(
      topology.cores.begin(), topology.cores.end(),
      [&](const auto& core) { return std::any_of(core.begin(), core.end(), is_allowed); }));
  if (cores == 0) cores = static_cast<double>(allowed.size());  // hwloc could not read the topology
  // A fraction of a core keeps no thread busy: 1.5 processors' worth of time is one core.
  if (control_group.cpus) cores = std::min(cores, *control_group.cpus);
  return std::max(1, static_cast<int>(cores));
}

uint64_t Machine::usable_memory_bytes() const {
  return std::min(free_memory_bytes, control_group.memory_free_bytes.value_or(UINT64_MAX));
}

Machine read_machine(const std::string& proc, const std::string& sys) {
  Machine machine;
  machine.processor = read_processor_name(proc);
  machine.topology = read_topology();
  machine.num_processors = count_online_processors(sys);
  machine.allowed = parse_cpu_list(read_text_field(proc + "/self/status", "Cpus_allowed_list"));
  machine.control_group = read_control_group(proc, sys);
  // The kernel gives both in KiB.
  machine.memory_bytes = read_field(proc + "/meminfo", "MemTotal").value_or(0) * 1024;
  machine.free_memory_bytes = read_field(proc + "/meminfo", "MemAvailable").value_or(0) * 1024;
  machine.huge_pages.transparent = bracketed_word(sys + "/kernel/mm/transparent_hugepage/enabled");
  machine.huge_pages.reserved = read_huge_page_pools(sys + "/kernel/mm/hugepages");
  machine.dev_shm_bytes = read_dev_shm_bytes();
  return machine;
}

}  // namespace wideep::base
