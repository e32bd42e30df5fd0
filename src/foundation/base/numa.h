// SPDX-License-Identifier: Apache-2.0
//
// Chooses the NUMA nodes on which pages are allocated. Call it before the first touch: pages that
// are already allocated do not move.
//
// Affects speed only. Returns false where the kernel refuses, and for an empty range.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>

namespace wideep::base {

// Interleaves the pages over all nodes this process may use: for memory that all ranks read.
bool spread_over_numa_nodes(void* data, size_t num_bytes);

// Allocates the pages near the processors that the calling thread may run on, whichever thread
// touches them first.
bool keep_near_this_thread(void* data, size_t num_bytes);

}  // namespace wideep::base
