// SPDX-License-Identifier: Apache-2.0
//
// A routing log tells experts and receiving ranks, not slots. Slots follow from the placement of
// the run and the choice of replicas, which is made again here (ep/slot_choice.h) and held against
// the ranks of the log.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "recordings/routing_log.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::tools {

// Pairs (token, expert) of one layer, [iterations][R sending ranks][S slots].
using SlotPairs = std::vector<std::vector<std::vector<int64_t>>>;

// Of which iterations of the log, by index: [first, end); and how many nodes the run had, since
// tokens stay on their node if they can.
struct SlotQuestion {
  size_t first = 0, end = 0;
  int num_nodes = 1;
};

// REQUIRES: the placement has the log's layers, experts and slots; num_nodes divides the ranks.
// Errors (invalid input): the layer was updated while the run went on; the choice gives other ranks
// than the log has, so that the run had another placement, or chose otherwise.
Result<SlotPairs> slot_pairs(const recordings::RoutingLog& log,
                             const balance::ModelPlacement& placement, size_t layer_idx,
                             const SlotQuestion& question);

}  // namespace wideep::tools
