// SPDX-License-Identifier: Apache-2.0
//
// Rows go into a map ordered by iteration and layer. What is missing then shows in one walk over
// the grid of all iterations and layers beside the map: the first difference is the missing line.
// An error names its line while lines are read, and the file alone when it is one of the whole
// table.
#include "recordings/statistics_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "recordings/csv_table.h"
#include "recordings/statistics_csv_columns.h"
#include "recordings/statistics_csv_pairs.h"

namespace wideep::recordings {
namespace {

constexpr int64_t kMaxIndex = std::numeric_limits<int>::max() - 1;  // + 1 must fit

struct Cell {
  int iteration = 0;
  int layer = 0;
  auto operator<=>(const Cell&) const = default;
};

// The rows read so far.
class Table {
 public:
  explicit Table(CsvColumns columns) : columns_(std::move(columns)) {}

  // Errors: without file and line, which the caller knows.
  Status add(int line, const CsvFields& fields);
  Result<ExpertStatistics> statistics() const;

 private:
  struct Row {
    int line;
    std::vector<int64_t> counts;
  };

  std::string words(const CsvFields& labels) const;
  Result<int> iteration_of(const CsvFields& fields);
  Result<std::vector<int64_t>> counts_of(const CsvFields& fields);
  Status check_complete(const std::set<int>& layers) const;
  // The layers with any tokens, ascending.
  std::vector<int> loaded_layers() const;

  CsvColumns columns_;
  std::map<CsvFields, int> iteration_of_labels_;  // without a column `iteration`
  std::map<int, CsvFields> labels_of_iteration_;
  std::map<Cell, Row> rows_;
  int64_t total_ = 0;
};

// "domain law, split train", or "no labels" without label columns.
std::string Table::words(const CsvFields& labels) const {
  std::vector<std::string> pairs;
  for (size_t i = 0; i < labels.size(); ++i) {
    pairs.push_back(
        fmt::format("{} {}", columns_.names[columns_.labels[i]], csv_quoted(labels[i])));
  }
  return base::printable(pairs.empty() ? "no labels" : fmt::format("{}", fmt::join(pairs, ", ")));
}

Result<int> Table::iteration_of(const CsvFields& fields) {
  CsvFields labels;
  for (size_t column : columns_.labels) labels.push_back(fields[column]);
  if (!columns_.iteration) {
    const int next = static_cast<int>(iteration_of_labels_.size());
    const int iteration = iteration_of_labels_.emplace(labels, next).first->second;
    labels_of_iteration_.emplace(iteration, std::move(labels));
    return iteration;
  }
  const size_t column = *columns_.iteration;
  WIDEEP_TRY_ASSIGN(const int64_t iteration, csv_integer(columns_.names[column], fields[column],
                                                         "an iteration", {0, kMaxIndex}));
  const auto& known = labels_of_iteration_.emplace(static_cast<int>(iteration), labels).first;
  if (known->second == labels) return static_cast<int>(iteration);
  return invalid_input(
      fmt::format("iteration {}: expected the labels of its first line ({}), found {}", iteration,
                  words(known->second), words(labels)));
}

Result<std::vector<int64_t>> Table::counts_of(const CsvFields& fields) {
  std::vector<int64_t> counts;
  counts.reserve(columns_.num_experts());
  for (size_t column = columns_.first_expert; column < fields.size(); ++column) {
    WIDEEP_TRY_ASSIGN(const int64_t count, csv_integer(columns_.names[column], fields[column],
                                                       "a count of tokens", {0, kMaxTokens}));
    // Compared this way round, the sum cannot overflow.
    if (count > kMaxTokens - total_) {
      return invalid_input(
          fmt::format("column {}: the counts up to here exceed 2^53, expected a smaller sum",
                      columns_.names[column]));
    }
    total_ += count;
    counts.push_back(count);
  }
  return counts;
}

Status Table::add(int line, const CsvFields& fields) {
  if (fields.size() != columns_.names.size()) {
    return invalid_input(fmt::format("expected {} fields as in the header, found {}",
                                     columns_.names.size(), fields.size()));
  }
  WIDEEP_TRY_ASSIGN(const int iteration, iteration_of(fields));
  WIDEEP_TRY_ASSIGN(const int64_t layer,
                    csv_integer("layer", fields[columns_.layer], "a layer", {0, kMaxIndex}));
  WIDEEP_TRY_ASSIGN(std::vector<int64_t> counts, counts_of(fields));
  const Cell cell{iteration, static_cast<int>(layer)};
  const auto [row, is_new] = rows_.try_emplace(cell, Row{line, std::move(counts)});
  if (is_new) return {};
  return invalid_input(fmt::format(
      "layer {} with {} is on line {} already, expected each layer of an iteration once", layer,
      columns_.iteration ? fmt::format("iteration {}", iteration)
                         : words(labels_of_iteration_.at(iteration)),
      row->second.line));
}

// rows_ ascends by iteration and layer, as these loops do, so the first difference is a missing
// line. Duplicates are excluded by add().
Status Table::check_complete(const std::set<int>& layers) const {
  auto next = rows_.begin();
  for (int iteration = next->first.iteration; next != rows_.end(); ++iteration) {
    for (int layer : layers) {
      if (next != rows_.end() && next->first == Cell{iteration, layer}) {
        ++next;
        continue;
      }
      const auto labels = labels_of_iteration_.find(iteration);
      return invalid_input(fmt::format(
          "iteration {} ({}) has no line for layer {}, expected one for each of {} layers in every "
          "iteration from {} to {}",
          iteration, labels == labels_of_iteration_.end() ? "absent" : words(labels->second), layer,
          layers.size(), rows_.begin()->first.iteration, rows_.rbegin()->first.iteration));
    }
  }
  return {};
}

std::vector<int> Table::loaded_layers() const {
  std::set<int> layers;
  for (const auto& [cell, row] : rows_) {
    const bool any =
        std::any_of(row.counts.begin(), row.counts.end(), [](auto n) { return n > 0; });
    if (any) layers.insert(cell.layer);
  }
  return {layers.begin(), layers.end()};
}

Result<ExpertStatistics> Table::statistics() const {
  // Also true without any row, so the code below has a first and a last one.
  if (total_ == 0) {
    return invalid_input(
        fmt::format("{}, expected at least one layer with tokens",
                    rows_.empty() ? "no line below the header" : "every count is 0"));
  }
  std::set<int> layers;
  for (const auto& [cell, row] : rows_) layers.insert(cell.layer);
  WIDEEP_TRY(check_complete(layers));

  ExpertStatistics statistics;
  statistics.num_experts = static_cast<int>(columns_.num_experts());
  statistics.iter_start = rows_.begin()->first.iteration;
  statistics.iter_stop = rows_.rbegin()->first.iteration + 1;
  statistics.layers = loaded_layers();
  const std::vector<int>& loaded = statistics.layers;
  for (const auto& [cell, row] : rows_) {
    if (!std::binary_search(loaded.begin(), loaded.end(), cell.layer)) continue;
    statistics.counts.insert(statistics.counts.end(), row.counts.begin(), row.counts.end());
  }
  return statistics;
}

Status add_lines(CsvLines* lines, Table* table) {
  while (const std::optional<std::string_view> line = lines->next()) {
    WIDEEP_TRY_ASSIGN(const CsvFields fields, csv_fields(*line));
    WIDEEP_TRY(table->add(lines->number(), fields));
  }
  return {};
}

// A table with a column for each expert. *whole: all lines have been read, so that an error is one
// of the whole table.
Result<ExpertStatistics> parse_table(CsvFields names, CsvLines* lines, int num_experts,
                                     bool* whole) {
  WIDEEP_TRY_ASSIGN(CsvColumns columns, parse_csv_columns(std::move(names)));
  if (num_experts > 0) {
    return invalid_input(fmt::format(
        "the number of experts (--num-experts) can only describe a trace or a table of layer_id, "
        "expert_id, count; this one has a column for each of its {} experts: leave it out",
        columns.num_experts()));
  }
  Table table(std::move(columns));
  WIDEEP_TRY(add_lines(lines, &table));
  *whole = true;
  return table.statistics();
}

Result<ExpertStatistics> parse_lines(CsvLines* lines, int num_experts, bool* whole) {
  const std::optional<std::string_view> line = lines->next();
  if (!line) {
    return invalid_input("the file is empty, expected a line layer,e0,e1,...");
  }
  WIDEEP_TRY_ASSIGN(CsvFields names, csv_fields(*line));
  if (!names_csv_pairs(names)) return parse_table(std::move(names), lines, num_experts, whole);
  return parse_csv_pairs(names, lines, num_experts, whole);
}

}  // namespace

Result<ExpertStatistics> parse_statistics_csv(std::string_view text, const std::string& name,
                                              int num_experts) {
  CsvLines lines(text);
  bool whole = false;
  Result<ExpertStatistics> statistics = parse_lines(&lines, num_experts, &whole);
  if (statistics.ok()) return statistics;
  if (whole) return statistics.status().at(name);
  return statistics.status().at(fmt::format("{}: line {}", name, std::max(1, lines.number())));
}

Result<ExpertStatistics> read_statistics_csv(const std::string& path, int num_experts) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return parse_statistics_csv(text, path, num_experts);
}

}  // namespace wideep::recordings
