// SPDX-License-Identifier: Apache-2.0
#include "api/error_form.h"

#include "api/messages_reply.h"

namespace wideep::server {

std::string error_form(const RequestHead& head, const ApiError& error) {
  return is_anthropic(head) ? messages_error(error, "") : error.json();
}

}  // namespace wideep::server
