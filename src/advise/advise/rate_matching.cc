// SPDX-License-Identifier: Apache-2.0
#include "advise/rate_matching.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace wideep::advise {
namespace {

// Servers more for less than that are not worth the ranks: predictions are further off.
constexpr double kNearBest = 0.98;

ServerRatio ratio_of(const ServerRate& prefill, const ServerRate& generation, int num_prefill,
                     int num_generation) {
  return {
      .prefill = num_prefill,
      .generation = num_generation,
      .requests = std::min(num_prefill * prefill.requests, num_generation * generation.requests),
      .ranks = num_prefill * prefill.ranks + num_generation * generation.ranks};
}

// The fewest servers of each kind that carry the rate.
std::optional<ServerRatio> carrying(const ServerRate& prefill, const ServerRate& generation,
                                    const RatioLimits& limits) {
  const double num_prefill = std::max(1.0, std::ceil(*limits.rate / prefill.requests));
  const double num_generation = std::max(1.0, std::ceil(*limits.rate / generation.requests));
  if (num_prefill > limits.max_servers) return {};
  if (num_generation > std::min(limits.max_servers, limits.max_generation)) return {};
  const ServerRatio ratio = ratio_of(prefill, generation, static_cast<int>(num_prefill),
                                     static_cast<int>(num_generation));
  if (ratio.ranks > limits.max_ranks) return {};
  return ratio;
}

}  // namespace

std::optional<ServerRatio> match_rates(const ServerRate& prefill, const ServerRate& generation,
                                       const RatioLimits& limits) {
  if (limits.rate) return carrying(prefill, generation, limits);
  std::vector<ServerRatio> ratios;
  double best = 0.0;
  for (int num_prefill = 1; num_prefill <= limits.max_servers; ++num_prefill) {
    const int room = (limits.max_ranks - num_prefill * prefill.ranks) / generation.ranks;
    const int most = std::min({limits.max_servers, limits.max_generation, room});
    if (most < 1) break;
    // Beside a number of one kind the best of the other is one of the two around the exact one.
    const double exact = num_prefill * prefill.requests / generation.requests;
    for (const double near : {std::floor(exact), std::ceil(exact)}) {
      const int num_generation = static_cast<int>(std::clamp(near, 1.0, static_cast<double>(most)));
      ratios.push_back(ratio_of(prefill, generation, num_prefill, num_generation));
      best = std::max(best, ratios.back().requests_per_rank());
    }
  }
  std::optional<ServerRatio> found;
  for (const ServerRatio& each : ratios) {
    if (each.requests_per_rank() < kNearBest * best) continue;
    if (!found || each.ranks < found->ranks) found = each;
  }
  return found;
}

double exact_requests_per_rank(const ServerRate& prefill, const ServerRate& generation) {
  return 1.0 / (prefill.ranks / prefill.requests + generation.ranks / generation.requests);
}

}  // namespace wideep::advise
