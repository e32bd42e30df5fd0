// SPDX-License-Identifier: Apache-2.0
//
// An answer in OpenAI's harmony format, as GPT-OSS writes it: a list of messages, each
//
//   <|start|>ROLE<|channel|>CHANNEL<|message|>TEXT<|end|>
//
// (the last one ends with an end token), of which the prompt contains the first
// "<|start|>assistant". The channel "analysis" is reasoning; "final" and "commentary" are content.
// A message " to=functions.NAME" (after the role or the channel, in any channel) is a call of the
// tool, ended by <|call|>; one to "assistant" or "user" is to no tool, and of two channels the last
// one counts. <|start|> may be missing, with the role or without it. To one that there is not it is
// content as it was written, with its special tokens, so that the client finds the name in it.
// Messages that follow each other in the same field are separated by a line feed. The format is
// described in https://developers.openai.com/cookbook/articles/openai-harmony.
//
// An answer, or its beginning, that is not in this format is content. Only special tokens mark: the
// same characters in ordinary tokens are text.
//
// Not thread safe; one per answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "answer/answer_reader.h"
#include "answer/arguments.h"

namespace wideep::answer {

class HarmonyAnswer : public AnswerReader {
 public:
  explicit HarmonyAnswer(const AnswerSettings& settings) : tools_(*settings.tools) {}

  void add_text(std::string_view text, AnswerParts& parts) override;
  void add_special(std::string_view token, AnswerParts& parts) override;
  void finish(bool is_cut, AnswerParts& parts) override;

 private:
  enum class Place { kBegin, kBetween, kRole, kChannel, kMessage };
  enum class Field { kReasoning, kContent, kCall };

  bool may_be_text() const { return place_ == Place::kBegin || place_ == Place::kBetween; }
  void take_header(AnswerParts& parts);
  void begin_message(AnswerParts& parts);
  void begin_call(std::string_view name, AnswerParts& parts);
  void end_message(AnswerParts& parts);
  void write(std::string_view text, AnswerParts& parts);
  void write_arguments(std::string_view text, AnswerParts& parts);

  const ToolList& tools_;
  // kBegin, and kBetween two messages: kRole or, as text decides, kMessage.
  Place place_ = Place::kBegin;
  std::string header_;             // of this message, as written, after "<|start|>assistant"
  std::string channel_;            // its text after <|channel|>
  Field field_ = Field::kContent;  // this message's
  std::optional<JsonArguments> arguments_;
  bool has_arguments_ = false;
  bool has_reasoning_ = false;  // an earlier message of the field has text
  bool has_content_ = false;
  bool separate_ = false;  // a line feed comes before the message's first text
};

}  // namespace wideep::answer
