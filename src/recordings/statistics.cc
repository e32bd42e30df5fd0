// SPDX-License-Identifier: Apache-2.0
#include "recordings/statistics.h"

#include <fmt/format.h>

namespace wideep::recordings {

size_t ExpertStatistics::offset(int iteration_idx, int layer_idx, int rank) const {
  const auto iteration = static_cast<size_t>(iteration_idx);
  const auto layer = static_cast<size_t>(layer_idx);
  const auto experts = static_cast<size_t>(num_experts);
  return ((iteration * layers.size() + layer) * static_cast<size_t>(ep_size) +
          static_cast<size_t>(rank)) *
         experts;
}

std::span<const int64_t> ExpertStatistics::row(int iteration_idx, int layer_idx, int rank) const {
  return std::span(counts).subspan(offset(iteration_idx, layer_idx, rank),
                                   static_cast<size_t>(num_experts));
}

std::span<int64_t> ExpertStatistics::row(int iteration_idx, int layer_idx, int rank) {
  return std::span(counts).subspan(offset(iteration_idx, layer_idx, rank),
                                   static_cast<size_t>(num_experts));
}

std::vector<int64_t> ExpertStatistics::iteration_load(int iteration_idx, int layer_idx) const {
  std::vector<int64_t> load(static_cast<size_t>(num_experts), 0);
  for (int rank = 0; rank < ep_size; ++rank) {
    const std::span<const int64_t> tokens = row(iteration_idx, layer_idx, rank);
    for (size_t expert = 0; expert < load.size(); ++expert) load[expert] += tokens[expert];
  }
  return load;
}

std::vector<int64_t> ExpertStatistics::layer_load(int layer_idx) const {
  std::vector<int64_t> load(static_cast<size_t>(num_experts), 0);
  for (int iteration = 0; iteration < num_iterations(); ++iteration) {
    const std::vector<int64_t> tokens = iteration_load(iteration, layer_idx);
    for (size_t expert = 0; expert < load.size(); ++expert) load[expert] += tokens[expert];
  }
  return load;
}

Result<ExpertStatistics> select_iterations(const ExpertStatistics& statistics,
                                           std::optional<int> start, std::optional<int> stop) {
  const int first = start.value_or(statistics.iter_start);
  const int last = stop.value_or(statistics.iter_stop);
  if (first < statistics.iter_start || last > statistics.iter_stop || first >= last) {
    return invalid_input(fmt::format(
        "iterations {} to {} (exclusive): expected a non-empty range within the recorded {} to {}",
        first, last, statistics.iter_start, statistics.iter_stop));
  }
  ExpertStatistics selected = statistics;
  selected.iter_start = first;
  selected.iter_stop = last;
  const auto per_iteration = static_cast<std::ptrdiff_t>(
      statistics.counts.size() / static_cast<size_t>(statistics.num_iterations()));
  const auto begin = statistics.counts.begin() + (first - statistics.iter_start) * per_iteration;
  selected.counts.assign(begin, begin + (last - first) * per_iteration);
  return selected;
}

}  // namespace wideep::recordings
