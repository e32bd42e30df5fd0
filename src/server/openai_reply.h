// SPDX-License-Identifier: Apache-2.0
//
// The JSON of OpenAI's answers: whole, or as chunks of a stream.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace wideep::server {

// Which of the two answers.
enum class Api { kCompletion, kChat };

// What all chunks of an answer have in common.
struct ReplyHead {
  Api api = Api::kCompletion;
  std::string id;       // "cmpl-…", "chatcmpl-…"
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

struct TokenLogprob {
  std::string token;  // its text; of a token that is part of a character, U+FFFD
  std::string bytes;
  float logprob = 0.0f;
  int64_t text_offset = 0;        // in the answer, in code points
  std::vector<TokenLogprob> top;  // the likeliest in its place, as many as were asked for
};

// A part of an answer, or all of it.
struct ReplyPart {
  int index = 0;  // of the answer
  std::string_view text;
  bool first = false;                                   // of a stream: tells the role
  const std::vector<TokenLogprob>* logprobs = nullptr;  // null: not asked for
  engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompts, that were not computed again
};

nlohmann::ordered_json whole_reply(const ReplyHead& head, const std::vector<ReplyPart>& answers,
                                   const Usage& usage);

// As one line of JSON.
std::string json_text(const nlohmann::ordered_json& json);

// The events of a stream. A token costs its own text: what chunks have in common is written once.
class EventWriter {
 public:
  EventWriter(const ReplyHead& head, bool usage_follows);

  // Each adds an event to `events`. part.text: UTF-8.
  void add_chunk(const ReplyPart& part, std::string* events) const;
  void add_usage(const Usage& usage, std::string* events) const;
  static void add_last(std::string* events) { *events += "data: [DONE]\n\n"; }

 private:
  Api api_;
  std::string head_;  // up to the choices
  std::string end_;   // after them
};

}  // namespace wideep::server
