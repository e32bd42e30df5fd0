// SPDX-License-Identifier: Apache-2.0
#include "command_line/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace wideep::command_line {
namespace {

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

// More mistakes than these, and the word is more likely to be another one.
size_t max_distance(size_t length) { return length <= 3 ? 1 : length <= 8 ? 2 : 3; }

}  // namespace

size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows of the table [from][to] of distances between beginnings: this one and the two before it.
  std::vector<size_t> before_last(to.size() + 1), last(to.size() + 1), row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const bool same = from[i - 1] == to[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[to.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> names) {
  constexpr size_t kMaxLength = 100;  // what is longer is no misspelt name: it may be a text
  constexpr size_t kMinBeginning = 4;
  const std::string_view bare = without_dashes(word);
  if (bare.empty() || bare.size() > kMaxLength) return "";
  // A word all of whose letters were wrong would be near to everything.
  size_t least = std::min(max_distance(bare.size()) + 1, bare.size());
  const std::string* found = nullptr;
  for (const std::string& name : names) {
    const std::string_view bare_name = without_dashes(name);
    if (bare_name.size() < 2) continue;  // one letter is no misspelt word
    const size_t distance = edit_distance(bare, bare_name);
    if (distance >= least) continue;
    least = distance;
    found = &name;
  }
  if (found != nullptr) return *found;
  if (bare.size() < kMinBeginning) return "";
  for (const std::string& name : names) {
    const bool begins = without_dashes(name).starts_with(bare);
    if (begins && (found == nullptr || name.size() < found->size())) found = &name;
  }
  return found == nullptr ? "" : *found;
}

}  // namespace wideep::command_line
