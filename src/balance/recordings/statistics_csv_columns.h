// SPDX-License-Identifier: Apache-2.0
//
// The first line of a table of counts: the meaning of each column (see statistics_csv.h).
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recordings/csv_table.h"
#include "wideep/status.h"

namespace wideep::recordings {

struct CsvColumns {
  CsvFields names;
  size_t layer = 0;
  std::optional<size_t> iteration;
  std::vector<size_t> labels;  // ascending
  size_t first_expert = 0;     // e0; the experts are the columns from here on

  size_t num_experts() const { return names.size() - first_expert; }
};

// Errors (invalid input) name the column: no layer or no e0, a column twice, experts that are not
// e0, e1, ... to the end of the line or more than 65536.
Result<CsvColumns> parse_csv_columns(CsvFields names);

}  // namespace wideep::recordings
