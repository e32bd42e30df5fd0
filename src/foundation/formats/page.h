// SPDX-License-Identifier: Apache-2.0
//
// Fills an HTML page, in which marks such as @TITLE@ stand for text and data.
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace wideep::formats {

// Escapes text for use between tags and in attributes with double quotes.
std::string escape_html(std::string text);

// One line of JSON without any '<', so that it can stand inside <script>.
std::string script_json(const nlohmann::ordered_json& value);

// Replaces each mark @NAME@ whose NAME is in `values`. Other marks stay; marks inside values are
// not replaced.
std::string fill_marks(std::string_view page,
                       const std::map<std::string_view, std::string>& values);

}  // namespace wideep::formats
