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
#include "chat/string_methods.h"

namespace wideep::chat {
namespace {

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

Status no_key(const Value& value) {
  return invalid_input(
      fmt::format("a value of type {} cannot be the key of a dict", value.type_name()));
}

ValueResult get_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("get", arguments);
  const Value key = reader.value("key");
  Value fallback = reader.value_or("default", Value());
  WIDEEP_TRY(reader.status());
  if (!key.is_hashable()) return no_key(key);
  // Keys are always strings here: any other key is absent.
  const Value* found = key.is_string() ? self.dict().find(key.string()) : nullptr;
  return found != nullptr ? *found : std::move(fallback);
}

// A copy: values never change.
ValueResult copy_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("copy", arguments);
  WIDEEP_TRY(reader.status());
  return self;
}

const Methods& dict_methods() {
  static const Methods methods = {{"keys", parts_method<ListKind::kKeys>},
                                  {"values", parts_method<ListKind::kValues>},
                                  {"items", parts_method<ListKind::kItems>},
                                  {"get", get_method},
                                  {"copy", copy_method}};
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

const Methods& tuple_methods() {
  static const Methods methods = {{"count", count_method}, {"index", index_method}};
  return methods;
}

const Methods& list_methods() {
  static const Methods methods = {
      {"count", count_method}, {"index", index_method}, {"copy", copy_method}};
  return methods;
}

const Methods* methods_of(const Value& value) {
  if (value.is_string()) return &string_methods();
  if (value.is_dict()) return &dict_methods();
  if (value.is_tuple()) return &tuple_methods();
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
    if (!item.is_hashable()) return no_key(item);
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
