// SPDX-License-Identifier: Apache-2.0
//
// Decides whether imbalance between ranks matters, from runs of the same requests with the model's
// router and with one that routes tokens evenly to all ranks, in turn.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "measure/serving/throughput_run.h"

namespace wideep::measure {

// Figures of one run, or medians over runs.
struct RoutingFigures {
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;
  double tokens_per_second = 0.0;  // generated tokens, wall time
  double imbalance_ratio = 0.0;
};
RoutingFigures figures_of(const ThroughputRun& run);

struct RoutingPair {
  RoutingFigures learned;
  RoutingFigures perfect;
};

struct RoutingVerdict {
  RoutingPair medians;
  double gain = 0.0;  // median over pairs of learned ÷ perfect critical path, minus 1
  double low = 0.0;
  double high = 0.0;
  bool imbalance_matters = false;  // gain > kGainThatMatters

  std::string text() const;  // one line
};
// The threshold of TensorRT-LLM's guide to wide expert parallelism.
inline constexpr double kGainThatMatters = 0.10;

// REQUIRES: at least one pair; critical paths above 0.
RoutingVerdict judge_routing(const std::vector<RoutingPair>& pairs);

}  // namespace wideep::measure
