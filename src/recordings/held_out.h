// SPDX-License-Identifier: Apache-2.0
//
// Statistics to plan on and later statistics to judge the plan on: a placement is made from
// yesterday's load and serves tomorrow's.
//
// Thread safety: pure functions.
#pragma once

#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

struct HeldOut {
  ExpertStatistics earlier;  // to plan on
  ExpertStatistics later;    // to judge on
};

// Cuts the last `fraction` of the iterations off, rounded, but at least one and never all.
// Errors (invalid input): a fraction that is not between 0 and 1; a single iteration.
Result<HeldOut> hold_out_last(const ExpertStatistics& statistics, double fraction);

// Are these statistics of the same experts and MoE layers?
// Errors (invalid input): another number of experts, or other layers, in `found`.
Status check_same_experts(const ExpertStatistics& expected, const ExpertStatistics& found);

}  // namespace wideep::recordings
