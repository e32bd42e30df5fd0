// SPDX-License-Identifier: Apache-2.0
//
// JSON values as text. Bytes that are not UTF-8, which JSON cannot hold, become U+FFFD: prompts and
// file names may contain some.
//
// All code that writes JSON calls these functions, because nlohmann's templates for it take a
// second to compile. Thread safety: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace wideep::formats {

// indent: spaces per level; −1: everything on one line.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// On one line, with all digits of integers as parse_exact_json() reads them.
std::string exact_json_text(const nlohmann::ordered_json& value);

// Appends a text as it stands between the quotes of a JSON string. By hand, because this runs for
// every token of a stream. REQUIRES: UTF-8.
void add_json_characters(std::string_view text, std::string* out);

}  // namespace wideep::formats
