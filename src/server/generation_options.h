// SPDX-License-Identifier: Apache-2.0
//
// What a request for text asks of its answers, whichever endpoint it came to.
//
// Thread safety: a plain value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "grammar/output_format.h"
#include "server/reply_writer.h"

namespace wideep::server {

struct AnswerPlan;

struct GenerationOptions {
  std::string model;
  std::optional<int> max_tokens;
  // An answer that would exceed the context ends with it; else such a request is refused.
  bool clips_to_context = false;
  bool is_clipped = false;          // max_tokens was lowered for it
  engine::SamplingParams sampling;  // seed is 0 unless has_seed
  std::vector<engine::TokenBias> bias;
  bool has_seed = false;
  int n = 1;  // answers to each prompt
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool ignore_eos = false;
  bool speculates = true;
  std::optional<int> experts_start;  // routed_experts_prompt_start
  std::vector<std::string> stop;
  std::vector<std::string_view> without_effect = {};  // names of such fields that the request has
  std::shared_ptr<const AnswerPlan> answer;     // of a chat, once its template is known; else null
  std::optional<grammar::OutputFormat> format;  // of the answer
  engine::SharedGrammar grammar = nullptr;      // the same, compiled (server/preparation.h)
  MakeReplyWriter make_writer = nullptr;        // of the reply; null: OpenAiReply
  std::string kept = {};                        // for another process (Generation::kept_of)
  const char* max_tokens_name = "max_tokens";   // for messages
};

}  // namespace wideep::server
