// SPDX-License-Identifier: Apache-2.0
//
// The bodies of Anthropic's /v1/messages and /v1/messages/count_tokens. Their fields are those of
// messages_fields.h; unknown ones are refused. What they ask for becomes a chat as OpenAI's body
// has it, so that one path leads on from there:
//
//   system                                 a message of role system
//   text                                   content; several, also of turns that follow each other
//                                          with the same role, with an empty line between them
//   thinking                               reasoning_content; redacted_thinking is left out
//   tool_use                               tool_calls
//   tool_result                            a message of role tool; is_error: begins with "Error: ";
//                                          an image: a text that says so
//   a last message of role assistant       prefill
//   tools, input_schema                    functions, parameters
//   tool_choice any, tool                  required, a function's name
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "api/parsed.h"
#include "api/text_request.h"
#include "run/sampling_defaults.h"

namespace wideep::server {

Parsed<ChatRequest> parse_messages_request(std::string_view body,
                                           const run::SamplingDefaults& defaults = {});
// options: only the model.
Parsed<ChatRequest> parse_count_tokens_request(std::string_view body);

}  // namespace wideep::server
