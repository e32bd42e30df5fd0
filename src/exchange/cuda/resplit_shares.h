// SPDX-License-Identifier: Apache-2.0
//
// The solver of shares (placement/share_solver.h) on the device, so that all ranks and the CPU get
// the same bits. placement/replica_graph.h explains the graph.
//
// It is serial, and small: a step for each replica of an expert that has several, one to three
// times. Work space is the block's shared memory.
//
// Thread safety: prepare by all threads of a block, solve by one of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/lane.h"
#include "placement/share_solver.h"

namespace wideep::cuda {

// balance::ReplicaGraph on the device.
struct DeviceReplicaGraph {
  int32_t num_ranks = 0;
  int32_t num_spread = 0;
  int32_t num_links = 0;
  int32_t num_steps = 0;
  int32_t num_cycles = 0;
  int32_t num_extra = 0;                  // links; 0: one pass is exact
  const int32_t* spread = nullptr;        // [num_spread] expert ids
  const int32_t* link_spread = nullptr;   // [num_links]
  const int32_t* link_rank = nullptr;     // [num_links]
  const int32_t* rank_start = nullptr;    // [num_ranks + 1] into links
  const int32_t* spread_links = nullptr;  // by spread expert
  const int32_t* spread_start = nullptr;  // [num_spread + 1] into spread_links
  const int32_t* alone = nullptr;         // by rank
  const int32_t* alone_start = nullptr;   // [num_ranks + 1] into alone
  const int32_t* steps = nullptr;         // [num_steps, 3] kind, rank, link
  const int32_t* cycles = nullptr;        // [steps of cycles, 3] rank, near, far
  const int32_t* cycle_start = nullptr;   // [num_cycles + 1] into cycles
  const int32_t* extra_links = nullptr;   // [num_extra]
  const double* equal = nullptr;          // [num_links]

  // Of the solver's work space.
  WIDEEP_HOST_DEVICE size_t work_bytes() const {
    return balance::share_work_bytes(static_cast<size_t>(num_ranks),
                                     static_cast<size_t>(num_spread),
                                     static_cast<size_t>(num_links));
  }
};

// The graph as balance::ShareSolver reads it.
template <typename Lane>
class GraphOnDevice {
 public:
  WIDEEP_DEVICE GraphOnDevice(Lane& lane, const DeviceReplicaGraph& graph)
      : lane_(lane), graph_(graph) {}

  WIDEEP_DEVICE int num_ranks() const { return graph_.num_ranks; }
  WIDEEP_DEVICE int num_spread() const { return graph_.num_spread; }
  WIDEEP_DEVICE int num_links() const { return graph_.num_links; }
  WIDEEP_DEVICE int num_steps() const { return graph_.num_steps; }
  WIDEEP_DEVICE int num_cycles() const { return graph_.num_cycles; }
  WIDEEP_DEVICE int num_extra() const { return graph_.num_extra; }
  WIDEEP_DEVICE int spread(int i) { return lane_.load(graph_.spread + i); }
  WIDEEP_DEVICE int alone(int i) { return lane_.load(graph_.alone + i); }
  WIDEEP_DEVICE int alone_start(int rank) { return lane_.load(graph_.alone_start + rank); }
  WIDEEP_DEVICE int rank_start(int rank) { return lane_.load(graph_.rank_start + rank); }
  WIDEEP_DEVICE int spread_links(int k) { return lane_.load(graph_.spread_links + k); }
  WIDEEP_DEVICE int spread_start(int spread) { return lane_.load(graph_.spread_start + spread); }
  WIDEEP_DEVICE int link_spread(int link) { return lane_.load(graph_.link_spread + link); }
  WIDEEP_DEVICE int link_rank(int link) { return lane_.load(graph_.link_rank + link); }
  WIDEEP_DEVICE double equal(int link) { return lane_.load(graph_.equal + link); }
  WIDEEP_DEVICE int extra_link(int i) { return lane_.load(graph_.extra_links + i); }
  WIDEEP_DEVICE int step_kind(int i) { return lane_.load(graph_.steps + 3 * i); }
  WIDEEP_DEVICE int step_rank(int i) { return lane_.load(graph_.steps + 3 * i + 1); }
  WIDEEP_DEVICE int step_link(int i) { return lane_.load(graph_.steps + 3 * i + 2); }
  WIDEEP_DEVICE int cycle_start(int i) { return lane_.load(graph_.cycle_start + i); }
  WIDEEP_DEVICE int cycle_rank(int i) { return lane_.load(graph_.cycles + 3 * i); }
  WIDEEP_DEVICE int cycle_near(int i) { return lane_.load(graph_.cycles + 3 * i + 1); }
  WIDEEP_DEVICE int cycle_far(int i) { return lane_.load(graph_.cycles + 3 * i + 2); }

  // Shared memory has no room for marks of experts; a second visit finds their ranks reached.
  WIDEEP_DEVICE bool is_first_visit(int, int32_t) { return true; }
  WIDEEP_DEVICE void count(int) {}
  WIDEEP_DEVICE void count_pass() {}
  WIDEEP_DEVICE void found_bottleneck(const int32_t*, int) {}

 private:
  Lane& lane_;
  const DeviceReplicaGraph& graph_;
};

template <typename Lane>
using DeviceShareSolver = balance::ShareSolver<Lane, GraphOnDevice<Lane>>;

}  // namespace wideep::cuda
