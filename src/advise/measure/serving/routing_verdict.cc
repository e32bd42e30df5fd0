// SPDX-License-Identifier: Apache-2.0
#include "measure/serving/routing_verdict.h"

#include <fmt/format.h>

#include <cmath>

#include "base/percentiles.h"
#include "measure/serving/throughput_report.h"

namespace wideep::measure {
namespace {

template <typename Get>
double median(const std::vector<RoutingPair>& pairs, Get get) {
  std::vector<double> values;
  for (const RoutingPair& pair : pairs) values.push_back(get(pair));
  return base::percentiles_of(std::move(values)).median;
}

RoutingFigures medians(const std::vector<RoutingPair>& pairs, RoutingFigures RoutingPair::* which) {
  const auto of = [&](double RoutingFigures::* figure) {
    return median(pairs, [&](const RoutingPair& pair) { return pair.*which.*figure; });
  };
  return {.critical_path_ms = of(&RoutingFigures::critical_path_ms),
          .critical_path_experts_ms = of(&RoutingFigures::critical_path_experts_ms),
          .tokens_per_second = of(&RoutingFigures::tokens_per_second),
          .imbalance_ratio = of(&RoutingFigures::imbalance_ratio)};
}

}  // namespace

RoutingFigures figures_of(const ThroughputRun& run) {
  const ThroughputReport report = report_of(run.requests);
  return {.critical_path_ms = run.iterations.critical_path_ms,
          .critical_path_experts_ms = run.iterations.critical_path_experts_ms,
          .tokens_per_second = report.per_second(static_cast<double>(report.output_tokens)),
          .imbalance_ratio = run.iterations.imbalance_ratio};
}

RoutingVerdict judge_routing(const std::vector<RoutingPair>& pairs) {
  std::vector<double> gains;
  for (const RoutingPair& pair : pairs) {
    gains.push_back(pair.learned.critical_path_ms / pair.perfect.critical_path_ms - 1.0);
  }
  const base::Percentiles of = base::percentiles_of(std::move(gains));
  return {.medians = {.learned = medians(pairs, &RoutingPair::learned),
                      .perfect = medians(pairs, &RoutingPair::perfect)},
          .gain = of.median,
          .low = of.minimum,
          .high = of.maximum,
          .imbalance_matters = of.median > kGainThatMatters};
}

std::string RoutingVerdict::text() const {
  const std::string measured = fmt::format("perfect routing is {:.1f} % {} on the critical path",
                                           100 * std::abs(gain), gain < 0 ? "slower" : "faster");
  if (imbalance_matters) {
    return measured +
           ": over 10 %, so imbalance matters; balance experts (wideep balance plan, or "
           "layer_updates_per_iter)";
  }
  return measured + ": not over 10 %, so balancing would gain little";
}

}  // namespace wideep::measure
