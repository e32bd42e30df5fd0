// SPDX-License-Identifier: Apache-2.0
//
// The fields of a body of OpenAI's /v1/responses, as request_fields.h has those of the other
// bodies.
//
// Thread safety: immutable.
#pragma once

#include <span>
#include <string>

#include "api/request_field.h"

namespace wideep::server {

std::span<const RequestField> responses_fields();

// A row for each field, as docs/serve.md has it.
std::string responses_fields_markdown();

}  // namespace wideep::server
