// SPDX-License-Identifier: Apache-2.0
//
// Strict JSON parser: RFC 8259, UTF-8 only, no duplicate keys in an object, bounded nesting.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::formats {

// The deepest nesting of objects and arrays that parse_json accepts.
inline constexpr size_t kMaxJsonDepth = 128;

// Errors (invalid input): "<name>:<line>:<column>: <what>"; lines and columns count from 1, columns
// in bytes. An integer that fits neither int64 nor uint64 becomes a double, as in nlohmann::json.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& name);

// The same with the members in their order, and integers of any size with all digits: see
// large_integer(). For what is shown to a model, where every digit counts. Errors: also an object
// of more than max_members; a look-up of a member scans the object, so that reading all costs the
// square of their number.
Result<nlohmann::ordered_json> parse_exact_json(std::string_view text, const std::string& name,
                                                size_t max_members = SIZE_MAX);

// The digits, with a sign if negative, of an integer that fits neither int64 nor uint64, as
// parse_exact_json() reads it; null: the value is something else. JSON text cannot forge one: such
// an integer is a binary value, which JSON does not have.
const std::vector<uint8_t>* large_integer(const nlohmann::ordered_json& value);

// Describes a value for a message: "null", "true", "3.5", "'text'", "a list of 3", "an object".
std::string describe(const nlohmann::json& value);

}  // namespace wideep::formats
