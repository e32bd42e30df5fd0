// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/draft_lengths.h"

#include <algorithm>
#include <tuple>

namespace wideep::engine {
namespace {

// A gain below this share is within what the estimates are wrong by: nothing is drafted.
constexpr double kLeastGain = 0.02;

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
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(-a.chance, a.index, a.request) < std::tuple(-b.chance, b.index, b.request);
  });
  const auto batch = static_cast<int>(chances.size());
  DraftLengths best{.lengths = std::vector<int>(chances.size()),
                    .expected_tokens = static_cast<double>(batch),
                    .expected_seconds = seconds(batch)};
  const double without = best.expected_tokens / best.expected_seconds;
  double most = without * (1.0 + kLeastGain), tokens = best.expected_tokens;
  size_t taken = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    tokens += candidates[i].chance;
    const double time = seconds(batch + static_cast<int>(i) + 1);
    if (tokens / time <= most) continue;
    most = tokens / time;
    best.expected_tokens = tokens;
    best.expected_seconds = time;
    taken = i + 1;
  }
  for (size_t i = 0; i < taken; ++i) {
    ++best.lengths[static_cast<size_t>(candidates[i].request)];
  }
  return best;
}

}  // namespace wideep::engine
