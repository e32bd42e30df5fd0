// SPDX-License-Identifier: Apache-2.0
//
// Where pages lie on a machine whose memory is in several parts (NUMA nodes), each near to some
// processors and far from others. Said before the first touch: pages that are there do not move.
//
// A matter of speed only: false where the kernel does not let us choose.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>

namespace wideep::base {

// Evenly over all nodes this process may use: what every rank of the machine reads.
bool spread_over_numa_nodes(void* data, size_t num_bytes);

// Near the processors that the calling thread may run on, whoever touches them first.
bool keep_near_this_thread(void* data, size_t num_bytes);

}  // namespace wideep::base
