// SPDX-License-Identifier: Apache-2.0
//
// The bodies of /v1/completions, /v1/chat/completions and vLLM's /tokenize, /detokenize and
// /scale_elastic_ep. Their fields are those of request_fields.h; unknown ones are refused.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/parsed.h"
#include "api/text_request.h"
#include "run/sampling_defaults.h"

namespace wideep::server {

struct TokenizeRequest {
  std::string model;  // "": not given
  bool is_chat = false;
  std::string prompt;  // else
  ChatRequest chat;
  bool add_special_tokens = true;
  bool returns_strings = false;  // the tokens as texts, too
};

struct DetokenizeRequest {
  std::string model;  // "": not given
  std::vector<int32_t> tokens;
};

struct ScaleRequest {
  int64_t num_ranks = 0;          // new_data_parallel_size
  int64_t timeout_seconds = 120;  // drain_timeout
};

// The request, or why it is refused: status 400. defaults: what is not said of how tokens are
// drawn.
Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const run::SamplingDefaults& defaults = {});
Parsed<ChatRequest> parse_chat_request(std::string_view body,
                                       const run::SamplingDefaults& defaults = {});
Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body);
Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body);
Parsed<ScaleRequest> parse_scale_request(std::string_view body);

}  // namespace wideep::server
