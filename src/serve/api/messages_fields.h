// SPDX-License-Identifier: Apache-2.0
//
// The fields of the bodies of Anthropic's /v1/messages and /v1/messages/count_tokens, as those of
// request_fields.h: what is done with each. Names mean other things there than in OpenAI's bodies.
//
// Thread safety: immutable.
#pragma once

#include <span>
#include <string>

#include "api/request_field.h"

namespace wideep::server {

std::span<const RequestField> messages_fields();

// The table as Markdown, for docs/serve.md.
std::string messages_fields_markdown();

}  // namespace wideep::server
