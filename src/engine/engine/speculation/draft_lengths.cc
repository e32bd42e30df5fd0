// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/draft_lengths.h"

#include <algorithm>
#include <tuple>

namespace wideep::engine {
namespace {

// A gain below this share is within what the estimates are wrong by: nothing is drafted.
constexpr double kMinGain = 0.02;
// Candidates after the best number so far that are looked at, and a share of the batch beside them.
// Gains that need more are not found; they are rare, since each further token pays less and costs
// about the same.
constexpr size_t kPatience = 16;

constexpr double kLikely = 0.7;

struct Candidate {
  double chance = 0;  // that it is right, and all before it
  int request = 0;
  int index = 0;
};

}  // namespace

DraftLengths choose_draft_lengths(std::span<const std::vector<double>> chances,
                                  const std::function<double(int)>& seconds) {
  std::vector<Candidate> candidates;
  for (size_t request = 0; request < chances.size(); ++request) {
    double chance = 1.0;
    for (size_t i = 0; i < chances[request].size(); ++i) {
      chance *= chances[request][i];
      candidates.push_back({chance, static_cast<int>(request), static_cast<int>(i)});
    }
  }
  // Within a request the chances fall, so that any first part of the order is a part of each draft.
  // The order is made as far as it is needed: a heap, of which the best one is on top.
  const auto is_worse = [](const Candidate& a, const Candidate& b) {
    return std::tuple(-a.chance, a.index, a.request) > std::tuple(-b.chance, b.index, b.request);
  };
  std::make_heap(candidates.begin(), candidates.end(), is_worse);
  const auto batch = static_cast<int>(chances.size());
  DraftLengths best{.lengths = std::vector<int>(chances.size()),
                    .expected_tokens = static_cast<double>(batch),
                    .expected_seconds = seconds(batch)};
  const double without = best.expected_tokens / best.expected_seconds;
  double max = without;
  double tokens = best.expected_tokens;
  std::vector<Candidate> order;  // those that were looked at
  size_t taken = 0;
  auto end = candidates.end();
  while (end != candidates.begin() && order.size() < taken + kPatience + chances.size() / 8) {
    std::pop_heap(candidates.begin(), end--, is_worse);
    order.push_back(*end);
    tokens += end->chance;
    const double time = seconds(batch + static_cast<int>(order.size()));
    if (tokens / time <= max) continue;
    max = tokens / time;
    best.expected_tokens = tokens;
    best.expected_seconds = time;
    taken = order.size();
  }
  if (max < without * (1.0 + kMinGain)) {
    best.expected_tokens = static_cast<double>(batch);
    best.expected_seconds = best.expected_tokens / without;
    return best;
  }
  for (size_t i = 0; i < taken; ++i) {
    ++best.lengths[static_cast<size_t>(order[i].request)];
  }
  return best;
}

DraftLengths likely_draft_lengths(std::span<const std::vector<double>> chances,
                                  const std::function<double(int)>& seconds) {
  DraftLengths likely{.expected_tokens = static_cast<double>(chances.size())};
  int tokens = static_cast<int>(chances.size());
  for (const std::vector<double>& of_request : chances) {
    double chance = 1.0;
    int length = 0;
    for (const double each : of_request) {
      chance *= each;
      if (chance < kLikely) break;
      likely.expected_tokens += chance;
      ++length;
    }
    likely.lengths.push_back(length);
    tokens += length;
  }
  likely.expected_seconds = seconds(tokens);
  return likely;
}

}  // namespace wideep::engine
