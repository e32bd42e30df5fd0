// SPDX-License-Identifier: Apache-2.0
//
// Keyword by keyword: bounds take the stricter value, lists of values and of types what they have
// in common, lists of names all of them; schemas of items and members are joined by an allOf, which
// is merged when it is compiled. Two keywords that cannot become one are an error and not a guess:
// an answer must satisfy both schemas.
#include "grammar/schema_merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/try.h"

namespace wideep::grammar {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

constexpr std::string_view kAnnotations[] = {
    "$anchor",          "$comment",      "$defs",    "$id",         "$schema",    "contentEncoding",
    "contentMediaType", "contentSchema", "default",  "definitions", "deprecated", "description",
    "discriminator",    "example",       "examples", "id",          "readOnly",   "title",
    "writeOnly"};

// Both sets of values.
ordered_json common(const ordered_json& a, const ordered_json& b) {
  ordered_json both = ordered_json::array();
  for (const ordered_json& each : a) {
    if (std::ranges::find(b, each) != b.end()) both.push_back(each);
  }
  return both;
}

ordered_json all_of(const ordered_json& a, const ordered_json& b) {
  return {{"allOf", ordered_json::array({a, b})}};
}

// The larger or the smaller of two numbers; null: they are none.
ordered_json stricter(const std::string& key, const ordered_json& a, const ordered_json& b) {
  if (!a.is_number() || !b.is_number()) return {};
  const bool takes_larger = key.starts_with("min") || key == "exclusiveMinimum";
  return (a < b) == takes_larger ? b : a;
}

Result<ordered_json> merge_types(const ordered_json& a, const ordered_json& b,
                                 const std::string& place) {
  WIDEEP_TRY_ASSIGN(const auto first, types_of({{"type", a}}, place));
  WIDEEP_TRY_ASSIGN(const auto second, types_of({{"type", b}}, place));
  const auto has = [](const std::vector<std::string>& types, std::string_view type) {
    return std::ranges::find(types, type) != types.end();
  };
  ordered_json both = ordered_json::array();
  for (const std::string_view type : kTypes) {
    const bool is_integer = type == "integer";
    const bool in_first = has(first, type) || (is_integer && has(first, "number"));
    const bool in_second = has(second, type) || (is_integer && has(second, "number"));
    const bool is_covered = is_integer && has(first, "number") && has(second, "number");
    if (in_first && in_second && !is_covered) both.push_back(type);
  }
  return both;
}

ordered_json merge_properties(const ordered_json& a, const ordered_json& b) {
  ordered_json both = a;
  for (const auto& [name, schema] : b.items()) {
    const auto found = both.find(name);
    if (found == both.end()) {
      both[name] = schema;
    } else if (*found != schema) {
      *found = all_of(*found, schema);
    }
  }
  return both;
}

ordered_json merge_required(const ordered_json& a, const ordered_json& b) {
  ordered_json both = a;
  for (const ordered_json& each : b) {
    if (std::ranges::find(both, each) == both.end()) both.push_back(each);
  }
  return both;
}

// Where one of two schemas allows no members but its own, those of the other one must be its own.
bool closes_members(const ordered_json& closed, const ordered_json& other) {
  if (closed.value("additionalProperties", ordered_json(true)) != false) return true;
  const ordered_json own = closed.value("properties", ordered_json::object());
  const ordered_json others = other.value("properties", ordered_json::object());
  return std::ranges::all_of(others.items(),
                             [&](const auto& each) { return own.contains(each.key()); });
}

Result<ordered_json> merge_keyword(const std::string& key, const ordered_json& a,
                                   const ordered_json& b, const std::string& place) {
  if (a == b) return a;
  if (key == "type") return merge_types(a, b, place + "/type");
  if (key == "properties" && a.is_object() && b.is_object()) return merge_properties(a, b);
  if (key == "required" && a.is_array() && b.is_array()) return merge_required(a, b);
  if (key == "enum" && a.is_array() && b.is_array()) return common(a, b);
  if (key == "const") return ordered_json();  // replaced by an empty enum
  if (key == "items") return all_of(a, b);
  if (key == "allOf" && a.is_array() && b.is_array()) {
    ordered_json both = a;
    both.insert(both.end(), b.begin(), b.end());
    return both;
  }
  if (key == "additionalProperties") {
    return a == false || b == false ? ordered_json(false) : all_of(a, b);
  }
  for (const std::string_view bound :
       {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
        "minItems", "maxItems", "minProperties", "maxProperties"}) {
    if (key != bound) continue;
    ordered_json both = stricter(key, a, b);
    if (!both.is_null()) return both;
  }
  return invalid_input(fmt::format(
      "{}/{}: two different values, of schemas that both have to hold, are not supported", place,
      key));
}

// Values of a schema, inner ones too.
size_t parts_of(const ordered_json& value) {
  if (value.is_string()) return 1 + value.get_ref<const std::string&>().size() / 64;
  size_t parts = 1;
  if (!value.is_structured()) return parts;
  for (const ordered_json& each : value) parts += parts_of(each);
  return parts;
}

size_t members_of(const ordered_json& schema, const std::string& key) {
  const auto found = schema.find(key);
  return found != schema.end() && found->is_structured() ? found->size() : 0;
}

}  // namespace

Status SchemaWork::add(size_t more, const std::string& place) {
  steps += std::min(more, kMax + 1);
  if (steps <= kMax) return {};
  return invalid_input(
      fmt::format("{}: the schema takes too much work to put together; make it smaller", place));
}

Status SchemaWork::add(const ordered_json& copied, const std::string& place) {
  return add(parts_of(copied), place);
}

Status SchemaWork::add_pairs(size_t a, size_t b, const std::string& place) {
  return b > 0 && a > kMax / b ? add(kMax + 1, place) : add(a * b, place);
}

bool is_annotation(const std::string& keyword) {
  return keyword.starts_with("x-") ||
         std::ranges::find(kAnnotations, keyword) != std::end(kAnnotations);
}

Result<std::vector<std::string>> types_of(const ordered_json& schema, const std::string& place) {
  const auto type = schema.find("type");
  if (type == schema.end()) {
    return std::vector<std::string>{"object", "array", "string", "number", "boolean", "null"};
  }
  const ordered_json list = type->is_array() ? *type : ordered_json::array({*type});
  std::vector<std::string> types;
  for (const ordered_json& each : list) {
    const std::string name = each.is_string() ? each.get<std::string>() : "";
    if (std::ranges::find(kTypes, name) == std::end(kTypes)) {
      return invalid_input(
          fmt::format("{}: expected {}, or a list of these", place, fmt::join(kTypes, ", ")));
    }
    types.push_back(name);
  }
  return types;
}

Result<ordered_json> merge_schemas(const ordered_json& a, const ordered_json& b,
                                   const std::string& place, SchemaWork* work) {
  WIDEEP_TRY(work->add(a, place));
  WIDEEP_TRY(work->add(b, place));
  for (const char* const key : {"enum", "required", "properties"}) {
    WIDEEP_TRY(work->add_pairs(members_of(a, key), members_of(b, key), place));
  }
  if (!closes_members(a, b) || !closes_members(b, a)) {
    return invalid_input(
        fmt::format("{}: additionalProperties: false, beside members of another schema that has to "
                    "hold too, is "
                    "not supported",
                    place));
  }
  ordered_json both = a;
  for (const auto& [key, value] : b.items()) {
    const auto found = both.find(key);
    if (found == both.end()) {
      both[key] = value;
      continue;
    }
    if (is_annotation(key)) continue;
    const bool was_const = key == "const" && *found != value;
    WIDEEP_TRY_ASSIGN(ordered_json merged, merge_keyword(key, *found, value, place));
    both[key] = std::move(merged);
    if (!was_const) continue;
    both.erase("const");
    both["enum"] = ordered_json::array();
  }
  return both;
}

}  // namespace wideep::grammar
