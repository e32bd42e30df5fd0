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

// One row of the Levenshtein table from the row before it; returns the row's least value.
size_t next_row(std::string_view a, char b, std::vector<size_t>& row) {
  size_t diagonal = row[0]++;
  size_t min = row[0];
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t replaced = diagonal + (a[i] == b ? 0 : 1);
    diagonal = row[i + 1];
    row[i + 1] = std::min({replaced, diagonal + 1, row[i] + 1});
    min = std::min(min, row[i + 1]);
  }
  return min;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  const size_t difference = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (difference > limit) return limit + 1;
  std::vector<size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char c : b) {
    // The least value of a row never decreases from one row to the next.
    if (next_row(a, c, row) > limit) return limit + 1;
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
