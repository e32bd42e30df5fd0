// SPDX-License-Identifier: Apache-2.0
//
// One rank from start to end: it loads its experts, builds an engine as the plan prescribes, and
// runs it on the requests of its feed.
#pragma once

#include "group/seat.h"
#include "run/run.h"

namespace wideep::run {

// seat.messenger() sends RankEvents to the process that uses the ranks. Collective over all ranks.
// Errors: as weights::WeightLoader and engine::Engine::run.
Status run_rank(const Run& run, transport::Seat& seat);

}  // namespace wideep::run
