// SPDX-License-Identifier: Apache-2.0
//
// What the answers of a model are written in: how it marks its reasoning, and how it calls tools.
//
// Thread safety: a plain value.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/call_format.h"
#include "answer/reasoning_format.h"

namespace wideep::answer {

struct AnswerFormat {
  const ReasoningFormat* reasoning = nullptr;  // null: nothing in an answer is reasoning
  const CallFormat* calls = nullptr;           // null: nothing is a call
  // OpenAI's, with channels for both (harmony_answer.h); then the others are null.
  bool is_harmony = false;

  // For AnswerParts.
  bool holds_space() const {
    return calls != nullptr ||
           (reasoning != nullptr && (!reasoning->content_end.empty() || reasoning->has_own_tokens));
  }
  bool is_plain() const { return reasoning == nullptr && calls == nullptr && !is_harmony; }
  // The texts that decide where a part of an answer begins or ends.
  std::vector<std::string_view> markers() const;
  // "tool calls: hermes, reasoning: qwen3"
  std::string description() const;
};

// The special tokens of harmony. A model whose tokenizer has all of them writes it.
std::span<const std::string_view> harmony_tokens();

}  // namespace wideep::answer
