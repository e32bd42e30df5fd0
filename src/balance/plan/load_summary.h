// SPDX-License-Identifier: Apache-2.0
//
// How evenly tokens spread over ranks or slots: mean, standard deviation and imbalance ratio.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/placement.h"

namespace wideep::balance {

struct LoadSummary {
  double mean = 0;             // tokens
  double std = 0;              // tokens; unbiased: divided by n − 1; 0 for n = 1
  double imbalance_ratio = 0;  // max / mean − 1; 0 without tokens
};

// loads: [n], n ≥ 1.
LoadSummary summarize_loads(std::span<const double> loads);

// The tokens of each slot, [S], where replicas share the tokens of their expert, expert_load [E],
// equally; 0 for an unused slot.
std::vector<double> slot_loads(const Placement& placement, std::span<const int64_t> expert_load);
// The same of each rank, [R].
std::vector<double> rank_loads(const Placement& placement, std::span<const int64_t> expert_load);

}  // namespace wideep::balance
