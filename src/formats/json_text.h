// SPDX-License-Identifier: Apache-2.0
//
// JSON values as text. Bytes that are no UTF-8, which JSON cannot hold, become U+FFFD: a prompt or
// the name of a file may have some.
//
// Here, not at each place that writes JSON, because nlohmann's templates for it take a second to
// compile.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace wideep::formats {

// indent: spaces of a level; −1: all in one line.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace wideep::formats
