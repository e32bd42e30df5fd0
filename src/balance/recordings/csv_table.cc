// SPDX-License-Identifier: Apache-2.0
#include "recordings/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/printable.h"
#include "recordings/csv_line.h"

namespace wideep::recordings {
namespace {

// nullopt unless the whole field is a number, which "0x10" and "1 2" are not.
std::optional<double> csv_number(const std::string& field) {
  double value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

CsvLines::CsvLines(std::string_view text) : rest_(text) {
  if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // byte order mark
}

std::optional<std::string_view> CsvLines::next() {
  while (!rest_.empty()) {
    std::string_view line = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
    ++number_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) return line;
  }
  return std::nullopt;
}

Result<CsvFields> csv_fields(std::string_view line) {
  std::optional<CsvFields> fields = split_csv_line(line);
  if (fields) return *std::move(fields);
  return invalid_input("expected each \" closed before a comma or the end of the line, found " +
                       base::printable(line, 60));
}

std::string csv_quoted(const std::string& field) {
  return fmt::format("\"{}\"", base::printable(field, 40));
}

Result<int64_t> csv_integer(const std::string& column, const std::string& field, const char* what,
                            const formats::IntegerRange& range) {
  const std::optional<double> number = csv_number(field);
  const std::optional<int64_t> integer = number ? formats::exact_integer(*number) : std::nullopt;
  if (integer && range.contains(*integer)) return *integer;
  // Tables of frequencies are a common mistake: a fraction gets a hint.
  const bool is_share = number && *number > 0 && *number < 1;
  return invalid_input(fmt::format(
      "column {}: expected {} ({}), found {}{}", column, what, formats::describe(range),
      csv_quoted(field), is_share ? "; multiply frequencies by their number of tokens" : ""));
}

}  // namespace wideep::recordings
