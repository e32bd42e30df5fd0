// SPDX-License-Identifier: Apache-2.0
//
// The form of an error, by the API that a client speaks: Anthropic's clients read another one than
// OpenAI's.
//
// Thread safety: immutable; pure functions.
#pragma once

#include <string>
#include <string_view>

#include "http/http_error.h"
#include "http/http_request_reader.h"

namespace wideep::server {

struct ErrorStyle {
  bool names_requests = false;  // replies have the header request-id
  int (*status)(const HttpError& error);
  // The body. request_id: "": none, or not known.
  std::string (*body)(const HttpError& error, std::string_view request_id);
};

extern const ErrorStyle kOpenAiErrors, kAnthropicErrors;

// That of the API that the request is for: it shows in the path, and where several have the path,
// in a header.
const ErrorStyle& errors_for(const RequestHead& head);

// The ErrorForm for an HTTP server (HttpOptions): of a request that no endpoint has seen.
std::string error_form(const RequestHead& head, const HttpError& error);

}  // namespace wideep::server
