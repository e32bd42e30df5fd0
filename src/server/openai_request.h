// SPDX-License-Identifier: Apache-2.0
//
// The bodies of /v1/completions, /v1/chat/completions and vLLM's /scale_elastic_ep.
//
// A field of OpenAI's reference that wideep does not support is refused by name if it would change
// the answer; unknown fields are refused too. Additional fields, as other servers have them: top_k,
// ignore_eos (generate max_tokens even after an end token), speculative ("off": without drafts),
// chat_template_kwargs, chat_template (the name of one of the model's templates),
// routed_experts_prompt_start (the first token whose experts are returned), and vLLM's names for
// what the answer has to be: structured_outputs, guided_json and its kin, beside response_format.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "grammar/output_format.h"
#include "server/api_error.h"

namespace wideep::server {

// Text, or the ids of tokens.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct GenerationOptions {
  std::string model;
  std::optional<int> max_tokens;
  engine::SamplingParams sampling;  // seed is 0 unless has_seed
  bool has_seed = false;
  int n = 1;  // answers to each prompt
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool ignore_eos = false;
  bool speculates = true;
  std::optional<int> experts_start;  // routed_experts_prompt_start
  std::vector<std::string> stop;
  std::optional<grammar::OutputFormat> format;  // of the answer
  engine::SharedGrammar grammar = nullptr;      // the same, compiled (server/preparation.h)
};

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;
};

struct ChatRequest {
  GenerationOptions options;
  nlohmann::ordered_json messages;   // an array of objects with a role
  nlohmann::ordered_json tools;      // null: none
  nlohmann::ordered_json variables;  // chat_template_kwargs, or null
  std::string chat_template;         // the name of one of the model's; "": the usual one
};

struct ScaleRequest {
  int64_t num_ranks = 0;          // new_data_parallel_size
  int64_t timeout_seconds = 120;  // drain_timeout
};

// The request, or why it is refused: status 400.
template <typename Request>
using Parsed = std::variant<Request, ApiError>;
Parsed<CompletionRequest> parse_completion_request(std::string_view body);
Parsed<ChatRequest> parse_chat_request(std::string_view body);
Parsed<ScaleRequest> parse_scale_request(std::string_view body);

}  // namespace wideep::server
