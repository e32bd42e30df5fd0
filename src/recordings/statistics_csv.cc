// SPDX-License-Identifier: Apache-2.0
#include "recordings/statistics_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/range.h"
#include "recordings/csv_line.h"
#include "recordings/statistics_csv_columns.h"

namespace wideep::recordings {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 53;                    // a double is exact up to here
constexpr int64_t kMaxIndex = std::numeric_limits<int>::max() - 1;  // + 1 must fit

// nullopt unless the whole field is a number, which "0x10" and "1 2" are not.
std::optional<double> parse_number(const std::string& field) {
  double value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

Result<int64_t> parse_integer(const CsvColumns& columns, const CsvFields& fields, size_t column,
                              const char* what, const formats::IntegerRange& range) {
  const std::optional<double> number = parse_number(fields[column]);
  const std::optional<int64_t> integer = number ? formats::exact_integer(*number) : std::nullopt;
  if (integer && range.contains(*integer)) return *integer;
  // Tables of frequencies are a common mistake: a fraction gets a hint.
  const bool is_share = number && *number > 0 && *number < 1;
  return invalid_input(
      fmt::format("column {}: expected {} ({}), found {}{}", columns.names[column], what,
                  formats::describe(range), csv_quoted(fields[column]),
                  is_share ? "; multiply frequencies by their number of tokens" : ""));
}

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
  WIDEEP_TRY_ASSIGN(const int64_t iteration, parse_integer(columns_, fields, *columns_.iteration,
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
    WIDEEP_TRY_ASSIGN(const int64_t count, parse_integer(columns_, fields, column,
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
                    parse_integer(columns_, fields, columns_.layer, "a layer", {0, kMaxIndex}));
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

// Iterates over the lines that are not empty, without their line ends, and counts lines from 1.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // byte order mark
  }

  std::optional<std::string_view> next() {
    while (!rest_.empty()) {
      std::string_view line = rest_.substr(0, rest_.find('\n'));
      rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
      ++number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) return line;
    }
    return std::nullopt;
  }
  int number() const { return number_; }

 private:
  std::string_view rest_;
  int number_ = 0;
};

Result<CsvFields> split(std::string_view line) {
  std::optional<CsvFields> fields = split_csv_line(line);
  if (fields) return *std::move(fields);
  return invalid_input("expected each \" closed before a comma or the end of the line, found " +
                       base::printable(line, 60));
}

Result<CsvColumns> read_header(Lines* lines) {
  const std::optional<std::string_view> line = lines->next();
  if (!line) return invalid_input("the file is empty, expected a line layer,e0,e1,...");
  WIDEEP_TRY_ASSIGN(CsvFields names, split(*line));
  return parse_csv_columns(std::move(names));
}

Status add_line(std::string_view line, int number, Table* table) {
  WIDEEP_TRY_ASSIGN(const CsvFields fields, split(line));
  return table->add(number, fields);
}

}  // namespace

Result<ExpertStatistics> parse_statistics_csv(std::string_view text, const std::string& name) {
  Lines lines(text);
  const auto place = [&] { return fmt::format("{}: line {}", name, std::max(1, lines.number())); };
  Result<CsvColumns> columns = read_header(&lines);
  if (!columns.ok()) return columns.status().at(place());
  Table table(*std::move(columns));
  while (const std::optional<std::string_view> line = lines.next()) {
    if (Status status = add_line(*line, lines.number(), &table); !status.ok()) {
      return status.at(place());
    }
  }
  Result<ExpertStatistics> statistics = table.statistics();
  if (!statistics.ok()) return statistics.status().at(name);
  return statistics;
}

Result<ExpertStatistics> read_statistics_csv(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return parse_statistics_csv(text, path);
}

}  // namespace wideep::recordings
