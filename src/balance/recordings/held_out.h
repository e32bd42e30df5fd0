// SPDX-License-Identifier: Apache-2.0
//
// Divides statistics into an earlier part for planning and a later part for evaluating the plan: a
// placement made from past load serves future load.
//
// Thread safety: pure functions.
#pragma once

#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

struct HeldOut {
  ExpertStatistics earlier;  // to plan on
  ExpertStatistics later;    // to evaluate on
};

// Holds out the last `fraction` of the iterations, rounded, but at least one and never all. Errors
// (invalid input): a fraction that is not between 0 and 1; a single iteration.
Result<HeldOut> hold_out_last(const ExpertStatistics& statistics, double fraction);

// Checks that both statistics have the same number of experts and the same MoE layers. Errors
// (invalid input): another number of experts, or other layers, in `found`.
Status check_same_experts(const ExpertStatistics& expected, const ExpertStatistics& found);

}  // namespace wideep::recordings
