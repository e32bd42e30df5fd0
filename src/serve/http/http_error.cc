// SPDX-License-Identifier: Apache-2.0
#include "http/http_error.h"

#include "formats/json_text.h"

#include <nlohmann/json.hpp>

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    case 500:
    case 503:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

ordered_json or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

}  // namespace

std::string HttpError::json() const {
  const ordered_json error = {{"error",
                               {{"message", message},
                                {"type", type_of(status)},
                                {"param", or_null(param)},
                                {"code", or_null(code)}}}};
  return formats::json_text(error) + "\n";
}

}  // namespace wideep::server
