// SPDX-License-Identifier: Apache-2.0
//
// The load of recorded statistics, in the forms that planners take.
//
// Thread safety: pure functions.
#pragma once

#include "plan/model_plan.h"
#include "plan/windowed_load.h"
#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

// Each layer's load summed over iterations and ranks.
balance::ModelLoad model_load(const ExpertStatistics& statistics);

inline constexpr int kMaxWindows = 32;

// Sums every `iterations` consecutive iterations into a window, over all ranks. The remaining
// iterations at the end are a window too if they are at least half as many; else they belong to the
// last one. 0: one iteration per window, or the fewest that make at most kMaxWindows windows.
// Errors (invalid input): `iterations` < 0 or more than recorded.
Result<balance::WindowedLoad> windowed_load(const ExpertStatistics& statistics, int iterations);

}  // namespace wideep::recordings
