// SPDX-License-Identifier: Apache-2.0
#include "formats/json_text.h"

#include <nlohmann/json.hpp>

namespace wideep::formats {

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace wideep::formats
