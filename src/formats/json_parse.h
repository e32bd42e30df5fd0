// SPDX-License-Identifier: Apache-2.0
//
// JSON text to values, strictly: RFC 8259, UTF-8 only, no key twice in an object, bounded nesting.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::formats {

// The deepest nesting of objects and arrays that parse_json accepts.
inline constexpr size_t kMaxJsonDepth = 128;

// Errors (invalid input): "<name>:<line>:<column>: <what>", both from 1, columns in bytes.
// An integer that neither int64 nor uint64 holds becomes a double, as in nlohmann::json.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& name);

// A value in the words of a message: "null", "true", "3.5", "'text'", "a list of 3", "an object".
std::string describe(const nlohmann::json& value);

}  // namespace wideep::formats
