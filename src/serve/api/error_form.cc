// SPDX-License-Identifier: Apache-2.0
#include "api/error_form.h"

#include "api/messages_reply.h"

namespace wideep::server {

const ErrorStyle kOpenAiErrors{
    .status = [](const HttpError& error) { return error.status; },
    .body = [](const HttpError& error, std::string_view) { return error.json(); }};

const ErrorStyle kAnthropicErrors{
    .names_requests = true, .status = messages_status, .body = messages_error};

const ErrorStyle& errors_for(const RequestHead& head) {
  return is_anthropic(head) ? kAnthropicErrors : kOpenAiErrors;
}

std::string error_form(const RequestHead& head, const HttpError& error) {
  return errors_for(head).body(error, "");
}

}  // namespace wideep::server
