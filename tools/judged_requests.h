// SPDX-License-Identifier: Apache-2.0
//
// Hit rates (residency/hit_rates.h) on recorded requests: what comes before is learned from, what
// comes later is judged.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "online/request_stream.h"
#include "online/request_trace.h"
#include "residency/hit_rates.h"
#include "statistics_options.h"

namespace wideep::tools {

// The last part of the requests that --holdout judges, where it is not given.
inline constexpr double kHeldOutRequests = 0.5;

// A file of ids (--stats) in requests as long as answers are. holdout: a fraction of them, a second
// file, or "". Errors (invalid input): those of read_token_trace and hold_out_requests.
Result<online::DividedTrace> read_divided_ids(const StatisticsOptions& options,
                                              const std::string& holdout,
                                              const recordings::TraceShape& shape);

// With a line of progress. REQUIRES: both parts have as many requests as are decoded at once.
std::vector<residency::BudgetHits> judge_requests(const online::DividedTrace& trace,
                                                  const online::StreamOptions& options,
                                                  std::span<const int> budgets);

}  // namespace wideep::tools
