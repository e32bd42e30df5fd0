// SPDX-License-Identifier: Apache-2.0
#include "recordings/csv_line.h"

#include <algorithm>

namespace wideep::recordings {
namespace {

constexpr std::string_view kBlanks = " \t";

void skip_blanks(std::string_view* rest) {
  rest->remove_prefix(std::min(rest->find_first_not_of(kBlanks), rest->size()));
}

// Removes a field from the front of *rest, up to the comma.
std::string take_plain(std::string_view* rest) {
  const std::string_view field = rest->substr(0, rest->find(','));
  rest->remove_prefix(field.size());
  return std::string(field.substr(0, field.find_last_not_of(kBlanks) + 1));
}

// The same if *rest begins after the opening quote.
std::optional<std::string> take_quoted(std::string_view* rest) {
  std::string field;
  while (true) {
    const size_t quote = rest->find('"');
    if (quote == std::string_view::npos) return std::nullopt;
    field += rest->substr(0, quote);
    rest->remove_prefix(quote + 1);
    if (!rest->starts_with('"')) return field;
    field += '"';
    rest->remove_prefix(1);
  }
}

std::optional<std::string> take_field(std::string_view* rest) {
  skip_blanks(rest);
  if (!rest->starts_with('"')) return take_plain(rest);
  rest->remove_prefix(1);
  std::optional<std::string> field = take_quoted(rest);
  skip_blanks(rest);
  return field;
}

}  // namespace

std::optional<std::vector<std::string>> split_csv_line(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    std::optional<std::string> field = take_field(&line);
    if (!field || !(line.empty() || line.front() == ',')) return std::nullopt;
    fields.push_back(*std::move(field));
    if (line.empty()) return fields;
    line.remove_prefix(1);
  }
}

}  // namespace wideep::recordings
