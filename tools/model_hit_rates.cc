// SPDX-License-Identifier: Apache-2.0
#include "model_hit_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "judged_requests.h"

namespace wideep::tools {
namespace {

using advise::HitRateCurve;

std::vector<int> budgets_of(int num_layers, int num_experts) {
  std::vector<int> budgets;
  for (const double share : advise::curve_shares()) {
    budgets.push_back(static_cast<int>(std::lround(share * num_layers * num_experts)));
  }
  return budgets;
}

template <typename Rate>
HitRateCurve curve_of(std::string source, const std::vector<residency::BudgetHits>& judged,
                      int num_records, Rate rate) {
  HitRateCurve curve{.source = std::move(source), .points = {}};
  for (const residency::BudgetHits& hits : judged) {
    const double share = static_cast<double>(hits.num_records) / num_records;
    if (share > 0.0 && share < 1.0) curve.points.push_back({share, rate(hits)});
  }
  return curve;
}

Result<HitRateCurve> curve_of_trace(const StatisticsOptions& options, const std::string& holdout,
                                    int tokens) {
  WIDEEP_TRY_ASSIGN(const recordings::TraceShape shape, trace_shape(options.trace, options.path));
  WIDEEP_TRY_ASSIGN(const online::DividedTrace trace, read_divided_ids(options, holdout, shape));
  const size_t requests = std::min(trace.earlier.requests.size(), trace.later.requests.size());
  const int at_once = static_cast<int>(std::min(requests, static_cast<size_t>(tokens)));
  const auto judged =
      judge_requests(trace, {.domains = {}, .in_flight = at_once, .iteration_tokens = at_once},
                     budgets_of(shape.num_layers, shape.num_experts));
  return curve_of(fmt::format("{}, later requests, {} at once", options.path, at_once), judged,
                  shape.num_layers * shape.num_experts,
                  [](const residency::BudgetHits& hits) { return hits.wideep->rate(); });
}

}  // namespace

Result<advise::HitRates> model_hit_rates(const StatisticsOptions& options,
                                         const std::string& holdout, const Loads& loads,
                                         int tokens) {
  if (!loads.is_known) return advise::recorded_hit_rates(tokens);
  if (is_trace(options.path)) {
    WIDEEP_TRY_ASSIGN(HitRateCurve curve, curve_of_trace(options, holdout, tokens));
    return advise::HitRates{.expected = std::move(curve), .upper = {}};
  }
  const auto num_layers = static_cast<int>(loads.judged.layers.size());
  const auto judged = residency::judge_counts(loads.planned, loads.judged,
                                              budgets_of(num_layers, loads.judged.num_experts));
  return advise::HitRates{
      .expected = curve_of(fmt::format("{}, the experts that were chosen most", options.path),
                           judged, num_layers * loads.judged.num_experts,
                           [](const residency::BudgetHits& hits) { return hits.fixed.rate(); }),
      .upper = {}};
}

}  // namespace wideep::tools
