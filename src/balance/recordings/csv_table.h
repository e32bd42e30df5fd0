// SPDX-License-Identifier: Apache-2.0
//
// What tables of counts have in common: their lines, numbered from 1, and the numbers in them.
//
// Thread safety: one thread per CsvLines; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/range.h"
#include "wideep/status.h"

namespace wideep::recordings {

using CsvFields = std::vector<std::string>;

// A table has at most so many experts.
inline constexpr int64_t kMaxCsvExperts = 1 << 16;

// Iterates over the lines that are not empty, without their line ends and a byte order mark.
class CsvLines {
 public:
  explicit CsvLines(std::string_view text);

  std::optional<std::string_view> next();
  int number() const { return number_; }  // of the last line; 0 before the first

 private:
  std::string_view rest_;
  int number_ = 0;
};

// Errors (invalid input): split_csv_line() cannot.
Result<CsvFields> csv_fields(std::string_view line);

// A name or field for messages: on one line, at most 40 bytes of it, in double quotes.
std::string csv_quoted(const std::string& field);

// The integer of a field, which may be written 1024.0 or 3e2; `what` it should be is for messages.
// Errors (invalid input): anything else, or out of range; a fraction gets a hint.
Result<int64_t> csv_integer(const std::string& column, const std::string& field, const char* what,
                            const formats::IntegerRange& range);

}  // namespace wideep::recordings
