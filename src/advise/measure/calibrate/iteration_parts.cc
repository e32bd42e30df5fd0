// SPDX-License-Identifier: Apache-2.0
#include "measure/calibrate/iteration_parts.h"

#include <algorithm>

#include "base/check.h"

namespace wideep::measure {

IterationParts parts_of(const std::vector<engine::IterationRecord>& ranks, double seconds,
                        int cores) {
  const bool in_turns = static_cast<int>(ranks.size()) > cores;
  const auto joined = [&](auto&& of_rank) {
    int64_t sum = 0, max = 0;
    for (const engine::IterationRecord& rank : ranks) {
      sum += of_rank(rank);
      max = std::max<int64_t>(max, of_rank(rank));
    }
    return 1e-9 * (in_turns ? static_cast<double>(sum) / cores : static_cast<double>(max));
  };
  IterationParts parts;
  for (size_t layer = 0; layer < ranks[0].layers.size(); ++layer) {
    parts.experts += joined([&](const auto& rank) { return rank.layers[layer].experts_cpu_ns; });
    parts.dense += joined([&](const auto& rank) { return rank.layers[layer].other_cpu_ns; });
  }
  parts.dense += joined([](const auto& rank) { return rank.tail_cpu_ns; });
  parts.exchange = seconds - parts.experts - parts.dense;
  return parts;
}

int64_t end_of(const std::vector<engine::IterationRecord>& ranks) {
  int64_t end = 0;
  for (const engine::IterationRecord& rank : ranks) end = std::max(end, rank.end_ns);
  return end;
}

double seconds_between(const run::Iteration& before, const run::Iteration& iteration) {
  return 1e-9 * static_cast<double>(end_of(iteration.ranks) - end_of(before.ranks));
}

double seconds_alone(const run::Iteration& iteration) {
  int64_t begin = 0;
  for (const engine::IterationRecord& rank : iteration.ranks) {
    begin = std::max(begin, rank.begin_ns);
  }
  return 1e-9 * static_cast<double>(end_of(iteration.ranks) - begin);
}

double quantile(std::vector<double> values, double share) {
  WIDEEP_CHECK(!values.empty());
  const auto at =
      values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace wideep::measure
