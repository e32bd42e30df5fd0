// SPDX-License-Identifier: Apache-2.0
//
// One recursive descent: $ref, then allOf, anyOf and oneOf, then listed values, then types; each
// takes its keyword away and hands on what is left. A reference becomes a rule, compiled once from
// a queue, so that schemas may refer to themselves.
//
// A grammar cannot say "and". Where two schemas both have to hold they are merged as JSON first
// (schema_merge.h), and what cannot be merged is refused. oneOf is taken where no value can satisfy
// two of its alternatives (are_disjoint), since there it is anyOf.
//
// References and merging can blow a small schema up. So parts are counted (kMaxSchemas), and the
// work of copying and comparing is (SchemaWork).
#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "grammar/json_number.h"
#include "grammar/regex.h"
#include "grammar/schema_merge.h"
#include "grammar/string_formats.h"

namespace wideep::grammar {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxDepth = 64;
constexpr int kMaxCount = 1'000'000;
constexpr int kMaxStep = 1024;
constexpr size_t kMaxSchemas = 20'000;

// Keywords of each type.
const std::set<std::string> kOfNumbers = {"minimum", "maximum", "exclusiveMinimum",
                                          "exclusiveMaximum", "multipleOf"};
const std::set<std::string> kOfStrings = {"minLength", "maxLength", "pattern", "format"};
const std::set<std::string> kOfArrays = {"items", "prefixItems", "minItems", "maxItems",
                                         "uniqueItems"};
const std::set<std::string> kOfObjects = {
    "properties",           "required",          "minProperties", "maxProperties",
    "additionalProperties", "patternProperties", "propertyNames"};
const std::set<std::string> kOfAll = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};

std::string pointer(const std::string& place, std::string_view key) {
  std::string escaped = place + "/";
  for (const char c : key) {
    if (c == '~') {
      escaped += "~0";
    } else if (c == '/') {
      escaped += "~1";
    } else {
      escaped += c;
    }
  }
  return escaped;
}
std::string pointer(const std::string& place, size_t index) {
  return fmt::format("{}/{}", place, index);
}

template <typename... Args>
Status refused(const std::string& place, fmt::format_string<Args...> format, Args&&... args) {
  return invalid_input(place + ": " + fmt::format(format, std::forward<Args>(args)...));
}

bool has(const ordered_json& schema, const char* key) { return schema.contains(key); }

class Compiler {
 public:
  Compiler(const ordered_json& root, const SchemaOptions& options, Rules* rules)
      : root_(root),
        options_(options),
        rules_(rules),
        json_(rules, options.style),
        work_{rules->schema_steps} {}

  Result<Expression> compile() {
    WIDEEP_TRY(work_.add(root_, "#"));
    WIDEEP_TRY_ASSIGN(Expression all, refer("#"));
    // Schemas that others refer to, each once.
    while (!open_.empty()) {
      const Open next = open_.front();
      open_.pop_front();
      WIDEEP_TRY_ASSIGN(Expression body, value(*next.schema, next.place, 0));
      rules_->define(next.rule, std::move(body));
    }
    return all;
  }

 private:
  struct Open {
    const ordered_json* schema = nullptr;
    std::string place;
    int rule = 0;
  };

  // ---- references ----

  Result<const ordered_json*> target_of(const std::string& reference, const std::string& place) {
    if (!reference.starts_with('#')) {
      return refused(place, "expected a place in this schema, as \"#/$defs/name\", found '{}'",
                     reference);
    }
    const ordered_json* at = &root_;
    std::string_view rest = std::string_view(reference).substr(1);
    while (!rest.empty()) {
      if (!rest.starts_with('/')) return refused(place, "'{}' is no JSON pointer", reference);
      rest.remove_prefix(1);
      const size_t end = std::min(rest.find('/'), rest.size());
      const std::string key = unescaped(rest.substr(0, end));
      rest.remove_prefix(end);
      const auto index = at->is_array() ? index_of(key, at->size()) : std::nullopt;
      if (at->is_object() && at->contains(key)) {
        at = &(*at)[key];
      } else if (index) {
        at = &(*at)[*index];
      } else {
        return refused(place, "'{}' is not in this schema", reference);
      }
    }
    return at;
  }
  static std::optional<size_t> index_of(const std::string& digits, size_t size) {
    if (digits.empty() || digits.size() > 9) return {};
    if (digits.find_first_not_of("0123456789") != std::string::npos) return {};
    const auto index = static_cast<size_t>(std::stoul(digits));
    return index < size ? std::optional(index) : std::nullopt;
  }
  // "~1" and percent signs.
  static std::string unescaped(std::string_view key) {
    std::string plain;
    const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    for (size_t i = 0; i < key.size(); ++i) {
      if (key[i] == '~' && i + 1 < key.size()) {
        plain += key[++i] == '1' ? '/' : '~';
      } else if (key[i] == '%' && i + 2 < key.size() && is_hex(key[i + 1]) && is_hex(key[i + 2])) {
        plain += static_cast<char>(std::stoi(std::string(key.substr(i + 1, 2)), nullptr, 16));
        i += 2;
      } else {
        plain += key[i];
      }
    }
    return plain;
  }

  Result<Expression> refer(const std::string& reference, const std::string& place = "#") {
    const auto known = references_.find(reference);
    if (known != references_.end()) return call(known->second);
    WIDEEP_TRY_ASSIGN(const ordered_json* target, target_of(reference, place));
    const int rule = rules_->add(reference);
    references_[reference] = rule;
    open_.push_back({target, reference, rule});
    return call(rule);
  }

  // ---- a schema ----

  // As a rule of its own, so that what is known of it holds wherever it is called.
  Result<Expression> called(const ordered_json& schema, const std::string& place, int depth) {
    WIDEEP_TRY_ASSIGN(Expression body, value(schema, place, depth));
    if (body->kind == ExpressionNode::Kind::kCall) return body;
    return call(rules_->add(place, std::move(body)));
  }

  Result<Expression> value(const ordered_json& schema, const std::string& place, int depth) {
    if (depth > kMaxDepth) return refused(place, "nested more than {} deep", kMaxDepth);
    if (++num_schemas_ > kMaxSchemas) {
      return refused(place, "the schema has more than {} parts", kMaxSchemas);
    }
    if (schema == true) return json_.any_value();
    if (schema == false) return nothing();
    if (!schema.is_object()) return refused(place, "expected an object, true or false");
    WIDEEP_TRY(work_.add(schema, place));
    for (const auto& [key, each] : schema.items()) {
      const bool is_known = kOfAll.contains(key) || kOfNumbers.contains(key) ||
                            kOfStrings.contains(key) || kOfArrays.contains(key) ||
                            kOfObjects.contains(key) || is_annotation(key);
      if (!is_known) return refused(pointer(place, key), "this keyword is not supported");
    }
    if (has(schema, "$ref")) return reference(schema, place, depth);
    if (has(schema, "allOf")) return all_of(schema, place, depth);
    if (has(schema, "anyOf")) return any_of(schema, "anyOf", place, depth);
    if (has(schema, "oneOf")) return any_of(schema, "oneOf", place, depth);
    if (has(schema, "enum") || has(schema, "const")) return listed(schema, place);
    return typed(schema, place, depth);
  }

  static bool constrains(const ordered_json& schema) {
    return std::ranges::any_of(schema.items(),
                               [](const auto& each) { return !is_annotation(each.key()); });
  }

  static ordered_json without(ordered_json schema, const char* key) {
    schema.erase(key);
    return schema;
  }

  Result<Expression> reference(const ordered_json& schema, const std::string& place, int depth) {
    const ordered_json& name = schema["$ref"];
    const std::string where = pointer(place, "$ref");
    if (!name.is_string()) return refused(where, "expected a string");
    const auto target = name.get<std::string>();
    const ordered_json rest = without(schema, "$ref");
    if (!constrains(rest)) return refer(target, where);
    WIDEEP_TRY_ASSIGN(const ordered_json* found, target_of(target, where));
    if (!found->is_object()) return refused(where, "beside other keywords: expected an object");
    WIDEEP_TRY_ASSIGN(const ordered_json both, merge_schemas(*found, rest, place, &work_));
    return value(both, place, depth + 1);
  }

  Result<Expression> all_of(const ordered_json& schema, const std::string& place, int depth) {
    const ordered_json& list = schema["allOf"];
    const std::string where = pointer(place, "allOf");
    if (!list.is_array() || list.empty()) return refused(where, "expected a list of schemas");
    ordered_json all = without(schema, "allOf");
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] == true) continue;
      if (list[i] == false) return nothing();
      if (!list[i].is_object()) return refused(pointer(where, i), "expected a schema");
      // A reference alone needs no merging, and may be to a schema that calls itself.
      if (!constrains(all) && i + 1 == list.size()) {
        return value(list[i], pointer(where, i), depth + 1);
      }
      ordered_json each = list[i];
      if (has(each, "$ref")) {
        WIDEEP_TRY_ASSIGN(each, with_target(each, pointer(where, i), depth));
      }
      WIDEEP_TRY_ASSIGN(all, merge_schemas(all, each, place, &work_));
    }
    return value(all, place, depth + 1);
  }

  // What it refers to, merged into it.
  Result<ordered_json> with_target(ordered_json schema, const std::string& place, int depth) {
    for (; has(schema, "$ref"); ++depth) {
      const std::string where = pointer(place, "$ref");
      if (depth > kMaxDepth) return refused(where, "refers to itself");
      if (!schema["$ref"].is_string()) return refused(where, "expected a string");
      WIDEEP_TRY_ASSIGN(const ordered_json* found,
                        target_of(schema["$ref"].get<std::string>(), where));
      if (!found->is_object()) return refused(where, "expected an object there");
      WIDEEP_TRY_ASSIGN(schema, merge_schemas(*found, without(schema, "$ref"), place, &work_));
    }
    return schema;
  }

  Result<Expression> any_of(const ordered_json& schema, const char* key, const std::string& place,
                            int depth) {
    const ordered_json& list = schema[key];
    const std::string where = pointer(place, key);
    if (!list.is_array() || list.empty()) return refused(where, "expected a list of schemas");
    const ordered_json rest = without(schema, key);
    std::vector<Expression> all;
    std::vector<ordered_json> resolved;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string here = pointer(where, i);
      ordered_json each = list[i];
      const bool is_reference = each.is_object() && has(each, "$ref");
      if (key == std::string_view("oneOf") && list.size() > 1) {
        ordered_json plain = each;
        if (is_reference) {
          WIDEEP_TRY_ASSIGN(plain, with_target(each, here, depth));
        }
        for (size_t j = 0; j < resolved.size(); ++j) {
          WIDEEP_TRY_ASSIGN(const bool differ, are_disjoint(resolved[j], plain, here));
          if (differ) continue;
          return refused(
              here,
              "a value might satisfy this schema and number {} of oneOf, too; use anyOf, "
              "or tell them apart by type or by a required member with a constant",
              j);
        }
        resolved.push_back(std::move(plain));
      }
      if (constrains(rest) && each.is_object()) {
        if (is_reference) {
          WIDEEP_TRY_ASSIGN(each, with_target(each, here, depth));
        }
        WIDEEP_TRY_ASSIGN(each, merge_schemas(rest, each, here, &work_));
      }
      WIDEEP_TRY_ASSIGN(Expression alternative, called(each, here, depth + 1));
      all.push_back(std::move(alternative));
    }
    return choice(std::move(all));
  }

  // Certainly no value satisfies both.
  Result<bool> are_disjoint(const ordered_json& a, const ordered_json& b,
                            const std::string& place) {
    WIDEEP_TRY(work_.add(8, place));
    if (a == false || b == false) return true;
    if (!a.is_object() || !b.is_object()) return false;
    const std::vector<const ordered_json*> first = values_of(a), second = values_of(b);
    if (!first.empty() && !second.empty()) {
      WIDEEP_TRY(work_.add_pairs(first.size(), second.size(), place));
      return std::ranges::none_of(first, [&](const ordered_json* each) {
        return std::ranges::any_of(second,
                                   [&](const ordered_json* other) { return *each == *other; });
      });
    }
    if (types_differ(a, b)) return true;
    if (!is_object_schema(a) || !is_object_schema(b)) return false;
    const std::vector<std::string> names = required_in(a), others = required_in(b);
    WIDEEP_TRY(work_.add_pairs(names.size(), others.size(), place));
    for (const std::string& name : names) {
      if (std::ranges::find(others, name) == others.end()) continue;
      const ordered_json *of_a = property(a, name), *of_b = property(b, name);
      if (of_a == nullptr || of_b == nullptr) continue;
      WIDEEP_TRY_ASSIGN(const bool differ, are_disjoint(*of_a, *of_b, place));
      if (differ) return true;
    }
    return false;
  }
  // Those that `const` or `enum` list; none: it lists none.
  static std::vector<const ordered_json*> values_of(const ordered_json& schema) {
    if (has(schema, "const")) return {&schema["const"]};
    std::vector<const ordered_json*> values;
    if (has(schema, "enum") && schema["enum"].is_array()) {
      for (const ordered_json& each : schema["enum"]) values.push_back(&each);
    }
    return values;
  }
  static bool is_object_schema(const ordered_json& schema) {
    return has(schema, "type") && schema["type"] == "object";
  }
  // Null: it may be anything.
  static const ordered_json* property(const ordered_json& schema, const std::string& name) {
    if (!has(schema, "properties") || !schema["properties"].is_object()) return nullptr;
    const auto found = schema["properties"].find(name);
    return found != schema["properties"].end() ? &*found : nullptr;
  }
  static bool types_differ(const ordered_json& a, const ordered_json& b) {
    const auto first = types_of(a, ""), second = types_of(b, "");
    if (!first.ok() || !second.ok()) return false;
    const auto is_number = [](const std::string& type) {
      return type == "integer" || type == "number";
    };
    return std::ranges::none_of(*first, [&](const std::string& each) {
      return std::ranges::any_of(*second, [&](const std::string& other) {
        return each == other || (is_number(each) && is_number(other));
      });
    });
  }
  static std::vector<std::string> required_in(const ordered_json& schema) {
    std::vector<std::string> names;
    const ordered_json list = schema.value("required", ordered_json::array());
    for (const ordered_json& each : list) {
      if (each.is_string()) names.push_back(each.get<std::string>());
    }
    return names;
  }

  // ---- values that are listed ----

  static bool is_of_type(const ordered_json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    const bool is_large = formats::large_integer(value) != nullptr;
    if (type == "number") return value.is_number() || is_large;
    return value.is_number_integer() || is_large ||
           (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
  }

  Result<Expression> listed(const ordered_json& schema, const std::string& place) {
    for (const auto& [key, each] : schema.items()) {
      if (!is_annotation(key) && key != "enum" && key != "const" && key != "type") {
        return refused(pointer(place, key), "beside enum or const is not supported");
      }
    }
    WIDEEP_TRY_ASSIGN(const auto types, types_of(schema, pointer(place, "type")));
    const bool has_const = has(schema, "const");
    const std::string where = pointer(place, has_const ? "const" : "enum");
    if (!has_const && !schema["enum"].is_array()) return refused(where, "expected a list");
    ordered_json values = has_const ? ordered_json::array({schema["const"]}) : schema["enum"];
    std::vector<Expression> all;
    for (const ordered_json& each : values) {
      const bool is_in_enum = !has_const || !has(schema, "enum") ||
                              std::ranges::find(schema["enum"], each) != schema["enum"].end();
      const bool fits = std::ranges::any_of(
          types, [&](const std::string& type) { return is_of_type(each, type); });
      if (fits && is_in_enum) all.push_back(written(each));
    }
    if (all.empty()) return refused(where, "no value of these satisfies the schema");
    return choice(std::move(all));
  }
  Expression written(const ordered_json& value) const {
    if (const auto* digits = formats::large_integer(value)) {
      return text(std::string(digits->begin(), digits->end()));
    }
    if (!value.is_structured() || value.empty()) return text(formats::json_text(value));
    std::vector<Expression> parts = {text(value.is_object() ? "{" : "["), json_.space()};
    for (const auto& [name, each] : value.items()) {
      if (parts.size() > 2) parts.push_back(json_.separator());
      if (value.is_object()) parts.push_back(json_.key(name));
      parts.push_back(written(each));
    }
    parts.push_back(json_.space());
    parts.push_back(text(value.is_object() ? "}" : "]"));
    return sequence(std::move(parts));
  }

  // Expressions of patterns are larger than their texts.
  Status add_pattern(const std::string& pattern, const std::string& place) {
    return work_.add(64 * pattern.size(), place);
  }

  // ---- types ----

  // Without a type, keywords of one type name it: what they say nothing of is left out.
  static std::optional<std::string> implied_type(const ordered_json& schema) {
    for (const auto& [key, each] : schema.items()) {
      if (kOfObjects.contains(key)) return "object";
      if (kOfArrays.contains(key)) return "array";
      if (kOfStrings.contains(key)) return "string";
      if (kOfNumbers.contains(key)) return "number";
    }
    return {};
  }

  Result<Expression> typed(const ordered_json& schema, const std::string& place, int depth) {
    WIDEEP_TRY_ASSIGN(std::vector<std::string> types, types_of(schema, pointer(place, "type")));
    if (!has(schema, "type")) {
      const auto implied = implied_type(schema);
      if (!implied) return json_.any_value();
      types = {*implied};
    }
    if (types.empty()) return refused(pointer(place, "type"), "no type satisfies the schema");
    std::vector<Expression> all;
    for (const std::string& type : types) {
      WIDEEP_TRY_ASSIGN(Expression each, of_type(type, schema, place, depth));
      all.push_back(std::move(each));
    }
    return choice(std::move(all));
  }

  Result<Expression> of_type(const std::string& type, const ordered_json& schema,
                             const std::string& place, int depth) {
    if (type == "object") return object(schema, place, depth);
    if (type == "array") return array(schema, place, depth);
    if (type == "string") return string(schema, place);
    if (type == "boolean") return json_.boolean();
    if (type == "null") return json_.null();
    return number(schema, place, type == "integer");
  }

  // ---- keywords ----

  // A whole number from 0 on; kNoMax: it is not given.
  Result<int> count(const ordered_json& schema, const char* key, const std::string& place) {
    const auto found = schema.find(key);
    if (found == schema.end()) return kNoMax;
    const bool is_whole = found->is_number() && formats::large_integer(*found) == nullptr &&
                          found->get<double>() >= 0 && found->get<double>() <= kMaxCount &&
                          std::floor(found->get<double>()) == found->get<double>();
    if (is_whole) return static_cast<int>(found->get<double>());
    return refused(pointer(place, key), "expected a whole number from 0 to {}", kMaxCount);
  }
  struct Counts {
    int min = 0, max = kNoMax;
  };
  Result<Counts> counts(const ordered_json& schema, const char* min, const char* max,
                        const std::string& place) {
    Counts counts;
    WIDEEP_TRY_ASSIGN(counts.min, count(schema, min, place));
    WIDEEP_TRY_ASSIGN(counts.max, count(schema, max, place));
    counts.min = std::max(counts.min, 0);
    if (counts.max == kNoMax || counts.min <= counts.max) return counts;
    return refused(pointer(place, min), "expected at most {}, which is {}", max, counts.max);
  }

  Result<Expression> number(const ordered_json& schema, const std::string& place, bool is_whole) {
    NumberBounds bounds;
    const auto add = [&](const char* key, bool is_min, bool is_exclusive) -> Status {
      const auto found = schema.find(key);
      if (found == schema.end()) return {};
      // Draft 4: true beside minimum or maximum.
      if (is_exclusive && found->is_boolean()) {
        return refused(pointer(place, key), "expected a number");
      }
      const auto value = read_decimal(*found);
      if (!value.ok()) return value.status().at(pointer(place, key));
      std::optional<Bound>& bound = is_min ? bounds.min : bounds.max;
      if (bound) {
        return refused(pointer(place, key), "beside {} is not supported",
                       is_min ? "minimum" : "maximum");
      }
      bound = Bound{*value, is_exclusive};
      return {};
    };
    WIDEEP_TRY(add("minimum", true, false));
    WIDEEP_TRY(add("maximum", false, false));
    WIDEEP_TRY(add("exclusiveMinimum", true, true));
    WIDEEP_TRY(add("exclusiveMaximum", false, true));
    const bool has_bounds = bounds.min || bounds.max;
    if (has(schema, "multipleOf")) {
      if (has_bounds) {
        return refused(pointer(place, "multipleOf"), "beside bounds is not supported");
      }
      return multiple(schema["multipleOf"], pointer(place, "multipleOf"), is_whole);
    }
    if (!has_bounds) return is_whole ? json_.integer() : json_.number();
    return is_whole ? integers_between(bounds) : numbers_between(bounds);
  }

  Result<Expression> multiple(const ordered_json& step, const std::string& place, bool is_whole) {
    const auto value = read_decimal(step);
    if (!value.ok()) return value.status().at(place);
    const bool is_positive = !value->is_negative && !value->is_zero();
    if (is_positive && value->fraction.empty() && value->whole.size() <= 4) {
      const int whole = std::stoi(value->whole);
      if (whole == 1) return json_.integer();
      if (whole <= kMaxStep) return multiples_of(whole, rules_);
    }
    const std::string tenth =
        std::string(std::max<size_t>(value->fraction.size(), 1) - 1, '0') + "1";
    if (is_positive && value->whole == "0" && value->fraction == tenth) {
      return is_whole ? json_.integer() : numbers_with_digits(static_cast<int>(tenth.size()));
    }
    return refused(place, "expected a whole number from 1 to {}, or 0.1, 0.01 and so on", kMaxStep);
  }

  Result<Expression> string(const ordered_json& schema, const std::string& place) {
    WIDEEP_TRY_ASSIGN(const Counts length, counts(schema, "minLength", "maxLength", place));
    const bool has_length = length.min > 0 || length.max != kNoMax;
    if (has(schema, "pattern")) {
      const std::string where = pointer(place, "pattern");
      if (has_length || has(schema, "format")) {
        return refused(where, "beside minLength, maxLength or format is not supported");
      }
      if (!schema["pattern"].is_string()) return refused(where, "expected a string");
      WIDEEP_TRY(add_pattern(schema["pattern"].get_ref<const std::string&>(), where));
      auto inside = parse_regex(schema["pattern"].get_ref<const std::string&>(),
                                {.characters = JsonText::characters, .searches = true});
      if (!inside.ok()) return inside.status().at(where);
      return JsonText::quoted(std::move(*inside));
    }
    if (has(schema, "format")) {
      const std::string where = pointer(place, "format");
      if (!schema["format"].is_string()) return refused(where, "expected a string");
      if (auto known = string_format(schema["format"].get_ref<const std::string&>())) {
        if (has_length) return refused(where, "beside minLength or maxLength is not supported");
        return JsonText::quoted(std::move(*known));
      }
    }
    return has_length ? json_.string_of(length.min, length.max) : json_.string();
  }

  Result<Expression> array(const ordered_json& schema, const std::string& place, int depth) {
    WIDEEP_TRY_ASSIGN(const Counts length, counts(schema, "minItems", "maxItems", place));
    const auto unique = schema.find("uniqueItems");
    if (unique != schema.end() && *unique != false) {
      return refused(pointer(place, "uniqueItems"),
                     "expected false or nothing: a grammar cannot "
                     "tell that items differ");
    }
    // As a list, `items` is what prefixItems is now.
    const bool is_old = has(schema, "items") && schema["items"].is_array();
    const char* const first_key = is_old ? "items" : "prefixItems";
    std::vector<Expression> first;
    if (has(schema, first_key)) {
      const std::string where = pointer(place, first_key);
      const ordered_json& list = schema[first_key];
      if (!list.is_array()) return refused(where, "expected a list of schemas");
      for (size_t i = 0; i < list.size(); ++i) {
        WIDEEP_TRY_ASSIGN(Expression each, called(list[i], pointer(where, i), depth + 1));
        first.push_back(std::move(each));
      }
    }
    Expression more = first.empty() ? json_.any_value() : nothing();
    if (!is_old && has(schema, "items")) {
      WIDEEP_TRY_ASSIGN(more, called(schema["items"], pointer(place, "items"), depth + 1));
    }
    if (first.empty()) return json_.list("[", more, "]", length.min, length.max);
    return tuple(first, more, length);
  }

  // Items of their own schemas, then others. A shorter list has the first of them.
  Expression tuple(const std::vector<Expression>& first, const Expression& more, Counts length) {
    const int num_first = static_cast<int>(first.size());
    Expression rest = text("");
    const auto nested = [&](Expression inside, bool is_needed) {
      return is_needed ? inside : optional(std::move(inside));
    };
    if (length.max == kNoMax || length.max > num_first) {
      rest = repeat(sequence({json_.separator(), more}), std::max(0, length.min - num_first),
                    length.max == kNoMax ? kNoMax : length.max - num_first);
    }
    for (int i = num_first; i-- > 0;) {
      if (length.max != kNoMax && i >= length.max) continue;
      std::vector<Expression> parts;
      if (i > 0) parts.push_back(json_.separator());
      parts.push_back(first[static_cast<size_t>(i)]);
      parts.push_back(std::move(rest));
      rest = nested(sequence(std::move(parts)), i < length.min);
    }
    return sequence({text("["), json_.space(), rest, json_.space(), text("]")});
  }

  // ---- objects ----

  struct Member {
    Expression text;
    bool is_required = false;
  };

  Result<Expression> object(const ordered_json& schema, const std::string& place, int depth) {
    WIDEEP_TRY_ASSIGN(const Counts number, counts(schema, "minProperties", "maxProperties", place));
    WIDEEP_TRY_ASSIGN(const std::vector<Member> members, members_of(schema, place, depth));
    WIDEEP_TRY_ASSIGN(const std::optional<Expression> other, other_member(schema, place, depth));
    if (members.empty()) {
      if (!other) {
        return number.min == 0 ? sequence({text("{"), json_.space(), text("}")}) : nothing();
      }
      if (number.min > 1) {
        return refused(pointer(place, "minProperties"),
                       "expected 0 or 1: a grammar cannot tell that names differ");
      }
      return json_.list("{", *other, "}", number.min, number.max);
    }
    const auto num_required = static_cast<int>(
        std::ranges::count_if(members, [](const Member& each) { return each.is_required; }));
    if (number.min > num_required) {
      return refused(pointer(place, "minProperties"),
                     "above the number of required members is not supported beside properties");
    }
    if (number.max != kNoMax && (other || static_cast<int>(members.size()) > number.max)) {
      return refused(pointer(place, "maxProperties"),
                     "below the number of members is not supported beside properties");
    }
    return sequence({text("{"), json_.space(), in_order(members, other, place), text("}")});
  }

  Result<std::vector<Member>> members_of(const ordered_json& schema, const std::string& place,
                                         int depth) {
    std::vector<Member> members;
    std::vector<std::string> required;
    if (has(schema, "required")) {
      if (!schema["required"].is_array()) {
        return refused(pointer(place, "required"), "expected a list of names");
      }
      required = required_in(schema);
      if (required.size() != schema["required"].size()) {
        return refused(pointer(place, "required"), "expected a list of names");
      }
    }
    const std::set<std::string> is_required(required.begin(), required.end());
    std::set<std::string> known;
    const auto add = [&](const std::string& name, const ordered_json& of_value,
                         const std::string& where) -> Status {
      if (!known.insert(name).second) return {};
      if (of_value == false && !is_required.contains(name)) return {};  // never there
      WIDEEP_TRY_ASSIGN(Expression value, called(of_value, where, depth + 1));
      members.push_back({.text = call(rules_->add(where, sequence({json_.key(name), value}))),
                         .is_required = is_required.contains(name)});
      return {};
    };
    if (has(schema, "properties")) {
      const std::string where = pointer(place, "properties");
      if (!schema["properties"].is_object()) return refused(where, "expected an object");
      for (const auto& [name, each] : schema["properties"].items()) {
        WIDEEP_TRY(add(name, each, pointer(where, name)));
      }
    }
    const ordered_json others = schema.value("additionalProperties", ordered_json(true));
    for (const std::string& name : required) {
      WIDEEP_TRY(add(name, others, pointer(place, "required")));
    }
    return members;
  }

  // A member that `properties` does not name; nullopt: there is none.
  Result<std::optional<Expression>> other_member(const ordered_json& schema,
                                                 const std::string& place, int depth) {
    const ordered_json properties = schema.value("properties", ordered_json::object());
    const bool is_open = options_.allows_more_members || !has(schema, "properties");
    ordered_json of_value = schema.value("additionalProperties", ordered_json(is_open));
    std::string where = pointer(place, "additionalProperties");
    Expression key;
    std::vector<std::string> names = required_in(schema);
    for (const auto& [name, each] : properties.items()) names.push_back(name);
    const ordered_json patterns = schema.value("patternProperties", ordered_json::object());
    if (!patterns.empty()) {
      where = pointer(place, "patternProperties");
      const bool is_only = patterns.size() == 1 && names.empty() &&
                           (of_value == false || !has(schema, "additionalProperties")) &&
                           !has(schema, "propertyNames");
      if (!patterns.is_object() || !is_only) {
        return refused(where,
                       "is supported with one pattern, without properties and without "
                       "additional ones");
      }
      const std::string& pattern = patterns.begin().key();
      where = pointer(where, pattern);
      WIDEEP_TRY(add_pattern(pattern, where));
      auto inside = parse_regex(pattern, {.characters = JsonText::characters, .searches = true});
      if (!inside.ok()) return inside.status().at(where);
      key = JsonText::quoted(std::move(*inside));
      of_value = patterns.front();
    } else if (has(schema, "propertyNames")) {
      const std::string of_names = pointer(place, "propertyNames");
      if (!names.empty()) return refused(of_names, "beside properties is not supported");
      ordered_json of_key = schema["propertyNames"];
      if (!of_key.is_object()) return refused(of_names, "expected an object");
      if (!has(of_key, "type")) of_key["type"] = "string";
      WIDEEP_TRY_ASSIGN(key, called(of_key, of_names, depth + 1));
    } else {
      key = names.empty() ? json_.string() : json_.string_other_than(names);
    }
    if (of_value == false) return std::optional<Expression>();
    WIDEEP_TRY_ASSIGN(Expression value, called(of_value, where, depth + 1));
    return std::optional(
        call(rules_->add(where, sequence({key, text(":"), json_.space(), value}))));
  }

  // The members in their order, of which those that are not required may be left out, then any
  // number of other ones.
  //
  //   behind(i): members from i on, each after a comma;  first(i): the same, without one before
  //
  // As rules that end with the next one, because as one expression they take the square of their
  // number where the first ones may be left out.
  Expression in_order(const std::vector<Member>& members, const std::optional<Expression>& other,
                      const std::string& place) {
    const Expression comma = json_.separator();
    Expression behind = text("");
    if (other) behind = repeat(sequence({comma, *other}), 0, kNoMax);
    Expression first = text("");
    bool may_be_empty = true;
    if (other) first = sequence({*other, behind});
    for (size_t i = members.size(); i-- > 0;) {
      const Member& member = members[i];
      Expression from_here = sequence({member.text, behind});
      first = member.is_required ? from_here : call(rules_->add(place, choice({from_here, first})));
      may_be_empty &= !member.is_required;
      if (i == 0) break;
      Expression next = sequence({comma, member.text});
      if (!member.is_required) next = optional(std::move(next));
      behind = call(rules_->add(place, sequence({std::move(next), behind})));
    }
    first = sequence({std::move(first), json_.space()});
    return may_be_empty ? optional(std::move(first)) : first;
  }

  const ordered_json& root_;
  const SchemaOptions& options_;
  Rules* rules_;
  JsonText json_;
  std::map<std::string, int> references_;
  std::deque<Open> open_;
  size_t num_schemas_ = 0;
  SchemaWork work_;
};

}  // namespace

Result<Expression> add_json_schema(const ordered_json& schema, const SchemaOptions& options,
                                   Rules* rules) {
  return Compiler(schema, options, rules).compile();
}

}  // namespace wideep::grammar
