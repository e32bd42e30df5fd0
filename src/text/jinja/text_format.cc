// SPDX-License-Identifier: Apache-2.0
//
// "{{" and "}}" are braces; "{}", "{0}" and "{name}" are fields. What else Python allows inside
// braces (conversions, widths, attributes) lays out tables and numbers, which no chat template
// does.
#include "jinja/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "base/try.h"

namespace wideep::jinja {
namespace {

// How the fields of a text name their values: "{}" in order, or "{0}", but not both.
struct Numbering {
  size_t next = 0;
  bool manual = false;
};

bool is_plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

Result<Value> field_value(std::string_view name, Numbering& numbering, const Arguments& arguments) {
  if (!std::all_of(name.begin(), name.end(), is_plain)) {
    return invalid_input(
        fmt::format("format: chat templates use only names and numbers in braces, not '{}'", name));
  }
  const bool is_index = name.find_first_not_of("0123456789") == name.npos && name.size() < 9;
  if (is_index) {
    const size_t at = name.empty() ? numbering.next++ : std::stoul(std::string(name));
    numbering.manual = numbering.manual || !name.empty();
    if (numbering.manual && numbering.next > 0) {
      return invalid_input("format: fields with and without a number");
    }
    if (at < arguments.positional.size()) return arguments.positional[at];
    return invalid_input(fmt::format("format: there is no argument {}", at));
  }
  for (const auto& [given, value] : arguments.named) {
    if (given == name) return value;
  }
  return invalid_input(fmt::format("format: there is no argument '{}'", name));
}

}  // namespace

ValueResult brace_format(const Value& text, const Arguments& arguments) {
  std::string_view rest = text.string();
  std::string out;
  Numbering numbering;
  while (!rest.empty() && arguments.budget.spend(1)) {
    const size_t at = std::min(rest.find_first_of("{}"), rest.size());
    out += rest.substr(0, at);
    rest.remove_prefix(at);
    if (rest.empty()) break;
    const char brace = rest[0];
    if (rest.size() > 1 && rest[1] == brace) {
      out += brace;
      rest.remove_prefix(2);
      continue;
    }
    const size_t end = rest.find('}');
    if (brace == '}' || end == rest.npos) {
      return invalid_input(fmt::format("format: a single '{}' in the text", brace));
    }
    WIDEEP_TRY_ASSIGN(const Value value,
                      field_value(rest.substr(1, end - 1), numbering, arguments));
    out += to_text(value, arguments.budget);
    rest.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace wideep::jinja
