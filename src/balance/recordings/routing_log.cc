// SPDX-License-Identifier: Apache-2.0
//
// Every check that a reader of logs needs, in one place and before any use: sizes are limited
// before they are multiplied, sums are kept within what a double holds exactly, and what is told
// twice (by rank and by expert) must agree. Writer and reader both call it, so no log is written
// that cannot be read.
#include "recordings/routing_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/try.h"
#include "wideep/placement.h"

namespace wideep::recordings {
namespace {

// Larger than any known model or cluster. A reader multiplies these sizes with one another, so a
// wrong file must not choose them freely.
constexpr int kMaxRanks = 1 << 12;
constexpr int kMaxExperts = 1 << 16;
constexpr int kMaxTopK = 1 << 10;
constexpr int kMaxLayer = 1 << 16;
constexpr int64_t kMaxTokens = int64_t{1} << 53;  // JSON numbers are doubles, exact up to here

Status wrong(const std::string& where, const std::string& expected, auto found) {
  return invalid_input(fmt::format("{}: expected {}, found {}", where, expected, found));
}

Status check_range(const std::string& key, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return wrong(key, fmt::format("an integer from {} to {}", min, max), value);
}

Status check_size(const std::string& where, size_t found, size_t expected, const char* of_what) {
  if (found == expected) return {};
  return wrong(where, fmt::format("a list of {} ({})", expected, of_what), found);
}

// Bounded, so that sums of times stay finite: 2^53 µs are 285 years.
Status check_time(const std::string& where, double value) {
  if (!std::isfinite(value) || value < 0) {
    return wrong(where, "a finite number of at least 0", value);
  }
  if (value <= static_cast<double>(kMaxTokens)) return {};
  return wrong(where, "a number of at most 2^53", value);
}

// Adds a number that has been checked. A reader sums it over the whole log: the sum must be exact,
// too.
Status add_to_sum(const std::string& where, int64_t value, int64_t* sum) {
  *sum += value;
  if (*sum <= kMaxTokens) return {};
  return wrong(where, "a sum up to here of at most 2^53", *sum);
}

Status check_shape(const RoutingLog& log) {
  WIDEEP_TRY(check_range("ep_size", log.ep_size, 1, kMaxRanks));
  WIDEEP_TRY(check_range("num_experts", log.num_experts, 1, kMaxExperts));
  WIDEEP_TRY(check_range("num_slots", log.num_slots, log.num_experts, balance::kMaxSlots));
  WIDEEP_TRY(check_range("top_k", log.top_k, 1, std::min(kMaxTopK, log.num_experts)));
  if (log.num_slots % log.ep_size == 0) return {};
  return wrong("num_slots", fmt::format("a multiple of ep_size {}", log.ep_size), log.num_slots);
}

Status check_layers(const std::vector<int>& layers) {
  if (layers.empty()) return wrong("layers", "at least one MoE layer", "none");
  int at_least = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < at_least || layers[i] > kMaxLayer) {
      return wrong(fmt::format("layers[{}]", i),
                   fmt::format("an index from {} to {}, ascending", at_least, kMaxLayer),
                   layers[i]);
    }
    at_least = layers[i] + 1;
  }
  return {};
}

template <typename T>
Status check_row(const std::string& where, const std::vector<T>& row, int size,
                 const char* of_what) {
  WIDEEP_TRY(check_size(where, row.size(), static_cast<size_t>(size), of_what));
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] < 0 || row[i] > kMaxTokens) {
      return wrong(fmt::format("{}[{}]", where, i), "a count from 0 to 2^53", row[i]);
    }
  }
  return {};
}

int64_t sum(const std::vector<int32_t>& row) {
  return std::accumulate(row.begin(), row.end(), int64_t{0});
}

// `sent` and `counts` describe the same pairs, by receiving rank and by expert, so their sums must
// agree.
Status check_layer(const std::string& where, const RoutingLog::Iteration& iteration, size_t layer,
                   const RoutingLog& log) {
  const auto& sent = iteration.sent[layer];
  const auto& counts = iteration.counts[layer];
  const size_t ranks = static_cast<size_t>(log.ep_size);
  WIDEEP_TRY(check_size(fmt::format("{}.sent[{}]", where, layer), sent.size(), ranks, "ep_size"));
  WIDEEP_TRY(
      check_size(fmt::format("{}.counts[{}]", where, layer), counts.size(), ranks, "ep_size"));
  for (size_t rank = 0; rank < ranks; ++rank) {
    const std::string sent_where = fmt::format("{}.sent[{}][{}]", where, layer, rank);
    const std::string counts_where = fmt::format("{}.counts[{}][{}]", where, layer, rank);
    WIDEEP_TRY(check_row(sent_where, sent[rank], log.ep_size, "ep_size"));
    WIDEEP_TRY(check_row(counts_where, counts[rank], log.num_experts, "num_experts"));
    if (sum(sent[rank]) != sum(counts[rank])) {
      return wrong(sent_where,
                   fmt::format("the sum {} of {} (both count the pairs that this rank sent)",
                               sum(counts[rank]), counts_where),
                   sum(sent[rank]));
    }
  }
  return {};
}

Status check_iteration(const std::string& where, const RoutingLog::Iteration& iteration,
                       const RoutingLog& log) {
  const size_t layers = log.layers.size();
  WIDEEP_TRY(check_range(where + ".prompt_tokens", iteration.prompt_tokens, 0, kMaxTokens));
  WIDEEP_TRY(check_range(where + ".generated_tokens", iteration.generated_tokens, 0, kMaxTokens));
  WIDEEP_TRY(check_size(where + ".sent", iteration.sent.size(), layers, "layers"));
  WIDEEP_TRY(check_size(where + ".counts", iteration.counts.size(), layers, "layers"));
  WIDEEP_TRY(
      check_size(where + ".critical_path_us", iteration.critical_path_us.size(), layers, "layers"));
  for (size_t layer = 0; layer < layers; ++layer) {
    WIDEEP_TRY(check_layer(where, iteration, layer, log));
    WIDEEP_TRY(check_time(fmt::format("{}.critical_path_us[{}]", where, layer),
                          iteration.critical_path_us[layer]));
  }
  return {};
}

Status check_iterations(const RoutingLog& log) {
  if (log.iterations.empty()) return wrong("iterations", "at least one iteration", "none");
  int64_t at_least = 0;  // 64 bits: may be the largest int + 1
  int64_t prompt_tokens = 0, generated_tokens = 0;
  for (size_t i = 0; i < log.iterations.size(); ++i) {
    const std::string where = fmt::format("iterations[{}]", i);
    const int iteration = log.iterations[i].iteration;
    if (iteration < at_least) {
      return wrong(where + ".iteration", fmt::format("at least {}, ascending", at_least),
                   iteration);
    }
    at_least = int64_t{iteration} + 1;
    const RoutingLog::Iteration& each = log.iterations[i];
    WIDEEP_TRY(check_iteration(where, each, log));
    WIDEEP_TRY(add_to_sum(where + ".prompt_tokens", each.prompt_tokens, &prompt_tokens));
    WIDEEP_TRY(add_to_sum(where + ".generated_tokens", each.generated_tokens, &generated_tokens));
  }
  return {};
}

Status check_layer_updates(const RoutingLog& log) {
  int64_t at_least = 0, moves = 0;
  for (size_t i = 0; i < log.layer_updates.size(); ++i) {
    const RoutingLog::LayerUpdate& update = log.layer_updates[i];
    const std::string where = fmt::format("layer_updates[{}]", i);
    if (!std::ranges::binary_search(log.layers, update.layer)) {
      return wrong(where + ".layer", "one of `layers`", update.layer);
    }
    WIDEEP_TRY(check_range(where + ".decided", update.decided, 0, kMaxTokens));
    WIDEEP_TRY(check_range(where + ".switched", update.switched,
                           std::max(at_least, update.decided + 1), kMaxTokens));
    WIDEEP_TRY(check_range(where + ".moves", update.moves, 0, kMaxTokens));
    WIDEEP_TRY(add_to_sum(where + ".moves", update.moves, &moves));
    at_least = update.switched;
  }
  return {};
}

Status check_requests(const RoutingLog& log) {
  WIDEEP_TRY(
      check_size("request_counts", log.request_counts.size(), log.requests.size(), "requests"));
  for (size_t request = 0; request < log.request_counts.size(); ++request) {
    const auto& layers = log.request_counts[request];
    const std::string where = fmt::format("request_counts[{}]", request);
    WIDEEP_TRY(check_size(where, layers.size(), log.layers.size(), "layers"));
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      WIDEEP_TRY(check_row(fmt::format("{}[{}]", where, layer), layers[layer], log.num_experts,
                           "num_experts"));
    }
  }
  return {};
}

}  // namespace

Status check_routing_log(const RoutingLog& log) {
  WIDEEP_TRY(check_shape(log));
  WIDEEP_TRY(check_layers(log.layers));
  WIDEEP_TRY(check_time("tokens_per_second", log.tokens_per_second));
  WIDEEP_TRY(check_time("critical_path_ms", log.critical_path_ms));
  WIDEEP_TRY(check_time("wall_ms", log.wall_ms));
  WIDEEP_TRY(check_iterations(log));
  WIDEEP_TRY(check_layer_updates(log));
  return check_requests(log);
}

}  // namespace wideep::recordings
