// SPDX-License-Identifier: Apache-2.0
//
// How evenly a placement would have spread the recorded load: TRT's table of load statistics.
//
// Each replica carries an equal share of its expert's tokens. For every iteration the loads of the
// ranks (or of the slots) give
//   mean, std (unbiased: divided by n − 1; 0 for n = 1) and imbalance ratio = max / mean − 1,
// and each of the three is averaged over the iterations. An iteration without tokens counts as
// balanced, ratio 0. Ratios are fractions, not per cent. Ranks and slots that hold no expert (of
// placements with unused slots) do not count.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "balance/statistics.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::balance {

enum class LoadBy { kRank, kSlot };

struct LoadSummary {
  double mean = 0;  // tokens
  double std = 0;   // tokens
  double imbalance_ratio = 0;
};

struct LoadReport {
  struct Row {
    int layer = 0;
    LoadSummary summary;
  };
  std::vector<Row> rows;  // layers ascending
  LoadSummary average;    // over the rows
};

// expert_load: [E] tokens. Returns the tokens of each slot, [S]; 0 for an unused one.
std::vector<double> slot_loads(const Placement& placement, std::span<const int64_t> expert_load);
// ... of each rank, [R].
std::vector<double> rank_loads(const Placement& placement, std::span<const int64_t> expert_load);

// loads: [n], n ≥ 1.
LoadSummary summarize_loads(std::span<const double> loads);

// Errors (invalid input): a layer of the statistics has no placement, or one for another number of
// experts.
Result<LoadReport> report_load(const ExpertStatistics& statistics, const ModelPlacement& placement,
                               LoadBy by);

// Every layer of the statistics on the linear placement. Errors: as linear_placement.
Result<ModelPlacement> linear_model_placement(const ExpertStatistics& statistics, int ep_size);

// The table, beginning with the line "Load statistics:", for a person to read.
std::string load_table(const LoadReport& report);

}  // namespace wideep::balance
