// SPDX-License-Identifier: Apache-2.0
//
// Sizes are checked once, by check_statistics(); row() checks again that it stays inside, because
// members are public and a wrong file must not become a read beyond the end.
#include "recordings/statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/try.h"

namespace wideep::recordings {
namespace {

Status check_statistics_shape(const ExpertStatistics& statistics) {
  if (statistics.num_experts < 1 || statistics.ep_size < 1 || statistics.num_iterations() < 1 ||
      statistics.iter_start < 0 || statistics.layers.empty()) {
    return invalid_input(fmt::format(
        "expected at least one expert, rank, iteration and layer, found {}, {}, {} to {}, {}",
        statistics.num_experts, statistics.ep_size, statistics.iter_start, statistics.iter_stop,
        statistics.layers.size()));
  }
  // Of two neighbours the second is the larger one.
  const auto falls = std::ranges::adjacent_find(statistics.layers, std::ranges::greater_equal());
  if (statistics.layers.front() < 0 || falls != statistics.layers.end()) {
    return invalid_input("expected layers from 0 on in ascending order, each once");
  }
  const auto expected = static_cast<size_t>(statistics.num_iterations()) *
                        statistics.layers.size() * static_cast<size_t>(statistics.ep_size) *
                        static_cast<size_t>(statistics.num_experts);
  if (statistics.counts.size() == expected) return {};
  return invalid_input(
      fmt::format("expected {} counts ({} iterations × {} layers × {} ranks × {} experts), found "
                  "{}",
                  expected, statistics.num_iterations(), statistics.layers.size(),
                  statistics.ep_size, statistics.num_experts, statistics.counts.size()));
}

}  // namespace

size_t ExpertStatistics::offset(int iteration_idx, int layer_idx, int rank) const {
  const auto iteration = static_cast<size_t>(iteration_idx);
  const auto layer = static_cast<size_t>(layer_idx);
  const auto experts = static_cast<size_t>(num_experts);
  return ((iteration * layers.size() + layer) * static_cast<size_t>(ep_size) +
          static_cast<size_t>(rank)) *
         experts;
}

// Statistics that claim more than they have must not be read beyond their end.
std::span<const int64_t> ExpertStatistics::row(int iteration_idx, int layer_idx, int rank) const {
  const auto experts = static_cast<size_t>(num_experts);
  const size_t first = offset(iteration_idx, layer_idx, rank);
  WIDEEP_CHECK(first + experts <= counts.size());
  return std::span(counts).subspan(first, experts);
}

std::span<int64_t> ExpertStatistics::row(int iteration_idx, int layer_idx, int rank) {
  const auto experts = static_cast<size_t>(num_experts);
  const size_t first = offset(iteration_idx, layer_idx, rank);
  WIDEEP_CHECK(first + experts <= counts.size());
  return std::span(counts).subspan(first, experts);
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

Status check_statistics(const ExpertStatistics& statistics) {
  WIDEEP_TRY(check_statistics_shape(statistics));
  int64_t total = 0;
  for (const int64_t tokens : statistics.counts) {
    if (tokens < 0) return invalid_input(fmt::format("expected counts ≥ 0, found {}", tokens));
    // Compared this way round, the sum cannot overflow.
    if (tokens > kMaxTokens - total) {
      return invalid_input(
          "the counts exceed 2^53, expected a smaller sum over all ranks and iterations; use fewer "
          "iterations");
    }
    total += tokens;
  }
  if (total > 0) return {};
  return invalid_input("every count is 0, expected at least one layer with tokens");
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
