// SPDX-License-Identifier: Apache-2.0
//
// Putting text and numbers into an HTML page whose places for them are marks like @TITLE@.
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace wideep::formats {

// Text as it may stand between tags and in attributes.
std::string escape_html(std::string text);

// One line of JSON without any '<', so that it can stand inside <script>.
std::string script_json(const nlohmann::ordered_json& value);

// `page` with each mark @NAME@ of `values` replaced. Other marks stay; values are not searched.
std::string fill_marks(std::string_view page,
                       const std::map<std::string_view, std::string>& values);

}  // namespace wideep::formats
