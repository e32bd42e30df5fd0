// SPDX-License-Identifier: Apache-2.0
//
// The reply to a request that cannot be served: an HTTP status, and OpenAI's error object,
// {"error": {"message", "type", "param", "code"}}.
//
// Thread safety: a plain value.
#pragma once

#include <string>

namespace wideep::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // the wrong field of the request; "": null
  std::string code = {};   // for programs; "": null
  std::string allow = {};  // with status 405: the header Allow

  std::string json() const;
};

}  // namespace wideep::server
