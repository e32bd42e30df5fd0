// SPDX-License-Identifier: Apache-2.0
//
// The JSON of OpenAI's answers: whole, or as chunks of a stream.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_parts.h"
#include "engine/engine.h"
#include "server/api_error.h"

namespace wideep::server {

// Which of OpenAI's two endpoints a reply is for.
enum class Api { kCompletion, kChat };

// The fields that all chunks of a reply have in common.
struct ReplyHead {
  Api api = Api::kCompletion;
  std::string id;       // "cmpl-…", "chatcmpl-…"
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

struct TokenLogprob {
  std::string token;  // its text; U+FFFD for a token that is a part of a character
  std::string bytes;
  float logprob = 0.0f;
  int64_t text_offset = 0;        // in the answer, in code points
  std::vector<TokenLogprob> top;  // [top_log_probabilities] the likeliest tokens at this position
};

// A part of an answer, or all of it.
struct ReplyPart {
  int index = 0;  // of the answer
  std::string_view text;
  std::string_view reasoning = {};  // of a chat; before `text`
  // Of a chat: the calls of tools, or what has come of them; null: none. Each begins in the part
  // that has its first CallPart, whose id is set.
  const std::vector<answer::CallPart>* calls = nullptr;
  bool has_called = false;  // a tool, in this part or before: that is then why it has finished
  bool first = false;       // of a stream: contains the role
  const std::vector<TokenLogprob>* logprobs = nullptr;  // null: not requested
  engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
  const std::string* routed_experts = nullptr;  // null: not returned
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;                // prompt tokens that were found in the KV cache
  nlohmann::ordered_json speculation = {};  // AnswerDrafts::json(); null: not reported
};

nlohmann::ordered_json whole_reply(const ReplyHead& head, const std::vector<ReplyPart>& answers,
                                   const Usage& usage);

// As one line of JSON.
std::string json_text(const nlohmann::ordered_json& json);

// Writes the events of a stream. The part that all chunks have in common is formatted once, so that
// a token costs only its own text.
class EventWriter {
 public:
  EventWriter(const ReplyHead& head, bool usage_follows);

  // Each adds an event to `events`. part.text, part.reasoning: UTF-8.
  void add_chunk(const ReplyPart& part, std::string* events) const;
  void add_usage(const Usage& usage, std::string* events) const;
  // As OpenAI's clients expect it: they raise it as an error of the API.
  static void add_error(const ApiError& error, std::string* events) {
    *events += "data: " + error.json() + "\n";
  }
  static void add_last(std::string* events) { *events += "data: [DONE]\n\n"; }

 private:
  Api api_;
  std::string head_;  // up to the choices
  std::string end_;   // after them
};

}  // namespace wideep::server
