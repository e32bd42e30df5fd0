// SPDX-License-Identifier: Apache-2.0
//
// What a reply to a request for text consists of, whichever protocol it is written in.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_parts.h"
#include "engine/engine.h"

namespace wideep::server {

// In bytes: models choose ids of calls themselves, of the function's name for example.
inline constexpr size_t kMaxCallId = 256;

// Which of the APIs a reply is for (api.h).
enum class Api { kCompletion, kChat, kResponses, kMessages };

// The fields that all chunks of a reply have in common.
struct ReplyHead {
  Api api = Api::kCompletion;
  std::string id;       // "cmpl-…", "chatcmpl-…", "resp_…", "msg_…"
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

struct ContextReply;

struct TokenLogprob {
  int32_t id = 0;
  std::string token;  // its text; U+FFFD for a token that is a part of a character
  std::string bytes;
  float logprob = 0.0f;
  bool is_first = false;          // of a prompt: nothing comes before it that could make it likely
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
  std::string_view stop_string = {};            // that has ended it; "": something else
  bool fills_context = false;                   // of kLength: the context ends here, not max_tokens
  const std::string* routed_experts = nullptr;  // null: not returned
  // Null: not returned. Of a stream, the ids of the tokens of this part, and of the prompt in the
  // first part.
  const std::vector<int32_t>* token_ids = nullptr;
  const std::vector<int32_t>* prompt_ids = nullptr;
  const std::vector<TokenLogprob>* prompt_logprobs = nullptr;  // null: not returned
  const struct Usage* usage = nullptr;    // so far, of this answer; null: not returned
  const ContextReply* context = nullptr;  // null: not context only, or not ended
};

// How far the prompt of an answer has come, in tokens. processed includes cached.
struct PromptShare {
  int total = 0;
  int cached = 0;  // found in the KV cache
  int processed = 0;
  int64_t ms = 0;  // since it was begun
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  // Prompt tokens that were not computed: in the KV cache when the request began, wherever they came
  // from.
  int64_t cached_tokens = 0;
  // Those behind them in full pages, which later prompts find.
  int64_t written_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completion tokens
  // To which max_tokens was lowered: the context ends, or the model's files allow no more.
  std::optional<int> clipped_max_tokens = {};
  nlohmann::ordered_json speculation = {};  // AnswerDrafts::json(); null: not reported
  // When the reply is complete, seconds since 1970; 0: now.
  int64_t ended_at = 0;
};

}  // namespace wideep::server
