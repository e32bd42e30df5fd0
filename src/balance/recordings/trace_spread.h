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

#include "placement/token_spread.h"
#include "plan/assessment.h"
#include "plan/model_plan.h"
#include "recordings/token_trace.h"
#include "wideep/status.h"

namespace wideep::recordings {

// The spread of every layer of the trace, in order; all 0 if the part has no token. num_nodes: that
// the ranks are on. REQUIRES: the plan has these layers, for the trace's number of experts. Errors:
// as visit_trace.
Result<std::vector<balance::Spread>> measure_spread(const TracePart& trace,
                                                    const balance::PlannedModel& plan,
                                                    int num_nodes = 1);

// Adds the plan's spread to the assessment: over the tokens that it was planned on, and over the
// held-out tokens (null: none). REQUIRES: the traces have the assessed layers. Errors: as
// measure_spread.
Status add_spread(const TracePart& planned_on, const TracePart* held_out,
                  const balance::PlannedModel& plan, int num_nodes,
                  balance::Assessment* assessment);

}  // namespace wideep::recordings
