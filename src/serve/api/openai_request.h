// SPDX-License-Identifier: Apache-2.0
//
// The bodies of /v1/completions, /v1/chat/completions and vLLM's /tokenize, /detokenize and
// /scale_elastic_ep. Their fields are those of request_fields.h; unknown ones are refused.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/generation_options.h"
#include "http/api_error.h"
#include "run/sampling_defaults.h"

namespace wideep::server {

// Text, or the ids of tokens.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;
};

struct ChatRequest {
  GenerationOptions options;
  nlohmann::ordered_json messages;         // an array of objects with a role
  const char* messages_name = "messages";  // for messages of errors
  // Of messages, other members than OpenAI's: for templates that read them.
  struct Member {
    std::string path, name;
  };
  std::vector<Member> template_members = {};
  nlohmann::ordered_json tools;  // null: none, or none may be called
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string named_tool;  // of kNamed; one of the tools
  bool parallel_tool_calls = true;
  std::string reasoning_effort;  // "": not given
  bool include_reasoning = true;
  nlohmann::ordered_json variables;   // chat_template_kwargs, or null
  std::string chat_template;          // the name of one of the model's; "": the usual one
  std::string prefill;                // how the answer begins, as the client has it; "": anyhow
  bool add_generation_prompt = true;  // always, but to be tokenised
  // Where the template fails with messages of role system after others, they become the user's.
  bool folds_systems = false;
  // For templates that have the date in the prompt.
  std::time_t now = std::time(nullptr);

  bool must_call() const {
    return tool_choice == ToolChoice::kRequired || tool_choice == ToolChoice::kNamed;
  }
};

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
template <typename Request>
using Parsed = std::variant<Request, ApiError>;
Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const run::SamplingDefaults& defaults = {});
Parsed<ChatRequest> parse_chat_request(std::string_view body,
                                       const run::SamplingDefaults& defaults = {});
Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body);
Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body);
Parsed<ScaleRequest> parse_scale_request(std::string_view body);

}  // namespace wideep::server
