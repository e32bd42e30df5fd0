// SPDX-License-Identifier: Apache-2.0
#include "recordings/pair_counts.h"

#include <fmt/format.h>

#include <numeric>

#include "base/try.h"

namespace wideep::recordings {
namespace {

constexpr int64_t kMaxCounts = int64_t{1} << 27;  // of 8 bytes: 1 GiB

Result<PairCounts> empty_counts(const std::string& path, const TraceShape& shape) {
  const int64_t matrix = int64_t{shape.num_experts} * shape.num_experts;
  // Divided, not multiplied: the product could overflow.
  if (matrix > kMaxCounts / shape.num_layers) {
    return invalid_input(fmt::format(
        "{}: pairs of {} experts in {} layers exceed {} counts, expected fewer experts or layers",
        path, shape.num_experts, shape.num_layers, kMaxCounts));
  }
  PairCounts pairs;
  pairs.num_experts = shape.num_experts;
  pairs.layers.resize(static_cast<size_t>(shape.num_layers));
  std::iota(pairs.layers.begin(), pairs.layers.end(), shape.first_layer);
  pairs.counts.resize(pairs.layers.size() * static_cast<size_t>(matrix));
  return pairs;
}

}  // namespace

std::span<const int64_t> PairCounts::row(int layer_idx, int expert) const {
  const auto experts = static_cast<size_t>(num_experts);
  const size_t row_idx = static_cast<size_t>(layer_idx) * experts + static_cast<size_t>(expert);
  return std::span(counts).subspan(row_idx * experts, experts);
}

std::span<const int64_t> PairCounts::matrix(int layer_idx) const {
  const auto experts = static_cast<size_t>(num_experts);
  return std::span(counts).subspan(static_cast<size_t>(layer_idx) * experts * experts,
                                   experts * experts);
}

Result<PairCounts> count_pairs(const std::string& path, const TraceShape& shape) {
  return count_pairs(TracePart{.path = path, .shape = shape});
}

Result<PairCounts> count_pairs(const TracePart& trace) {
  WIDEEP_TRY(check_trace_shape(trace.shape).at(trace.path));
  WIDEEP_TRY_ASSIGN(PairCounts pairs, empty_counts(trace.path, trace.shape));
  const auto experts = static_cast<size_t>(trace.shape.num_experts);
  const auto count = [&](const TokenChoice& choice) {
    if (!trace.contains(choice.token)) return;
    // Called once per token and layer: count each token in its first layer.
    if (choice.layer_idx == 0) ++pairs.num_tokens;
    int64_t* matrix =
        pairs.counts.data() + static_cast<size_t>(choice.layer_idx) * experts * experts;
    for (uint16_t a : choice.experts) {
      for (uint16_t b : choice.experts) {
        if (a != b) ++matrix[a * experts + b];
      }
    }
  };
  WIDEEP_TRY(visit_trace(trace.path, trace.shape, count).status());
  return pairs;
}

}  // namespace wideep::recordings
