// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters, after "|".
#include "jinja/filters.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "jinja/builtins.h"
#include "jinja/known_names.h"

namespace wideep::jinja {
namespace {

const Filters& all_filters() {
  static const Filters filters = [] {
    Filters all = text_filters();
    all.insert(list_filters().begin(), list_filters().end());
    return all;
  }();
  return filters;
}

FilterFunction filter_named(std::string_view name) {
  const auto found = all_filters().find(name);
  return found == all_filters().end() ? nullptr : found->second;
}

}  // namespace

Status unfit(std::string_view argument, std::string_view expected, const Value& found) {
  return invalid_input(
      fmt::format("{}: expected {}, found {}", argument, expected, found.type_name()));
}

Value kept_safe(const Value& input, std::string text) {
  return input.is_string() ? input.with_text(std::move(text)) : Value(std::move(text));
}

Result<int64_t> length_of(const Value& value, Budget& budget) {
  if (value.is_list()) return static_cast<int64_t>(value.list().size());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().entries().size());
  if (value.is_string()) return Characters(value.string()).count();
  WIDEEP_TRY_ASSIGN(const List all, elements_of(value, budget));
  return static_cast<int64_t>(all.size());
}

bool is_filter(std::string_view name) { return filter_named(name) != nullptr; }

Status unknown_filter(std::string_view name) {
  return invalid_input(not_used("filter", name, all_filters()));
}

ValueResult apply_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  const FilterFunction filter = filter_named(name);
  if (filter == nullptr) return unknown_filter(name);
  // Charged in advance: every filter of a string may read all of it.
  const size_t bytes = input.is_string() ? input.string().size() : 0;
  if (!arguments.budget.spend_bytes(64 + bytes)) return arguments.budget.status();
  ArgumentReader reader(name, arguments);
  ValueResult result = filter(input, reader);
  WIDEEP_TRY(reader.status());
  if (!result.ok()) return result.status().at(std::string(name));
  return result;
}

}  // namespace wideep::jinja
