// SPDX-License-Identifier: Apache-2.0
//
// Expert statistics from a table of counts:
//
//   domain,layer,e0,e1,e2,e3
//   law,1,578,193,100,677
//   law,2,80,1011,0,457
//   "news, sport",1,90,120,40,61
//   "news, sport",2,35,201,73,2
//
// The first line names the columns: `layer` (the model's index), if wanted `iteration`, and any
// label columns, in any order; then e0, e1, ... to the end of the line, the tokens of each expert.
// A line is one layer of one iteration. Without a column `iteration`, the lines with the same
// labels are one iteration, numbered from 0 in the order of their first appearance (above: law is
// 0); with it, the numbers must follow each other without a gap, in any order of lines, and the
// labels are comments that may not differ within an iteration. Every iteration has every layer
// once.
//
// Counts are integers from 0 to 2^53, also written 1024.0 or 3e2, and sum to at most 2^53.
// Fractions are refused: frequencies do not show how many tokens they come from, so windows could
// not be summed. A layer whose counts are all zero has no experts and is left out, as in
// logical_count. All counts belong to one rank; top_k is not known (0).
//
// Fields are separated by commas, with optional double quotes (RFC 4180) but no line end inside a
// field; empty lines, a carriage return at a line's end and a byte order mark are ignored.
//
// SGLang's table of pairs is read too: see statistics_csv_pairs.h. Only for it num_experts is
// given, or 0: it does not say.
//
// Errors (invalid input) name file, line and column, what was expected and found.
//
// Thread safety: pure functions of the file.
#pragma once

#include <string>
#include <string_view>

#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

Result<ExpertStatistics> read_statistics_csv(const std::string& path, int num_experts = 0);
// The same for text in memory; `name` is the file's name in messages.
Result<ExpertStatistics> parse_statistics_csv(std::string_view text, const std::string& name,
                                              int num_experts = 0);

}  // namespace wideep::recordings
