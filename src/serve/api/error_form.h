// SPDX-License-Identifier: Apache-2.0
//
// The form of an error, by the API that a client speaks: Anthropic's clients read another one than
// OpenAI's. For all whom the HTTP server refuses before an endpoint sees them (HttpOptions), and
// for the router of replicas.
//
// Thread safety: a pure function.
#pragma once

#include <string>

#include "http/api_error.h"
#include "http/http_request_reader.h"

namespace wideep::server {

// An ErrorForm. The API shows in the path, and where several have it, in a header.
std::string error_form(const RequestHead& head, const ApiError& error);

}  // namespace wideep::server
