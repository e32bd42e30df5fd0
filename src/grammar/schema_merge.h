// SPDX-License-Identifier: Apache-2.0
//
// Two JSON schemas that both have to hold, as one. Internal to json_schema.cc.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "wideep/status.h"

namespace wideep::grammar {

// The types that a schema's `type` names; all of them without one, and "integer" only if it is
// named. Errors (invalid input): no type of JSON Schema.
Result<std::vector<std::string>> types_of(const nlohmann::ordered_json& schema,
                                          const std::string& place);

// Objects both. Errors (invalid input): a keyword whose two values cannot become one, with the
// place.
Result<nlohmann::ordered_json> merge_schemas(const nlohmann::ordered_json& a,
                                             const nlohmann::ordered_json& b,
                                             const std::string& place);

// Keywords that say nothing about a value's text.
bool is_annotation(const std::string& keyword);

}  // namespace wideep::grammar
