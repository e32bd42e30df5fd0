// SPDX-License-Identifier: Apache-2.0
//
// Expert statistics from a table with a line for each pair of layer and expert, as older releases
// of SGLang dumped them, a file for each rank (expert_distribution_rank{r}_timestamp{t}.csv):
//
//   layer_id,expert_id,count
//   3,0,24990
//   3,18,39249
//
// in any order of lines and of the three columns. A pair without a line has no tokens; so the file
// does not say how many experts there are. One iteration of one rank; else as statistics_csv.h.
//
// Thread safety: pure functions.
#pragma once

#include "recordings/csv_table.h"
#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

// Whether a first line with these names begins such a table.
bool names_csv_pairs(const CsvFields& names);

// lines: those below the first, whose names are `names`. num_experts: 0: the largest id + 1
// (ExpertStatistics::guessed_experts). *whole: all lines have been read, so that an error is one of
// the whole table. Errors (invalid input), without file and line: other or more columns; a pair
// twice; an expert beyond num_experts; no tokens; more than 2^20 counts of layers × experts, and
// more than 64 for each line.
Result<ExpertStatistics> parse_csv_pairs(const CsvFields& names, CsvLines* lines, int num_experts,
                                         bool* whole);

}  // namespace wideep::recordings
