// SPDX-License-Identifier: Apache-2.0
//
// How the answers to chats are read: for each chat template of a model, which format its answers
// have and which special tokens mark their parts; for each request, what of it is wanted.
//
// Thread safety: pure functions; the structs are immutable once they are made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_reader.h"
#include "tokenizer/tokenizer.h"
#include "wideep/status.h"

namespace wideep::server {

// The formats, by vLLM's names; "auto": as the template shows; "none": nothing is told apart.
struct ParserNames {
  std::string tool_calls = "auto";
  std::string reasoning = "auto";

  // Errors (invalid input): a name that there is not; the message has all.
  Status check() const;
};

// Of a chat template.
struct AnswerStyle {
  answer::AnswerFormat format;
  bool calls_tools = false;  // a request's tools can be called
  // Special tokens that are markers of the format, or parts of one: they have text in an answer.
  // Ascending.
  std::vector<int32_t> markers;
  std::vector<std::string> marker_names;  // of these
  // Earlier reasoning is read as message.thinking, not message.reasoning_content.
  bool reads_thinking = false;
  bool knows_developer = false;              // the role
  std::vector<std::string> efforts = {};     // of reasoning, that it names; from the least on
  bool refuses_efforts = false;              // others than these
  std::set<std::string, std::less<>> names;  // all words of the template

  bool marks(int32_t token) const;
  // What the template calls an effort of a request: where it refuses others, the next higher one
  // that it names. "": nothing. Of "none", what switches reasoning off.
  std::string effort_for(std::string_view asked) const;
};

// REQUIRES: names.check() has passed. Errors (invalid input): a format that the tokenizer lacks the
// tokens of.
Result<AnswerStyle> answer_style(std::string_view template_text,
                                 const tokenizer::Tokenizer& tokenizer, const ParserNames& names);

// Of a request for a chat.
struct AnswerPlan {
  std::shared_ptr<const AnswerStyle> style;  // never null
  answer::AnswerSettings settings;
  bool one_call = false;                // the answer ends with its first call
  std::set<std::string> call_ids = {};  // of the conversation's earlier calls
  bool returns_reasoning = true;        // else it is left out
};

}  // namespace wideep::server
