// SPDX-License-Identifier: Apache-2.0
//
// What the methods do is in python_text.h; here are their arguments and errors. Positions count
// code points and follow the rules of slices, with one exception: a start behind the end finds
// nothing, not even the empty text. Methods that Python has and that are missing here are listed,
// so that a template is refused with the method's name.
#include "jinja/string_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/python_text.h"
#include "jinja/text_format.h"

namespace wideep::jinja {
namespace {

List list_of(const std::vector<std::string>& texts) { return List(texts.begin(), texts.end()); }

template <Ends ends>
ValueResult strip_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("strip", arguments);
  const Value characters = reader.value_or("chars", Value());
  WIDEEP_TRY(reader.status());
  if (characters.is_none()) return std::string(strip(self.string(), ends));
  if (!characters.is_string()) return invalid_input("strip: expected a string of characters");
  return std::string(strip(self.string(), ends, characters.string()));
}

ValueResult split_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("split", arguments);
  const Value separator = reader.value_or("sep", Value());
  const int64_t limit = reader.strict_integer_or("maxsplit", -1);
  WIDEEP_TRY(reader.status());
  if (separator.is_none()) return list_of(split(self.string(), {}, limit, arguments.budget));
  if (!separator.is_string() || separator.string().empty()) {
    return invalid_input("split: expected a separator that is a string and not empty");
  }
  return list_of(split(self.string(), separator.string(), limit, arguments.budget));
}

template <std::string (*change)(std::string_view)>
ValueResult case_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("case", arguments);
  WIDEEP_TRY(reader.status());
  return change(self.string());
}

// The part of a text between two positions, by the rules of a slice: what find(), count(),
// startswith() and others search.
struct Part {
  std::string_view text;
  int64_t begin = 0;  // in code points
};

// Reads the arguments "start" and "end". Nothing: start lies behind the end of the text.
Result<std::optional<Part>> searched_part(std::string_view text, ArgumentReader& reader) {
  const Value start = reader.value_or("start", Value()), end = reader.value_or("end", Value());
  if (start.is_none() && end.is_none()) return std::optional(Part{text});
  for (const Value* each : {&start, &end}) {
    if (!each->is_none() && !each->is_whole()) {
      return invalid_input(
          fmt::format("expected integers or none as positions, found {}", each->type_name()));
    }
  }
  const Characters all(text);
  const int64_t size = all.count();
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    return value.integer() < 0 ? std::max<int64_t>(0, value.integer() + size) : value.integer();
  };
  const int64_t from = bound(start, 0), to = std::min(bound(end, size), size);
  if (from > size || from > to) return std::optional<Part>();
  auto at = all.begin();
  size_t bytes_before = 0, bytes = 0;
  for (int64_t i = 0; i < to; ++i, ++at) (i < from ? bytes_before : bytes) += (*at).size();
  return std::optional(Part{text.substr(bytes_before, bytes), from});
}

template <bool last>
ValueResult find_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("find", arguments);
  const std::string what = reader.string("sub");
  WIDEEP_TRY_ASSIGN(const std::optional<Part> part, searched_part(self.string(), reader));
  WIDEEP_TRY(reader.status());
  const size_t at = !part  ? std::string::npos
                    : last ? last_position_in(part->text, what, arguments.budget)
                           : position_in(part->text, what);
  if (at != std::string::npos) {
    return part->begin + Characters(part->text.substr(0, at)).count();
  }
  return int64_t{-1};
}

ValueResult count_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("count", arguments);
  const std::string what = reader.string("sub");
  WIDEEP_TRY_ASSIGN(const std::optional<Part> part, searched_part(self.string(), reader));
  WIDEEP_TRY(reader.status());
  return part ? count(part->text, what) : int64_t{0};
}

// The argument is a string, or a tuple of strings of which one must match.
template <bool at_end>
ValueResult starts_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader(at_end ? "endswith" : "startswith", arguments);
  const Value wanted = reader.value("prefix");
  WIDEEP_TRY_ASSIGN(const std::optional<Part> part, searched_part(self.string(), reader));
  WIDEEP_TRY(reader.status());
  const List all = wanted.is_tuple() ? wanted.list() : List{wanted};
  for (const Value& each : all) {
    if (!arguments.budget.spend(1)) return arguments.budget.status();
    if (!each.is_string()) {
      return invalid_input(fmt::format("{}: expected a string or a tuple of strings, found {}",
                                       at_end ? "endswith" : "startswith", each.type_name()));
    }
    const std::string_view text = part ? part->text : std::string_view();
    if (!part) continue;
    if (at_end ? text.ends_with(each.string()) : text.starts_with(each.string())) return true;
  }
  return false;
}

ValueResult replace_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("replace", arguments);
  const std::string from = reader.string("old"), to = reader.string("new");
  const int64_t limit = reader.strict_integer_or("count", -1);
  WIDEEP_TRY(reader.status());
  return replace(self.string(), from, to, limit, arguments.budget);
}

ValueResult split_lines_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("splitlines", arguments);
  const bool keeps_ends = reader.strict_integer_or("keepends", 0) != 0;
  WIDEEP_TRY(reader.status());
  return list_of(split_lines(self.string(), arguments.budget, keeps_ends));
}

ValueResult join_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("join", arguments);
  const Value items = reader.value("iterable");
  WIDEEP_TRY(reader.status());
  WIDEEP_TRY_ASSIGN(const List all, elements_of(items, arguments.budget));
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is_string()) return invalid_input("join: expected strings");
    const size_t bytes = self.string().size() + all[i].string().size();
    if (!arguments.budget.spend_bytes(bytes)) return arguments.budget.status();
    text += (i > 0 ? self.string() : "") + all[i].string();
  }
  return text;
}

// All characters have the property, and there is one.
template <bool (*has)(char32_t)>
ValueResult all_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("is…", arguments);
  WIDEEP_TRY(reader.status());
  return all_characters(self.string(), has);
}

template <bool at_end>
ValueResult remove_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader(at_end ? "removesuffix" : "removeprefix", arguments);
  const std::string what = reader.string("prefix");
  WIDEEP_TRY(reader.status());
  std::string_view text = self.string();
  if (at_end && text.ends_with(what)) text.remove_suffix(what.size());
  if (!at_end && text.starts_with(what)) text.remove_prefix(what.size());
  return std::string(text);
}

ValueResult split_from_end_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("rsplit", arguments);
  const Value separator = reader.value_or("sep", Value());
  const int64_t limit = reader.strict_integer_or("maxsplit", -1);
  WIDEEP_TRY(reader.status());
  if (separator.is_none())
    return list_of(split_from_end(self.string(), {}, limit, arguments.budget));
  if (!separator.is_string() || separator.string().empty()) {
    return invalid_input("rsplit: expected a separator that is a string and not empty");
  }
  return list_of(split_from_end(self.string(), separator.string(), limit, arguments.budget));
}

ValueResult format_method(const Value& self, const Arguments& arguments) {
  return brace_format(self, arguments);
}

}  // namespace

const Methods& string_methods() {
  static const Methods methods = {
      {"strip", strip_method<Ends::kBoth>},
      {"lstrip", strip_method<Ends::kLeft>},
      {"rstrip", strip_method<Ends::kRight>},
      {"split", split_method},
      {"splitlines", split_lines_method},
      {"startswith", starts_method<false>},
      {"endswith", starts_method<true>},
      {"upper", case_method<upper>},
      {"lower", case_method<lower>},
      {"title", case_method<title>},
      {"capitalize", case_method<capitalize>},
      {"find", find_method<false>},
      {"rfind", find_method<true>},
      {"count", count_method},
      {"replace", replace_method},
      {"join", join_method},
      {"format", format_method},
      {"removeprefix", remove_method<false>},
      {"removesuffix", remove_method<true>},
      {"rsplit", split_from_end_method},
      {"isdigit", all_method<is_digit>},
  };
  return methods;
}

bool is_other_string_method(std::string_view name) {
  constexpr std::string_view kOthers[] = {
      "casefold",  "center",      "encode",  "expandtabs", "format_map",   "index",
      "isalnum",   "isalpha",     "isascii", "isdecimal",  "isidentifier", "islower",
      "isnumeric", "isprintable", "isspace", "istitle",    "isupper",      "ljust",
      "maketrans", "partition",   "rindex",  "rjust",      "rpartition",   "swapcase",
      "translate", "zfill"};
  return std::ranges::find(kOthers, name) != std::end(kOthers);
}

}  // namespace wideep::jinja
