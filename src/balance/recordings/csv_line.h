// SPDX-License-Identifier: Apache-2.0
//
// One line of a comma-separated table (RFC 4180, without line ends inside fields).
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::recordings {

// Splits a line into its fields, at least one. Blanks around a field are dropped. A field in double
// quotes may hold commas, blanks at its ends and, written twice, double quotes. nullopt: a quote
// that is not closed, or text between a closing quote and the next comma.
std::optional<std::vector<std::string>> split_csv_line(std::string_view line);

}  // namespace wideep::recordings
