// SPDX-License-Identifier: Apache-2.0
//
// The spread of plans over the tokens of a recorded trace (token_spread.h).
//
//   WIDEEP_TRY_ASSIGN(auto spreads, measure_spread({path, shape}, plan));
//   spreads[0].ranks_by_shares;
//
// Thread safety: pure functions of the file.
#pragma once

#include <vector>

#include "balance/assessment.h"
#include "balance/model_plan.h"
#include "balance/token_spread.h"
#include "recordings/token_trace.h"
#include "wideep/status.h"

namespace wideep::recordings {

// Of every layer of the trace, in order. REQUIRES: the plan has them, for the trace's experts.
// Errors: as visit_trace. All 0 where the part has no token.
Result<std::vector<balance::Spread>> measure_spread(const TracePart& trace,
                                                    const balance::PlannedModel& plan);

// The spread of the plan over tokens: of those planned on, and of those held out (null: none).
// REQUIRES: the traces have the layers that were assessed. Errors: as measure_spread.
Status add_spread(const TracePart& planned_on, const TracePart* held_out,
                  const balance::PlannedModel& plan, balance::Assessment* assessment);

}  // namespace wideep::recordings
