// SPDX-License-Identifier: Apache-2.0
//
// Pairs are collected first and counts are allocated at the end, when it is known how many there
// are: one line with a large id must not claim memory for all ids below it.
#include "recordings/statistics_csv_pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/try.h"

namespace wideep::recordings {
namespace {

constexpr int64_t kMaxLayerId = std::numeric_limits<int>::max() - 1;
// What a file may need: the counts of any model (DeepSeek-V3: 58 layers of 256 experts) in 8 MiB,
// and more only where it has as many lines. Else few lines with a large id would claim gigabytes.
constexpr int64_t kCountsOfAnyModel = int64_t{1} << 20;
constexpr int64_t kCountsPerLine = 64;
constexpr const char* kPairNames[] = {"layer_id", "expert_id", "count"};

struct PairColumns {
  size_t layer = 0, expert = 0, count = 0;
};

Result<PairColumns> pair_columns(const CsvFields& names) {
  CsvFields sorted = names, expected(std::begin(kPairNames), std::end(kPairNames));
  std::ranges::sort(sorted);
  std::ranges::sort(expected);
  if (sorted != expected) {
    CsvFields quoted;
    for (const std::string& name : names) quoted.push_back(csv_quoted(name));
    if (quoted.size() > 6) quoted.resize(6);
    return invalid_input(fmt::format("expected the columns {}, found {} columns: {}",
                                     fmt::join(kPairNames, ", "), names.size(),
                                     fmt::join(quoted, ", ")));
  }
  const auto column = [&](const char* name) {
    return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
  };
  return PairColumns{column("layer_id"), column("expert_id"), column("count")};
}

// layer, expert → tokens
using Pairs = std::map<std::pair<int, int>, int64_t>;

Status add_pair(const CsvFields& fields, const PairColumns& columns, int num_experts,
                int64_t* total, Pairs* pairs) {
  if (fields.size() != std::size(kPairNames)) {
    return invalid_input(fmt::format("expected {} fields as in the header, found {}",
                                     std::size(kPairNames), fields.size()));
  }
  const int64_t last_expert = (num_experts > 0 ? num_experts : kMaxCsvExperts) - 1;
  WIDEEP_TRY_ASSIGN(const int64_t layer,
                    csv_integer("layer_id", fields[columns.layer], "a layer", {0, kMaxLayerId}));
  WIDEEP_TRY_ASSIGN(const int64_t expert, csv_integer("expert_id", fields[columns.expert],
                                                      "an expert", {0, last_expert}));
  WIDEEP_TRY_ASSIGN(const int64_t count, csv_integer("count", fields[columns.count],
                                                     "a count of tokens", {0, kMaxTokens}));
  if (count > kMaxTokens - *total) {
    return invalid_input("the counts up to here exceed 2^53, expected a smaller sum");
  }
  *total += count;
  const std::pair place(static_cast<int>(layer), static_cast<int>(expert));
  if (pairs->emplace(place, count).second) return {};
  return invalid_input(fmt::format(
      "expert {} of layer {} has a line already, expected each pair once; of several ranks take "
      "one file at a time",
      expert, layer));
}

Result<ExpertStatistics> statistics_of(const Pairs& pairs, int num_experts) {
  ExpertStatistics statistics;
  statistics.num_experts = num_experts;
  statistics.iter_stop = 1;
  statistics.guessed_experts = num_experts == 0;
  std::set<int> layers;
  for (const auto& [place, count] : pairs) {
    if (num_experts == 0) {
      statistics.num_experts = std::max(statistics.num_experts, place.second + 1);
    }
    if (count > 0) layers.insert(place.first);
  }
  statistics.layers.assign(layers.begin(), layers.end());
  const auto experts = static_cast<size_t>(statistics.num_experts);
  if (layers.empty()) {
    return invalid_input(pairs.empty()
                             ? "no line below the header, expected counts of experts"
                             : "every count is 0, expected at least one layer with tokens");
  }
  const auto max = static_cast<size_t>(
      std::max(kCountsOfAnyModel, kCountsPerLine * static_cast<int64_t>(pairs.size())));
  if (layers.size() > max / experts) {
    return invalid_input(fmt::format(
        "expected at most {} counts of layers × experts in {} lines, found {} layers of {} experts",
        max, pairs.size(), layers.size(), experts));
  }
  statistics.counts.resize(layers.size() * experts);
  for (const auto& [place, count] : pairs) {
    if (count == 0) continue;
    const auto layer = std::ranges::lower_bound(statistics.layers, place.first);
    statistics.row(0, static_cast<int>(layer - statistics.layers.begin()),
                   0)[static_cast<size_t>(place.second)] = count;
  }
  return statistics;
}

}  // namespace

bool names_csv_pairs(const CsvFields& names) {
  return std::ranges::find(names, "layer_id") != names.end() ||
         std::ranges::find(names, "expert_id") != names.end();
}

Result<ExpertStatistics> parse_csv_pairs(const CsvFields& names, CsvLines* lines, int num_experts,
                                         bool* whole) {
  WIDEEP_TRY_ASSIGN(const PairColumns columns, pair_columns(names));
  Pairs pairs;
  int64_t total = 0;
  while (const std::optional<std::string_view> line = lines->next()) {
    WIDEEP_TRY_ASSIGN(const CsvFields fields, csv_fields(*line));
    WIDEEP_TRY(add_pair(fields, columns, num_experts, &total, &pairs));
  }
  *whole = true;
  return statistics_of(pairs, num_experts);
}

}  // namespace wideep::recordings
