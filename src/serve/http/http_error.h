// SPDX-License-Identifier: Apache-2.0
//
// The reply to a request that cannot be served: an HTTP status, and what a client should know.
// Which form it has is the API's (HttpOptions::error_form); where nobody says, it is the object
// that most clients read, {"error": {"message", "type", "param", "code"}}.
//
// Thread safety: a plain value.
#pragma once

#include <string>

namespace wideep::server {

struct HttpError {
  int status = 400;
  std::string message;
  std::string param = {};  // the wrong field of the request; "": null
  std::string code = {};   // for programs; "": null
  std::string allow = {};  // with status 405: the header Allow

  std::string json() const;
};

}  // namespace wideep::server
