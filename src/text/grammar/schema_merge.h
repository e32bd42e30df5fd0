// SPDX-License-Identifier: Apache-2.0
//
// Two JSON schemas that both have to hold, as one. Internal to json_schema.cc.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::grammar {

// The types that a schema's `type` names; all of them without one, and "integer" only if it is
// named. Errors (invalid input): no type of JSON Schema.
Result<std::vector<std::string>> types_of(const nlohmann::ordered_json& schema,
                                          const std::string& place);

// What was spent on the schemas of an answer: parts of schemas that were read or copied, and pairs
// of values that were compared. Schemas that refer to others can ask for any number of both, and a
// request may have thousands of schemas.
struct SchemaWork {
  static constexpr size_t kMax = size_t{1} << 22;  // some tenths of a second
  size_t& steps;                                   // of all together

  // Errors (invalid input): more than kMax.
  Status add(size_t more, const std::string& place);
  Status add(const nlohmann::ordered_json& copied, const std::string& place);
  Status add_pairs(size_t a, size_t b, const std::string& place);
};

// Objects both. Errors (invalid input): a keyword whose two values cannot become one, with the
// place; too much work.
Result<nlohmann::ordered_json> merge_schemas(const nlohmann::ordered_json& a,
                                             const nlohmann::ordered_json& b,
                                             const std::string& place, SchemaWork* work);

// Keywords that say nothing about a value's text.
bool is_annotation(const std::string& keyword);

}  // namespace wideep::grammar
