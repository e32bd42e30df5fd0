// SPDX-License-Identifier: Apache-2.0
//
// vLLM's fields about single tokens: which may come, which end an answer, and which of them a reply
// shows.
//
// Thread safety: pure functions.
#pragma once

#include "api/body_reader.h"
#include "api/generation_options.h"

namespace wideep::server {

// min_tokens, stop_token_ids, allowed_token_ids, bad_words, include_stop_str_in_output,
// skip_special_tokens, return_token_ids, prompt_logprobs. After max_tokens, stream and the format
// of the answer.
void read_token_fields(BodyReader& body, GenerationOptions& options);

// thinking_token_budget, or Anthropic's budget_tokens; null: none.
void read_thought_limit(BodyReader& body, const std::string& param,
                        const nlohmann::ordered_json& value, GenerationOptions& options);

}  // namespace wideep::server
