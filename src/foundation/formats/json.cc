// SPDX-License-Identifier: Apache-2.0
//
// An accessor reports the first error and returns something harmless, so that a reader of settings
// is a list of lines without checks in between; the caller looks at status() once. After an error
// an object is an empty view that still knows its path.
#include "formats/json.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/spelling.h"
#include "base/try.h"
#include "formats/json_parse.h"

namespace wideep::formats {
namespace {

using nlohmann::json;

// The view that object() returns after an error: all its accessors find nothing.
const json& empty_object() {
  static const json empty = json::object();
  return empty;
}

std::string expected_found(const std::string& expected, const json& found) {
  return fmt::format("expected {}, found {}", expected, describe(found));
}

// nlohmann::json has three types of numbers. A float with an integral value counts as an integer.
std::optional<int64_t> as_integer(const json& value, const IntegerRange& range) {
  std::optional<int64_t> integer;
  if (value.is_number_unsigned()) {
    if (std::in_range<int64_t>(value.get<uint64_t>())) integer = value.get<int64_t>();
  } else if (value.is_number_integer()) {
    integer = value.get<int64_t>();
  } else if (value.is_number_float()) {
    integer = exact_integer(value.get<double>());
  }
  return integer && range.contains(*integer) ? integer : std::nullopt;
}

std::optional<double> as_number(const json& value, const NumberRange& range) {
  if (!value.is_number() || !range.contains(value.get<double>())) return std::nullopt;
  return value.get<double>();
}

}  // namespace

const json* JsonObject::find(std::string_view key) const {
  if (asked_ != nullptr) asked_->insert(path_of(key));
  const auto& members = value_->get_ref<const json::object_t&>();
  const auto found = members.find(key);
  return found == members.end() || found->second.is_null() ? nullptr : &found->second;
}

std::string JsonObject::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

bool JsonObject::has(std::string_view key) const { return find(key) != nullptr; }

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_->get_ref<const json::object_t&>()) keys.push_back(key);
  return keys;
}

std::vector<std::string> JsonObject::unasked_keys() const {
  std::vector<std::string> unasked;
  for (const auto& [key, value] : value_->get_ref<const json::object_t&>()) {
    if (value.is_null() || (asked_ != nullptr && asked_->contains(path_of(key)))) continue;
    unasked.push_back(key);
  }
  return unasked;
}

void JsonObject::complain(std::string_view key, std::string_view what) const {
  complaint_->report(path_of(key), what);
}

const json* JsonObject::require(std::string_view key, const std::string& expected) const {
  const json* value = find(key);
  // After the first error the message would not be used: do not search for a suggestion.
  if (value == nullptr && complaint_->status().ok()) {
    std::vector<std::string> others = keys();
    std::erase(others, key);  // present but null: no suggestion
    complain(key, fmt::format("missing; expected {}{}", expected, base::did_you_mean(key, others)));
  }
  return value;
}

int64_t JsonObject::integer(std::string_view key, IntegerRange range) const {
  return require(key, describe(range)) == nullptr ? 0 : integer_or(key, 0, range);
}

int64_t JsonObject::integer_or(std::string_view key, int64_t fallback, IntegerRange range) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  const std::optional<int64_t> integer = as_integer(*value, range);
  if (!integer) complain(key, expected_found(describe(range), *value));
  return integer.value_or(fallback);
}

double JsonObject::number(std::string_view key, NumberRange range) const {
  return require(key, describe(range)) == nullptr ? 0 : number_or(key, 0, range);
}

double JsonObject::number_or(std::string_view key, double fallback, NumberRange range) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  const std::optional<double> number = as_number(*value, range);
  if (!number) complain(key, expected_found(describe(range), *value));
  return number.value_or(fallback);
}

bool JsonObject::boolean(std::string_view key) const {
  return require(key, "true or false") == nullptr ? false : boolean_or(key, false);
}

bool JsonObject::boolean_or(std::string_view key, bool fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  complain(key, expected_found("true or false", *value));
  return fallback;
}

std::string JsonObject::string(std::string_view key) const {
  return require(key, "a string") == nullptr ? "" : string_or(key, "");
}

std::string JsonObject::string_or(std::string_view key, std::string fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get_ref<const std::string&>();
  complain(key, expected_found("a string", *value));
  return fallback;
}

std::vector<int64_t> JsonObject::integers(std::string_view key, IntegerRange range) const {
  if (require(key, "a list of integers") == nullptr) return {};
  return integers_or(key, {}, range);
}

std::vector<int64_t> JsonObject::integers_or(std::string_view key, std::vector<int64_t> fallback,
                                             IntegerRange range) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_array()) {
    complain(key, expected_found("a list of integers", *value));
    return fallback;
  }
  std::vector<int64_t> integers;
  for (const json& element : *value) {
    const std::optional<int64_t> integer = as_integer(element, range);
    if (!integer) {
      complain(fmt::format("{}[{}]", key, integers.size()),
               expected_found(describe(range), element));
      return fallback;
    }
    integers.push_back(*integer);
  }
  return integers;
}

JsonObject JsonObject::object(std::string_view key) const {
  const json* value = require(key, "an object");
  if (value != nullptr && !value->is_object()) {
    complain(key, expected_found("an object", *value));
    value = nullptr;
  }
  // After an error the view is empty but has its path, so that callers can go on without a check.
  return {value == nullptr ? &empty_object() : value, path_of(key), complaint_, asked_};
}

Result<JsonDocument> JsonDocument::read(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const std::string text, read_file(path));
  return parse(text, path);
}

Result<JsonDocument> JsonDocument::parse(std::string_view text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(json value, parse_json(text, name));
  if (!value.is_object()) {
    return invalid_input(fmt::format("{}: {}", name, expected_found("an object", value)));
  }
  JsonDocument document;
  document.value_ = std::make_unique<json>(std::move(value));
  document.complaint_ = std::make_unique<Complaint>(name);
  return document;
}

}  // namespace wideep::formats
