// SPDX-License-Identifier: Apache-2.0
#include "base/numa.h"

#include <hwloc.h>

#include <memory>

namespace wideep::base {
namespace {

using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

// Loaded once, because that takes milliseconds. Never freed, because threads may still use it while
// the process exits.
hwloc_topology_t this_machine() {
  static const hwloc_topology_t topology = [] {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) return hwloc_topology_t{nullptr};
    if (hwloc_topology_load(raw) == 0) return raw;
    hwloc_topology_destroy(raw);
    return hwloc_topology_t{nullptr};
  }();
  return topology;
}

}  // namespace

bool spread_over_numa_nodes(void* data, size_t num_bytes) {
  const hwloc_topology_t topology = this_machine();
  if (topology == nullptr || num_bytes == 0) return false;
  return hwloc_set_area_membind(topology, data, num_bytes,
                                hwloc_topology_get_allowed_nodeset(topology),
                                HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET) == 0;
}

bool keep_near_this_thread(void* data, size_t num_bytes) {
  const hwloc_topology_t topology = this_machine();
  if (topology == nullptr || num_bytes == 0) return false;
  const Bitmap processors(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (hwloc_get_cpubind(topology, processors.get(), HWLOC_CPUBIND_THREAD) != 0) return false;
  return hwloc_set_area_membind(topology, data, num_bytes, processors.get(), HWLOC_MEMBIND_BIND,
                                0) == 0;
}

}  // namespace wideep::base
