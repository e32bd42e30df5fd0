// SPDX-License-Identifier: Apache-2.0
//
// How often experts would be in memory, for predictions of a model larger than it.
#pragma once

#include <string>

#include "advise/hit_rate_curve.h"
#include "simulate_inputs.h"
#include "statistics_options.h"
#include "wideep/status.h"

namespace wideep::tools {

// By the model's statistics (--stats): of a per-token trace those of wideep's policy, as many
// requests at once as an iteration has tokens, or as the trace has; of counts those of the experts
// that were chosen most before, as if tokens came one by one. Without statistics
// advise::recorded_hit_rates(). loads: read with the same options. Errors (invalid input): those of
// read_divided_ids.
Result<advise::HitRates> model_hit_rates(const StatisticsOptions& options,
                                         const std::string& holdout, const Loads& loads,
                                         int tokens);

}  // namespace wideep::tools
