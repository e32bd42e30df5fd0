// SPDX-License-Identifier: Apache-2.0
//
// The table of a body decides, not its reader: finish() refuses what the table lacks, and also what
// it calls honoured but nobody has taken, so no field is silently without effect. The first
// complaint stays, because later ones may follow from it. JSON is parsed exactly: tools and
// arguments may have integers of any size, which the model should see.
#include "api/body_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/request_fields.h"
#include "base/check.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::server {

using nlohmann::ordered_json;

BodyReader::BodyReader(Bodies kind, std::string_view text) : kind_(kind) { read(text); }

void BodyReader::read(std::string_view text) {
  constexpr std::string_view kGzip = "\x1f\x8b";
  if (text.starts_with(kGzip)) return complain("", "the body is compressed: expected plain JSON");
  // Exact: tools and arguments may have integers of any size, which the model should see.
  auto parsed = formats::parse_exact_json(text, "body", kMaxMembers);
  if (!parsed.ok()) return complain("", parsed.status().message());
  if (!parsed->is_object()) return complain("", "the body is no JSON object");
  body_ = std::move(*parsed);
}

bool BodyReader::knows(std::string_view name) const {
  return find_request_field(name, kind_) != nullptr;
}

const FieldValue& BodyReader::allowed(const char* name, FieldValue::Type type) const {
  const RequestField* field = find_request_field(name, kind_);
  WIDEEP_CHECK(field != nullptr);
  const bool has_range = type == FieldValue::kInteger || type == FieldValue::kNumber;
  WIDEEP_CHECK(field->value.type == type ||
               (!has_range && field->value.type == FieldValue::kOther));
  return field->value;
}

const ordered_json& BodyReader::take(const char* name) {
  WIDEEP_CHECK(knows(name));
  taken_.push_back(name);
  return member_of(body_, name);
}

bool BodyReader::flag(const char* name, bool by_default) {
  allowed(name, FieldValue::kFlag);
  const ordered_json& value = take(name);
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_null()) complain(name, "expected true or false");
  return by_default;
}

std::optional<int64_t> BodyReader::integer(const char* name) {
  const FieldValue& value = allowed(name, FieldValue::kInteger);
  return integer(name, value.min, value.max);
}

std::optional<int64_t> BodyReader::integer(const char* name, int64_t min, int64_t max) {
  const ordered_json& value = take(name);
  if (value.is_null()) return {};
  const bool whole = value.is_number_integer() &&
                     !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
  const int64_t number = whole ? value.get<int64_t>() : 0;
  if (whole && number >= min && number <= max) return number;
  complain(name,
           fmt::format("expected an integer from {} to {}, found {}", min, max, shown(value)));
  return {};
}

std::optional<double> BodyReader::number(const char* name) {
  const FieldValue& range = allowed(name, FieldValue::kNumber);
  const auto min = static_cast<double>(range.min), max = static_cast<double>(range.max);
  const ordered_json& value = take(name);
  if (value.is_null()) return {};
  if (!value.is_number() || value.get<double>() < min || value.get<double>() > max) {
    complain(name,
             fmt::format("expected a number from {} to {}, found {}", min, max, shown(value)));
    return {};
  }
  // As the engine has it: what is the least there is not above it.
  if (range.excludes_min && value.get<float>() <= static_cast<float>(min)) {
    complain(name, fmt::format("expected a number above {}", min));
    return {};
  }
  return value.get<double>();
}

std::vector<std::string> BodyReader::texts(const char* name, const TextLimits& limits) {
  const ordered_json& list = take(name);
  if (list.is_null()) return {};
  const auto is_right = [&](const ordered_json& each) {
    return each.is_string() && !each.get_ref<const std::string&>().empty() &&
           each.get_ref<const std::string&>().size() <= limits.max_bytes;
  };
  if (list.is_array() && list.size() <= limits.max && std::ranges::all_of(list, is_right)) {
    return list.get<std::vector<std::string>>();
  }
  complain(name, fmt::format("expected a list of at most {} texts of 1 to {} bytes, found {}",
                             limits.max, limits.max_bytes, shown(list)));
  return {};
}

std::string BodyReader::string(const char* name) {
  allowed(name, FieldValue::kText);
  const ordered_json& value = take(name);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_null()) complain(name, fmt::format("expected a string, found {}", shown(value)));
  return "";
}

void BodyReader::only(const char* name, const ordered_json& harmless, const char* what) {
  const ordered_json& value = take(name);
  if (value.is_null() || value == harmless) return;
  complain(name, fmt::format("{} is not supported: expected {} or nothing, found {}", what,
                             formats::json_text(harmless), shown(value)));
}

void BodyReader::complain(const std::string& param, const std::string& what) {
  if (error_) return;
  error_ = HttpError{.status = 400,
                     .message = param.empty() ? what : fmt::format("{}: {}", param, what),
                     .param = param};
}

bool BodyReader::check_members(const std::string& place, const ordered_json& object,
                               const NestedFields& fields) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || fields.knows(name)) continue;
    if (!fields.ignores(name)) {
      complain(place + "." + name, "this field is not known");
      return false;
    }
    ignore_member(fields, name);
  }
  return true;
}

void BodyReader::ignore_member(const NestedFields& fields, std::string_view name) {
  ignore(fmt::format("{}.{}", fields.place, name));
}

std::vector<std::string> BodyReader::without_effect() const {
  std::vector<std::string> names(ignored_.begin(), ignored_.end());
  for (const auto& [name, value] : body_.items()) {
    const RequestField* field = find_request_field(name, kind_);
    const bool is_given = field != nullptr && !value.is_null();
    if (is_given && field->use == FieldUse::kWithoutEffect) names.emplace_back(field->name);
  }
  return names;
}

std::optional<HttpError> BodyReader::finish() {
  for (const auto& [name, value] : body_.items()) {
    const RequestField* field = find_request_field(name, kind_);
    const bool is_taken = std::find(taken_.begin(), taken_.end(), name) != taken_.end();
    const bool should_be = field != nullptr &&
                           (field->use == FieldUse::kHonoured || field->use == FieldUse::kOneValue);
    if ((field == nullptr && !value.is_null()) || (should_be && !is_taken)) {
      complain(name, "this field is not known");
    } else if (field != nullptr && field->use == FieldUse::kRefused && !value.is_null()) {
      complain(name, fmt::format("is not supported: expected nothing, found {}", shown(value)));
    }
  }
  return error_;
}

std::string BodyReader::shown(const ordered_json& value) {
  if (const auto* digits = formats::large_integer(value)) return {digits->begin(), digits->end()};
  std::string text = formats::json_text(value);
  constexpr size_t kMaxShown = 60;
  if (text.size() > kMaxShown) {
    return value.is_array() ? fmt::format("a list of {}", value.size())
                            : fmt::format("a value of type {}", value.type_name());
  }
  return text;
}

const ordered_json& member_of(const ordered_json& object, const char* name) {
  static const ordered_json kAbsent;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? kAbsent : *found;
}

}  // namespace wideep::server
