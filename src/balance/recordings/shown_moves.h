// SPDX-License-Identifier: Apache-2.0
//
// The moves of experts in a routing log, for pictures: what the ranks of a layer sent each other
// before a move, during it (decided, while weights are copied), and after it.
//
// Thread safety: pure functions. REQUIRES: check_routing_log(log) is ok.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "recordings/routing_log.h"

namespace wideep::recordings {

struct ShownMove {
  size_t layer_idx = 0;
  // The steps of one decision count as one move: from the decision to the last step.
  int64_t decided = 0;   // the last iteration before it
  int64_t switched = 0;  // the first iteration after it
  int64_t moves = 0;     // experts copied
  // Before, during and after. Iterations with another move of the layer are left out.
  struct Phase {
    int64_t first = 0, last = -1;            // iterations; last < first: there is none
    int64_t num_recorded = 0;                // of these
    std::vector<std::vector<int64_t>> sent;  // [R][R] pairs, summed over them
  };
  std::array<Phase, 3> phases;
};

// The `most` moves with the most experts, in order of `switched`; before and after have at most
// `around` iterations.
std::vector<ShownMove> shown_moves(const RoutingLog& log, size_t max, int64_t around);

}  // namespace wideep::recordings
