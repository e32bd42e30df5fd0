// SPDX-License-Identifier: Apache-2.0
#include "base/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/printable.h"

namespace wideep::base {
namespace {

// Longer words are cut to this length, because the cost is quadratic and words come from user
// input.
constexpr size_t kMaxWordBytes = 256;

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  const size_t difference = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (difference > limit) return limit + 1;
  // Rows of the table of distances between the first letters of b (rows) and of a (columns).
  std::vector<size_t> before_last(a.size() + 1), last(a.size() + 1), row(a.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  size_t last_min = 0;
  for (size_t j = 1; j <= b.size(); ++j) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
      const size_t replaced = last[i - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[i] = std::min({replaced, last[i] + 1, row[i - 1] + 1});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[i] = std::min(row[i], before_last[i - 2] + 1);
    }
    // A row's values come from the two before it.
    const size_t min = std::ranges::min(row);
    if (min > limit && last_min >= limit) return limit + 1;
    last_min = min;
  }
  return std::min(row.back(), limit + 1);
}

std::optional<std::string> closest_word(std::string_view word,
                                        const std::vector<std::string>& candidates) {
  word = word.substr(0, kMaxWordBytes);
  size_t limit = std::max<size_t>(word.size() / 3, 1);
  const std::string* best = nullptr;
  for (const std::string& candidate : candidates) {
    const std::string_view head = std::string_view(candidate).substr(0, kMaxWordBytes);
    const size_t distance = edit_distance(word, head, limit);
    if (distance > limit) continue;
    best = &candidate;
    if (distance == 0) break;
    limit = distance - 1;  // from here on only a closer word counts
  }
  return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::optional<std::string> closest = closest_word(word, candidates);
  return closest ? fmt::format("; did you mean '{}'?", printable(*closest)) : "";
}

}  // namespace wideep::base
