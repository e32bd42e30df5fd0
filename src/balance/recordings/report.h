// SPDX-License-Identifier: Apache-2.0
//
// The load of ranks or slots if a placement had served the recorded load: TRT's table of load
// statistics.
//
// Each replica carries an equal share of its expert's tokens. In every iteration the loads of the
// ranks (or of the slots) give
//   mean, standard deviation and imbalance ratio (load_summary.h),
// and each of the three is averaged over the iterations. An iteration without tokens counts as
// balanced, ratio 0. Ratios are fractions, not per cent. Ranks and slots without an expert (of
// placements with unused slots) are left out.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "plan/load_summary.h"
#include "recordings/statistics.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::recordings {

enum class LoadBy { kRank, kSlot };

struct LoadReport {
  struct Row {
    int layer = 0;
    balance::LoadSummary summary;
  };
  std::vector<Row> rows;         // layers ascending
  balance::LoadSummary average;  // over the rows
};

// Errors (invalid input): a layer of the statistics has no placement, or one for another number of
// experts.
Result<LoadReport> report_load(const ExpertStatistics& statistics,
                               const balance::ModelPlacement& placement, LoadBy by);

// Of counts of slots: what the run did, with no placement. By slot, borrowed slots without tokens
// are left out. Errors (invalid input): counts of experts.
Result<LoadReport> report_slots(const ExpertStatistics& statistics, LoadBy by);

// Every layer of the statistics on the linear placement. Errors: as linear_placement.
Result<balance::ModelPlacement> linear_model_placement(const ExpertStatistics& statistics,
                                                       int ep_size);

// The report as a text table that begins with the line "Load statistics:".
std::string load_table(const LoadReport& report);

}  // namespace wideep::recordings
