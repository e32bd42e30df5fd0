// SPDX-License-Identifier: Apache-2.0
//
// The load of recorded statistics, in the forms that planners take.
//
// Thread safety: pure functions.
#pragma once

#include "balance/model_plan.h"
#include "balance/windowed_load.h"
#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

// Each layer's load summed over iterations and ranks.
balance::ModelLoad model_load(const ExpertStatistics& statistics);

inline constexpr int kMostWindows = 32;

// Each `iterations` consecutive ones make a window, tokens summed over ranks. What is left at the
// end is a window too if it is at least half as long, else it belongs to the last one. 0 for
// `iterations`: one each, more only where that would make more than kMostWindows windows.
// Errors (invalid input): less than 0 or more than there are.
Result<balance::WindowedLoad> windowed_load(const ExpertStatistics& statistics, int iterations);

}  // namespace wideep::recordings
