// SPDX-License-Identifier: Apache-2.0
//
// The {"logical_count": [[...], ...]} form of expert statistics: counts for each layer and expert,
// or for each step, layer and expert, as SGLang's recorder has them. Which of the two it is shows
// in the depth of the lists. Steps are added up and the sum is one iteration: a step has no number
// of its own that iterations could be told by. The sum is checked after each step, so that it
// stays exact.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "formats/json.h"
#include "formats/json_parse.h"
#include "recordings/statistics_reader.h"

namespace wideep::recordings {
namespace {

using nlohmann::json;

constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53: a double is exact up to here

// where: "load.json: logical_count[3]", one layer.
Status bad_count(const std::string& where, size_t expert, const json& found) {
  return invalid_input(
      fmt::format("{}[{}]: expected a count of tokens (an integer from 0 to 2^53), found {}", where,
                  expert, found.dump(-1, ' ', true, json::error_handler_t::replace)));
}

Result<std::vector<int64_t>> layer_counts(const json& row, const std::string& where) {
  if (!row.is_array() || row.empty()) {
    return invalid_input(
        fmt::format("{}: expected the list of one layer's counts, found {} of {} values", where,
                    row.type_name(), row.is_array() ? row.size() : 1));
  }
  std::vector<int64_t> counts;
  counts.reserve(row.size());
  for (const json& value : row) {
    const double number = value.is_number() ? value.get<double>() : -1.0;
    if (!(number >= 0.0 && number <= kMaxExactInteger) || number != std::floor(number)) {
      return bad_count(where, counts.size(), value);
    }
    counts.push_back(static_cast<int64_t>(number));
  }
  return counts;
}

Status check_sum(const std::string& where, const std::vector<int64_t>& counts) {
  constexpr auto kMax = static_cast<int64_t>(kMaxExactInteger);
  int64_t left = kMax;
  // Clamped after each subtraction, so that many large counts cannot overflow.
  for (const int64_t count : counts) left = std::max<int64_t>(left - count, -1);
  if (left >= 0) return {};
  return invalid_input(fmt::format("{}: the counts exceed 2^53, expected a smaller sum", where));
}

// The format has a row for every layer of the model; a dense layer has no experts and counts
// nothing.
bool is_dense(const std::vector<int64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; });
}

// [layer][expert]
using LayerCounts = std::vector<std::vector<int64_t>>;

// where: "load.json: logical_count", or one step of it.
Result<LayerCounts> read_layers(const json& rows, const std::string& where) {
  if (!rows.is_array()) {
    return invalid_input(fmt::format("{}: expected a list of layers, as in step 0, found {}", where,
                                     formats::describe(rows)));
  }
  LayerCounts layers;
  for (const json& row : rows) {
    const std::string here = fmt::format("{}[{}]", where, layers.size());
    WIDEEP_TRY_ASSIGN(std::vector<int64_t> counts, layer_counts(row, here));
    if (!layers.empty() && counts.size() != layers[0].size()) {
      return invalid_input(fmt::format("{}: expected {} experts as in layer 0, found {}", here,
                                       layers[0].size(), counts.size()));
    }
    layers.push_back(std::move(counts));
  }
  return layers;
}

bool has_steps(const json& rows) {
  return !rows.empty() && rows[0].is_array() && !rows[0].empty() && rows[0][0].is_array();
}

Status add_step(const LayerCounts& step, const std::string& where, LayerCounts* sum) {
  const auto experts = [](const LayerCounts& counts) {
    return counts.empty() ? 0 : counts[0].size();
  };
  if (step.size() != sum->size() || experts(step) != experts(*sum)) {
    return invalid_input(
        fmt::format("{}: expected {} layers of {} experts as in step 0, found {} "
                    "of {}",
                    where, sum->size(), experts(*sum), step.size(), experts(step)));
  }
  // Each count is at most 2^53, and check_sum() keeps the sums of steps below that.
  for (size_t layer = 0; layer < step.size(); ++layer) {
    for (size_t i = 0; i < step[layer].size(); ++i) (*sum)[layer][i] += step[layer][i];
    WIDEEP_TRY(check_sum(where, (*sum)[layer]));
  }
  return {};
}

Result<LayerCounts> read_steps(const json& steps, const std::string& name) {
  LayerCounts sum;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string where = fmt::format("{}: logical_count[{}]", name, i);
    WIDEEP_TRY_ASSIGN(LayerCounts step, read_layers(steps[i], where));
    if (i == 0) {
      sum = std::move(step);
    } else {
      WIDEEP_TRY(add_step(step, where, &sum));
    }
  }
  return sum;
}

Result<ExpertStatistics> from_rows(const json& rows, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const LayerCounts layers, has_steps(rows)
                                                  ? read_steps(rows, name)
                                                  : read_layers(rows, name + ": logical_count"));
  ExpertStatistics statistics;
  statistics.iter_stop = 1;
  statistics.num_experts = layers.empty() ? 0 : static_cast<int>(layers[0].size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (is_dense(layers[layer])) continue;
    statistics.layers.push_back(static_cast<int>(layer));
    statistics.counts.insert(statistics.counts.end(), layers[layer].begin(), layers[layer].end());
  }
  if (statistics.layers.empty()) {
    return invalid_input(fmt::format(
        "{}: logical_count: every count is 0, expected at least one layer with tokens", name));
  }
  WIDEEP_TRY(check_statistics(statistics).at(name + ": logical_count"));
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
