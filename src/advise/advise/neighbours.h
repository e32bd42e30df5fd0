// SPDX-License-Identifier: Apache-2.0
//
// Layouts beside the recommended one, which show what each of its choices brings.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "advise/advise.h"

namespace wideep::advise {

struct Neighbour {
  std::string change;   // "EP 32 instead of 64"
  Candidate candidate;  // with the batch that is best within the limits, else the shortest TPOT
  bool meets = true;    // the limits
};

// Of the weighed layouts those that differ from the recommendation in one thing, by one step: ranks
// that share the experts (with as many slots of a rank beyond those that experts need, or nearly),
// slices, stages, context parallelism, attention, slots, drafts, or format. num_experts: of the
// model. REQUIRES: there is a recommendation.
std::vector<Neighbour> neighbours_of(const Advice& advice, const Workload& workload,
                                     int num_experts);

}  // namespace wideep::advise
