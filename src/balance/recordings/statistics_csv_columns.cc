// SPDX-License-Identifier: Apache-2.0
#include "recordings/statistics_csv_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/try.h"

namespace wideep::recordings {
namespace {

// True for "e0", "e12": the name of an expert's column.
bool names_an_expert(const std::string& name) {
  return name.size() > 1 && name[0] == 'e' &&
         name.find_first_not_of("0123456789", 1) == std::string::npos;
}

Status check_expert_names(const CsvColumns& columns) {
  for (size_t expert = 0; expert < columns.num_experts(); ++expert) {
    const size_t column = columns.first_expert + expert;
    if (columns.names[column] == fmt::format("e{}", expert)) continue;
    return invalid_input(
        fmt::format("column {}: expected e{} or the end of the line, found {} (labels stand before "
                    "e0)",
                    column + 1, expert, csv_quoted(columns.names[column])));
  }
  if (columns.num_experts() <= static_cast<size_t>(kMaxCsvExperts)) return {};
  return invalid_input(
      fmt::format("expected at most {} experts, found {}", kMaxCsvExperts, columns.num_experts()));
}

Status check_label_name(const CsvColumns& columns, size_t column) {
  const std::string& name = columns.names[column];
  if (!name.empty() && !names_an_expert(name)) return {};
  return invalid_input(fmt::format("column {}: expected a column's name before e0, found {}",
                                   column + 1, csv_quoted(name)));
}

Status check_names_differ(const CsvColumns& columns) {
  std::set<std::string> seen;
  for (size_t column = 0; column < columns.first_expert; ++column) {
    if (seen.insert(columns.names[column]).second) continue;
    return invalid_input(fmt::format("column {}: {} occurs twice, expected different names",
                                     column + 1, csv_quoted(columns.names[column])));
  }
  return {};
}

}  // namespace

Result<CsvColumns> parse_csv_columns(CsvFields names) {
  CsvColumns columns;
  std::optional<size_t> layer;
  // Everything from e0 on must be experts; only columns before it may be labels.
  const auto first_expert = std::find(names.begin(), names.end(), "e0");
  columns.first_expert = static_cast<size_t>(first_expert - names.begin());
  columns.names = std::move(names);
  for (size_t column = 0; column < columns.first_expert; ++column) {
    const std::string& name = columns.names[column];
    if (name == "layer") {
      layer = column;
    } else if (name == "iteration") {
      columns.iteration = column;
    } else {
      WIDEEP_TRY(check_label_name(columns, column));
      columns.labels.push_back(column);
    }
  }
  WIDEEP_TRY(check_names_differ(columns));
  if (columns.num_experts() == 0 || !layer) {
    const char* missing = layer ? "e0" : "layer";
    return invalid_input(fmt::format(
        "expected the columns layer, e0, e1, ... (tokens per expert), found no {}", missing));
  }
  columns.layer = *layer;
  WIDEEP_TRY(check_expert_names(columns));
  return columns;
}

}  // namespace wideep::recordings
