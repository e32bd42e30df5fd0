// SPDX-License-Identifier: Apache-2.0
// The {"logical_count": [[...], ...]} form of expert statistics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "formats/json.h"
#include "recordings/statistics_reader.h"

namespace wideep::recordings {
namespace {

using nlohmann::json;

constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53: a double is exact up to here

Status bad_count(const std::string& name, size_t layer, size_t expert, const json& found) {
  return invalid_input(
      fmt::format("{}: logical_count[{}][{}]: expected a count of tokens (an integer from 0 to "
                  "2^53), found {}",
                  name, layer, expert, found.dump(-1, ' ', true, json::error_handler_t::replace)));
}

Result<std::vector<int64_t>> layer_counts(const json& row, const std::string& name, size_t layer) {
  if (!row.is_array() || row.empty()) {
    return invalid_input(fmt::format(
        "{}: logical_count[{}]: expected the list of one layer's counts, found {} of {} values",
        name, layer, row.type_name(), row.is_array() ? row.size() : 1));
  }
  std::vector<int64_t> counts;
  counts.reserve(row.size());
  for (const json& value : row) {
    const double number = value.is_number() ? value.get<double>() : -1.0;
    if (!(number >= 0.0 && number <= kMaxExactInteger) || number != std::floor(number)) {
      return bad_count(name, layer, counts.size(), value);
    }
    counts.push_back(static_cast<int64_t>(number));
  }
  return counts;
}

Status check_sum(const std::string& name, const std::vector<int64_t>& counts) {
  constexpr auto kMost = static_cast<int64_t>(kMaxExactInteger);
  int64_t left = kMost;
  // Clamped after each subtraction, so that many large counts cannot overflow.
  for (const int64_t count : counts) left = std::max<int64_t>(left - count, -1);
  if (left >= 0) return {};
  return invalid_input(
      fmt::format("{}: logical_count: the counts exceed 2^53, expected a smaller sum", name));
}

// The format has a row for every layer of the model; a dense layer has no experts and counts
// nothing.
bool is_dense(const std::vector<int64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; });
}

Result<ExpertStatistics> from_rows(const json& rows, const std::string& name) {
  ExpertStatistics statistics;
  statistics.iter_stop = 1;
  for (size_t layer = 0; layer < rows.size(); ++layer) {
    WIDEEP_TRY_ASSIGN(const std::vector<int64_t> counts, layer_counts(rows[layer], name, layer));
    if (layer == 0) statistics.num_experts = static_cast<int>(counts.size());
    if (counts.size() != static_cast<size_t>(statistics.num_experts)) {
      return invalid_input(
          fmt::format("{}: logical_count[{}]: expected {} experts as in layer 0, found {}", name,
                      layer, statistics.num_experts, counts.size()));
    }
    if (is_dense(counts)) continue;
    statistics.layers.push_back(static_cast<int>(layer));
    statistics.counts.insert(statistics.counts.end(), counts.begin(), counts.end());
  }
  if (statistics.layers.empty()) {
    return invalid_input(fmt::format(
        "{}: logical_count: every count is 0, expected at least one layer with tokens", name));
  }
  WIDEEP_TRY(check_sum(name, statistics.counts));
  return statistics;
}

Result<ExpertStatistics> from_document(const formats::JsonDocument& document,
                                       const std::string& name) {
  const json& root = document.root().raw();
  const auto rows = root.find("logical_count");
  if (rows == root.end() || !rows->is_array()) {
    return invalid_input(fmt::format(
        "{}: expected key logical_count with a list of layers, each a list of counts", name));
  }
  return from_rows(*rows, name);
}

}  // namespace

Result<ExpertStatistics> parse_logical_count(std::string_view text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document, formats::JsonDocument::parse(text, name));
  return from_document(document, name);
}

Result<ExpertStatistics> read_logical_count(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document, formats::JsonDocument::read(path));
  return from_document(document, path);
}

}  // namespace wideep::recordings
