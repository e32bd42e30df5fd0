// SPDX-License-Identifier: Apache-2.0
//
// The layouts that the advisor weighs.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "advise/workload.h"
#include "cost/hardware.h"
#include "cost/layout.h"
#include "model/config/config.h"

namespace wideep::advise {

// Every combination of expert parallelism, slices of experts, stages, context parallelism,
// attention DP or TP, slots, formats and drafts that the model can be cut into, on at most
// choices.max_ranks ranks.
std::vector<cost::Layout> layouts_of(const cost::Hardware& hardware,
                                     const model::ModelConfig& config, const Choices& choices);

// The batch sizes that are weighed: 1, 2, 3, 4, 6, 8, … up to `max`, and `max`.
std::vector<int> batches_up_to(int max);

}  // namespace wideep::advise
