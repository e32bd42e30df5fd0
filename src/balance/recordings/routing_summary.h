// SPDX-License-Identifier: Apache-2.0
//
// A summary of a routing log: how unevenly the ranks received pairs (token, expert).
//
// Thread safety: pure functions. REQUIRES everywhere: check_routing_log(log) is ok.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "recordings/routing_log.h"

namespace wideep::recordings {

// Imbalance ratios, max / mean − 1 over ranks; 0 is perfect. An iteration without pairs has ratio
// 0.
struct RoutingImbalance {
  double average = 0;                // over all iterations, as `wideep balance report`
  std::optional<double> prompt;      // over the iterations with prompt tokens, if there are any
  std::optional<double> generation;  // over the other iterations, if there are any
  // Σ max / Σ mean − 1 over iterations: how much longer the experts take than if every iteration
  // were spread evenly. A small iteration weighs little.
  double weighted = 0;
};

struct RoutingSummary {
  std::vector<RoutingImbalance> layers;  // [L]
  RoutingImbalance mean;                 // over layers
  std::vector<double> critical_path_ms;  // [L] summed over iterations
  int64_t prompt_tokens = 0;             // summed over iterations
  int64_t generated_tokens = 0;
};

// Pairs that each rank received in one layer of one iteration, [R].
std::vector<int64_t> received_pairs(const RoutingLog::Iteration& iteration, size_t layer_idx);

RoutingSummary summarize_routing(const RoutingLog& log);

}  // namespace wideep::recordings
