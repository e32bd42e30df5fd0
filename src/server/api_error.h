// SPDX-License-Identifier: Apache-2.0
//
// What a client is told when its request cannot be served: a status of HTTP, and OpenAI's error
// object, {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

namespace wideep::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // the field of the request; "": null
  std::string code = {};   // for programs; "": null

  std::string json() const;
};

}  // namespace wideep::server
