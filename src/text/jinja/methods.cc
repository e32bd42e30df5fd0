// SPDX-License-Identifier: Apache-2.0
//
// Python's methods of strings, dicts and lists; attributes, items and elements of values.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/known_names.h"
#include "jinja/python_text.h"
#include "jinja/string_methods.h"

namespace wideep::jinja {
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
    if (kind == ListKind::kKeys) all.push_back(key);
    if (kind == ListKind::kValues) all.push_back(value);
    if (kind == ListKind::kItems) all.emplace_back(List{key, value}, ListKind::kTuple);
  }
  return Value(std::move(all), kind);
}

// The entry of a dict, or null. Errors: the key has no hash.
Result<const Value*> entry_of(const Dict& dict, const Value& key, Budget& budget) {
  if (key.is_string()) return dict.find(key.string());
  WIDEEP_TRY_ASSIGN(const std::string text, key_text(key, budget));
  return dict.find(text);
}

ValueResult get_method(const Value& self, const Arguments& arguments) {
  ArgumentReader reader("get", arguments);
  const Value key = reader.value("key");
  Value fallback = reader.value_or("default", Value());
  WIDEEP_TRY(reader.status());
  WIDEEP_TRY_ASSIGN(const Value* found, entry_of(self.dict(), key, arguments.budget));
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
  if (value.is_range()) return &tuple_methods();
  return value.is_list() && !value.is_view() ? &list_methods() : nullptr;
}

// The methods that change a list or dict: Jinja's ImmutableSandboxedEnvironment makes them
// undefined, with a text that says why.
bool is_forbidden(const Value& value, std::string_view name) {
  constexpr std::string_view kOfLists[] = {"append", "clear",  "extend",  "insert",
                                           "pop",    "remove", "reverse", "sort"};
  constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (value.is_dict()) return std::ranges::find(kOfDicts, name) != std::end(kOfDicts);
  return value.is_list() && value.list_kind() == ListKind::kList &&
         std::ranges::find(kOfLists, name) != std::end(kOfLists);
}

// ---- text marked as safe ----

Value marked_safe(const Value& value) {
  if (value.is_string()) return Value::safe(value.string());
  if (!value.is_list()) return value;
  List marked;
  for (const Value& each : value.list()) marked.push_back(marked_safe(each));
  return Value(std::move(marked), value.list_kind());
}

// As Python's Markup: every text that a method returns is safe again. What a method puts into the
// text would be escaped, which no chat template asks for.
ValueResult call_of_safe(Method method, const Value& self, const Arguments& arguments) {
  for (const char* name : {"format", "join", "replace"}) {
    if (method == string_methods().at(name)) {
      return invalid_input(
          fmt::format("method '{}': chat templates do not use it of text marked as safe", name));
    }
  }
  WIDEEP_TRY_ASSIGN(const Value result, method(self, arguments));
  return marked_safe(result);
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

Result<std::string> key_text(const Value& key, Budget& budget) {
  std::optional<std::string> text = key.hash_text(budget);
  if (budget.spent()) return budget.status();
  if (text) return *std::move(text);
  return invalid_input(
      fmt::format("a value of type {} cannot be the key of a dict", key.type_name()));
}

Value method_of(const Value& value, std::string_view name) {
  if (is_forbidden(value, name)) {
    return Undefined{
        fmt::format("'{}' of a {} would change it: the sandbox of templates forbids it", name,
                    value.type_name())};
  }
  if (value.is_range()) {
    const RangeBounds bounds = value.range();
    if (name == "start") return bounds.start;
    if (name == "stop") return bounds.stop;
    if (name == "step") return bounds.step;
  }
  if (value.is_string() && is_other_string_method(name)) {
    return Undefined{not_used("method", name, string_methods())};
  }
  const Methods* methods = methods_of(value);
  const auto found = methods == nullptr ? Methods::const_iterator() : methods->find(name);
  if (methods == nullptr || found == methods->end()) return no_attribute(value, name);
  return Value(
      Function([self = value, method = found->second](const Arguments& arguments) -> ValueResult {
        // Charged in advance: every method of a string may read all of it.
        const size_t bytes = self.is_string() ? self.string().size() : 0;
        if (!arguments.budget.spend_bytes(bytes)) return arguments.budget.status();
        return self.is_safe() ? call_of_safe(method, self, arguments) : method(self, arguments);
      }),
      value.depth() + 1);
}

ValueResult attribute_of(const Value& value, std::string_view name) {
  if (value.is_undefined()) return invalid_input(value.undefined().what);
  if (value.is_object()) {
    const Value* attribute = value.object().attributes.find(name);
    return attribute != nullptr ? *attribute : no_attribute(value, name);
  }
  // As in Jinja, a method comes before an entry with the same key.
  Value method = method_of(value, name);
  if (!method.is_undefined() || !value.is_dict() || is_forbidden(value, name)) return method;
  const Value* entry = value.dict().find(name);
  return entry != nullptr ? *entry : method;
}

ValueResult item_of(const Value& value, const Value& index, Budget& budget) {
  if (value.is_undefined()) return invalid_input(value.undefined().what);
  if (value.is_object() && index.is_string()) return attribute_of(value, index.string());
  if (value.is_dict()) {
    // As in Jinja, an index without a hash is one that is not there.
    const std::optional<std::string> key = index.hash_text(budget);
    const Value* entry = key ? value.dict().find(*key) : nullptr;
    if (entry != nullptr) return *entry;
    return index.is_string() ? method_of(value, index.string())
                             : no_attribute(value, index_text(index));
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
      all.push_back(key);
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
    WIDEEP_TRY_ASSIGN(const Value* entry, entry_of(container.dict(), item, budget));
    return entry != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is_list()) {
    return invalid_input(fmt::format("a value of type {} is not iterable", container.type_name()));
  }
  if (container.list_kind() == ListKind::kKeys) {
    WIDEEP_TRY_ASSIGN([[maybe_unused]] const std::string key, key_text(item, budget));
  }
  return std::any_of(container.list().begin(), container.list().end(),
                     [&](const Value& each) { return equal(each, item, budget); });
}

}  // namespace wideep::jinja
