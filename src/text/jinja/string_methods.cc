// SPDX-License-Identifier: Apache-2.0
#include "jinja/string_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/python_format.h"
#include "jinja/python_text.h"

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

enum class Found { kPositionOrMinusOne, kPosition };

template <Found found, bool last>
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
  if (found == Found::kPositionOrMinusOne) return int64_t{-1};
  return invalid_input("index: the text is not found");
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

template <bool (*holds)(std::string_view)>
ValueResult property_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("is…", arguments);
  WIDEEP_TRY(reader.status());
  return holds(self.string());
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

template <bool last>
ValueResult partition_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("partition", arguments);
  const std::string separator = reader.string("sep");
  WIDEEP_TRY(reader.status());
  if (separator.empty()) return invalid_input("partition: the separator is empty");
  const std::string& text = self.string();
  const size_t at =
      last ? last_position_in(text, separator, arguments.budget) : position_in(text, separator);
  List parts = last ? List{"", "", text} : List{text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  }
  return Value(std::move(parts), ListKind::kTuple);
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

template <Side side>
ValueResult pad_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("justify", arguments);
  const Value width = reader.value("width");
  const std::string fill = reader.has_more() ? reader.string("fillchar") : " ";
  WIDEEP_TRY(reader.status());
  if (!width.is_whole() || width.is_large() || Characters(fill).count() != 1) {
    return invalid_input("expected an integer and a single character");
  }
  return padded(self.string(), width.integer(), fill, side, arguments.budget);
}

ValueResult expand_tabs_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("expandtabs", arguments);
  const int64_t size = reader.strict_integer_or("tabsize", 8);
  WIDEEP_TRY(reader.status());
  if (size > INT32_MAX) return invalid_input("expandtabs: the size is too large");
  return expand_tabs(self.string(), size, arguments.budget);
}

ValueResult zero_fill_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("zfill", arguments);
  const Value width = reader.value("width");
  WIDEEP_TRY(reader.status());
  if (!width.is_whole() || width.is_large()) return invalid_input("zfill: expected an integer");
  return zero_filled(self.string(), width.integer(), arguments.budget);
}

// As in Python, an empty text is printable.
ValueResult printable_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("isprintable", arguments);
  WIDEEP_TRY(reader.status());
  return self.string().empty() || all_characters(self.string(), is_printable);
}

// format() whose values are those of one dict.
ValueResult format_map_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("format_map", arguments);
  const Value mapping = reader.value("mapping");
  WIDEEP_TRY(reader.status());
  Arguments values(arguments.budget);
  // As in Jinja, what is no dict fails only where a field needs it.
  if (!mapping.is_dict()) return brace_format(self, values, FieldNames::kOnlyNames);
  for (const auto& [key, value] : mapping.dict().entries()) {
    if (!arguments.budget.spend(1)) return arguments.budget.status();
    if (key.is_string()) values.named.emplace_back(key.string(), value);
  }
  return brace_format(self, values, FieldNames::kOnlyNames);
}

constexpr char kEncode[] = "encode", kMakeTable[] = "maketrans", kTranslate[] = "translate";
template <const char* name>
ValueResult refused_method(const Value&, const Arguments&) {
  return invalid_input(fmt::format("the method '{}' of a text is not supported", name));
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
      {"find", find_method<Found::kPositionOrMinusOne, false>},
      {"rfind", find_method<Found::kPositionOrMinusOne, true>},
      {"index", find_method<Found::kPosition, false>},
      {"rindex", find_method<Found::kPosition, true>},
      {"count", count_method},
      {"replace", replace_method},
      {"join", join_method},
      {"format", format_method},
      {"format_map", format_map_method},
      {"expandtabs", expand_tabs_method},
      {"zfill", zero_fill_method},
      {"isprintable", printable_method},
      {"isidentifier", property_method<is_identifier>},
      {"encode", refused_method<kEncode>},
      {"maketrans", refused_method<kMakeTable>},
      {"translate", refused_method<kTranslate>},
      {"removeprefix", remove_method<false>},
      {"removesuffix", remove_method<true>},
      {"partition", partition_method<false>},
      {"rpartition", partition_method<true>},
      {"rsplit", split_from_end_method},
      {"casefold", case_method<casefold>},
      {"swapcase", case_method<swapcase>},
      {"center", pad_method<Side::kBoth>},
      {"ljust", pad_method<Side::kRight>},
      {"rjust", pad_method<Side::kLeft>},
      {"isalnum", all_method<is_alphanumeric>},
      {"isalpha", all_method<is_alphabetic>},
      {"isdecimal", all_method<is_decimal>},
      {"isdigit", all_method<is_digit>},
      {"isnumeric", all_method<is_numeric>},
      {"isspace", all_method<is_space>},
      {"isascii", property_method<is_ascii>},
      {"islower", property_method<is_lower>},
      {"isupper", property_method<is_upper>},
      {"istitle", property_method<is_title>},
  };
  return methods;
}

}  // namespace wideep::jinja
