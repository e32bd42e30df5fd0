// SPDX-License-Identifier: Apache-2.0
//
// What a request for text asks of its answers, whichever endpoint it came to.
//
// Thread safety: a plain value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/output_format.h"
#include "schedule/request.h"

namespace wideep::server {

struct AnswerPlan;
struct SharedPrompt;
struct ResponsePlan;

struct GenerationOptions {
  std::string model;
  std::optional<int> max_tokens;
  std::vector<int> max_tokens_of;  // for each prompt, once it is known
  bool fills_context = false;      // max_tokens is all that the context has
  bool is_clipped = false;         // max_tokens was lowered, as the context ends before
  std::optional<int> clipped_to;   // what it was lowered to, for whatever reason
  // For each answer, as the engine takes it: how tokens are drawn, the format of the answer
  // (`format`, compiled), and whatever else a body says that only the engine reads. Its prompt, its
  // tokens and its rules are set when it is submitted. The seed is 0 unless has_seed.
  engine::Request engine_request = {};
  engine::TokenRules rules = {};            // but bad_words, and the tokens around thoughts
  std::vector<std::string> bad_words = {};  // until their tokens are in the rules
  std::string thought_name = {};            // the field that limits thoughts; "": none does
  bool includes_stop = false;               // what has ended an answer is a part of its text
  bool skips_special_tokens = true;         // else they have text
  bool returns_token_ids = false;
  std::optional<int> prompt_logprobs = {};   // likely tokens beside each one of the prompt
  bool echo = false;                         // answers begin with their prompts
  std::vector<std::string> echo_texts = {};  // of the prompts
  bool continuous_usage = false;             // each chunk of a stream has it
  bool has_seed = false;
  int n = 1;  // answers to each prompt
  bool stream = false;
  bool include_usage = false;
  bool returns_progress = false;  // of prompts, in a stream, before their answers begin
  bool logprobs = false;
  std::optional<int> experts_start;  // routed_experts_prompt_start
  std::vector<std::string> stop;
  std::vector<std::string> without_effect = {};  // names of such fields that the request has
  std::shared_ptr<const AnswerPlan> answer;      // of a chat, once its template is known; else null
  std::optional<grammar::OutputFormat> format;   // of the answer
  std::shared_ptr<const ResponsePlan> response;  // of OpenAI's responses; else null
  // Its prompt is computed for another server, or by another one (disaggregated_params); else null.
  std::shared_ptr<const SharedPrompt> shared_prompt;
  std::string peer_refusal = {};  // why nothing is taken from its peer; "": it is, or there is none
  // For another process (AnswerHead::Local), until it is in the journal.
  std::string kept = {};
  size_t held_bytes = 0;  // of this and all else that the request holds until its answers end
  const char* max_tokens_name = "max_tokens";  // for messages

  // Whether the tokens of prompts have log-probabilities.
  bool scores_prompts() const { return prompt_logprobs.has_value() || (echo && logprobs); }
  // Whether other random numbers would give the same answer, or there is only one choice of them.
  bool has_one_answer() const {
    const engine::SamplingParams& sampling = engine_request.sampling;
    return has_seed || sampling.temperature == 0 || sampling.top_k == 1;
  }
};

}  // namespace wideep::server
