// SPDX-License-Identifier: Apache-2.0
//
// Python's methods of strings, dicts and lists; attributes, items and elements of values.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/try.h"
#include "chat/arguments.h"
#include "chat/builtins.h"
#include "chat/python_text.h"

namespace wideep::chat {
namespace {

using Method = ValueResult (*)(const Value& self, const Arguments& arguments);
using Methods = std::map<std::string_view, Method>;

List list_of(const std::vector<std::string>& texts) { return List(texts.begin(), texts.end()); }

// ---- strings ----

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
  const int64_t limit = reader.integer_or("maxsplit", -1);
  WIDEEP_TRY(reader.status());
  if (separator.is_none()) return list_of(split(self.string(), {}, limit, arguments.budget));
  if (!separator.is_string() || separator.string().empty()) {
    return invalid_input("split: expected a separator that is a string and not empty");
  }
  return list_of(split(self.string(), separator.string(), limit, arguments.budget));
}

// The argument is a string, or a tuple of strings of which one must match.
template <bool at_end>
ValueResult starts_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader(at_end ? "endswith" : "startswith", arguments);
  const Value wanted = reader.value("prefix");
  WIDEEP_TRY(reader.status());
  const List all = wanted.is_tuple() ? wanted.list() : List{wanted};
  for (const Value& each : all) {
    if (!arguments.budget.spend(1)) return arguments.budget.status();
    if (!each.is_string()) {
      return invalid_input(fmt::format("{}: expected a string or a tuple of strings, found {}",
                                       at_end ? "endswith" : "startswith", each.type_name()));
    }
    const std::string_view text = self.string();
    if (at_end ? text.ends_with(each.string()) : text.starts_with(each.string())) return true;
  }
  return false;
}

template <std::string (*change)(std::string_view)>
ValueResult case_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("case", arguments);
  WIDEEP_TRY(reader.status());
  return change(self.string());
}

template <int64_t (*number)(std::string_view, std::string_view)>
ValueResult search_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("find", arguments);
  const std::string what = reader.string("sub");
  WIDEEP_TRY(reader.status());
  return number(self.string(), what);
}

ValueResult replace_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("replace", arguments);
  const std::string from = reader.string("old"), to = reader.string("new");
  const int64_t limit = reader.integer_or("count", -1);
  WIDEEP_TRY(reader.status());
  return replace(self.string(), from, to, limit, arguments.budget);
}

ValueResult split_lines_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("splitlines", arguments);
  WIDEEP_TRY(reader.status());
  return list_of(split_lines(self.string(), arguments.budget));
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

ValueResult is_digit_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("isdigit", arguments);
  WIDEEP_TRY(reader.status());
  return !self.string().empty() &&
         self.string().find_first_not_of("0123456789") == std::string::npos;
}

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
      {"find", search_method<find>},
      {"count", search_method<count>},
      {"replace", replace_method},
      {"join", join_method},
      {"isdigit", is_digit_method},
  };
  return methods;
}

// ---- dicts ----

// A view of a dict holds its elements, because dicts never change.
template <ListKind kind>
ValueResult parts_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("items", arguments);
  WIDEEP_TRY(reader.status());
  List all;
  for (const auto& [key, value] : self.dict().entries()) {
    if (!arguments.budget.spend(1)) return arguments.budget.status();
    if (kind == ListKind::kKeys) all.emplace_back(key);
    if (kind == ListKind::kValues) all.push_back(value);
    if (kind == ListKind::kItems) all.emplace_back(List{key, value}, ListKind::kTuple);
  }
  return Value(std::move(all), kind);
}

ValueResult get_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("get", arguments);
  const Value key = reader.value("key");
  Value fallback = reader.value_or("default", Value());
  WIDEEP_TRY(reader.status());
  // Keys are always strings here: any other key is absent.
  const Value* found = key.is_string() ? self.dict().find(key.string()) : nullptr;
  return found != nullptr ? *found : std::move(fallback);
}

const Methods& dict_methods() {
  static const Methods methods = {{"keys", parts_method<ListKind::kKeys>},
                                  {"values", parts_method<ListKind::kValues>},
                                  {"items", parts_method<ListKind::kItems>},
                                  {"get", get_method}};
  return methods;
}

// ---- lists ----

ValueResult count_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("count", arguments);
  const Value wanted = reader.value("value");
  WIDEEP_TRY(reader.status());
  return std::count_if(self.list().begin(), self.list().end(),
                       [&](const Value& each) { return equal(each, wanted, arguments.budget); });
}

ValueResult index_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("index", arguments);
  const Value wanted = reader.value("value");
  WIDEEP_TRY(reader.status());
  for (size_t i = 0; i < self.list().size(); ++i) {
    if (equal(self.list()[i], wanted, arguments.budget)) return static_cast<int64_t>(i);
  }
  return invalid_input("index: the value is not in the list");
}

const Methods& list_methods() {
  static const Methods methods = {{"count", count_method}, {"index", index_method}};
  return methods;
}

const Methods* methods_of(const Value& value) {
  if (value.is_string()) return &string_methods();
  if (value.is_dict()) return &dict_methods();
  return value.is_list() && !value.is_view() ? &list_methods() : nullptr;
}

// The longest name that an error message contains: names come from the template's data.
constexpr size_t kShownBytes = 200;

Value no_attribute(const Value& value, std::string_view name) {
  const std::string owner = value.is_none() ? "None" : fmt::format("{} object", value.type_name());
  if (name.size() > kShownBytes) name = "…";
  return Undefined{fmt::format("'{}' has no attribute '{}'", owner, name)};
}

// An index for a message: its text if that is short, else its type. It has its own budget, so that
// a message about a huge index costs little.
std::string index_text(const Value& index) {
  Budget enough(kShownBytes);
  const std::string text = to_text(index, enough);
  return enough.spent() ? index.type_name() : text;
}

// Python's rule: a negative index counts from the end. Nothing: out of range.
std::optional<size_t> element_index(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || index >= static_cast<int64_t>(size)) return {};
  return static_cast<size_t>(index);
}

}  // namespace

Value method_of(const Value& value, std::string_view name) {
  const Methods* methods = methods_of(value);
  const auto found = methods == nullptr ? Methods::const_iterator() : methods->find(name);
  if (methods == nullptr || found == methods->end()) return no_attribute(value, name);
  return Value(
      Function([self = value, method = found->second](const Arguments& arguments) -> ValueResult {
        // Charged in advance: every method of a string may read all of it.
        const size_t bytes = self.is_string() ? self.string().size() : 0;
        if (!arguments.budget.spend_bytes(bytes)) return arguments.budget.status();
        return method(self, arguments);
      }),
      value.depth() + 1);
}

ValueResult attribute_of(const Value& value, std::string_view name) {
  if (value.is_undefined()) return invalid_input(value.undefined().what);
  if (value.is_safe()) {
    return invalid_input(fmt::format("'{}' of text marked as safe is not supported", name));
  }
  if (value.is_object()) {
    const Value* attribute = value.object().attributes.find(name);
    return attribute != nullptr ? *attribute : no_attribute(value, name);
  }
  // As in Jinja, a method comes before an entry with the same key.
  Value method = method_of(value, name);
  if (!method.is_undefined() || !value.is_dict()) return method;
  const Value* entry = value.dict().find(name);
  return entry != nullptr ? *entry : method;
}

ValueResult item_of(const Value& value, const Value& index, Budget& budget) {
  if (value.is_undefined()) return invalid_input(value.undefined().what);
  if (value.is_object() && index.is_string()) return attribute_of(value, index.string());
  if (value.is_dict() && index.is_string()) {
    const Value* entry = value.dict().find(index.string());
    return entry != nullptr ? *entry : method_of(value, index.string());
  }
  const bool is_index = index.is_integer() || index.is_bool();
  if (value.is_list() && !value.is_view() && is_index) {
    const auto at = element_index(index.integer(), value.list().size());
    if (at) return value.list()[*at];
  }
  if (value.is_string() && is_index) {
    if (!budget.spend_bytes(value.string().size())) return budget.status();
    const Characters all(value.string());
    const auto at = element_index(index.integer(), static_cast<size_t>(all.count()));
    if (at)
      return value.with_text(std::string(*std::next(all.begin(), static_cast<ptrdiff_t>(*at))));
  }
  return index.is_string() ? method_of(value, index.string())
                           : no_attribute(value, index_text(index));
}

Result<List> elements_of(const Value& value, Budget& budget) {
  if (value.is_undefined()) return List();
  List all;
  if (value.is_list()) {
    if (!budget.spend(value.list().size())) return budget.status();
    return value.list();
  }
  if (value.is_string()) {
    for (const std::string_view c : Characters(value.string())) {
      if (!budget.spend(1)) return budget.status();
      all.emplace_back(std::string(c));
    }
    return all;
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().entries()) {
      if (!budget.spend(1)) return budget.status();
      all.emplace_back(key);
    }
    return all;
  }
  return invalid_input(fmt::format("a value of type {} is not iterable", value.type_name()));
}

Result<bool> is_in(const Value& item, const Value& container, Budget& budget) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return invalid_input(
          fmt::format("in: expected a string to search in a string, found {}", item.type_name()));
    }
    if (!budget.spend_bytes(container.string().size())) return budget.status();
    return position_in(container.string(), item.string()) != std::string::npos;
  }
  if (container.is_dict()) {
    return item.is_string() && container.dict().find(item.string()) != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is_list()) {
    return invalid_input(fmt::format("a value of type {} is not iterable", container.type_name()));
  }
  return std::any_of(container.list().begin(), container.list().end(),
                     [&](const Value& each) { return equal(each, item, budget); });
}

}  // namespace wideep::chat
