// SPDX-License-Identifier: Apache-2.0
//
// An answer that consists of reasoning between tags, then content and calls of a CallFormat.
//
// The reasoning's beginning may be in the prompt. A tag in the middle of the content is content,
// but for formats whose tags are tokens of their own, and a beginning of reasoning whose end is
// missing makes all of the answer reasoning, up to the first call in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_reader.h"
#include "answer/call_reader.h"

namespace wideep::answer {

class TaggedAnswer : public AnswerReader {
 public:
  explicit TaggedAnswer(const AnswerSettings& settings);

  void add_text(std::string_view text, AnswerParts& parts) override;
  // What the model writes as a special token, others write as text.
  void add_special(std::string_view token, AnswerParts& parts) override { add_text(token, parts); }
  void finish(bool is_cut, AnswerParts& parts) override;

 private:
  enum class Place { kBegin, kReasoning, kAfterReasoning, kContent };

  void take_all(bool is_all, AnswerParts& parts);
  size_t step(std::string_view text, bool is_all, AnswerParts& parts);
  size_t take_begin(std::string_view text, bool is_all, AnswerParts& parts);
  size_t take_reasoning(std::string_view text, bool is_all, AnswerParts& parts);
  size_t take_held_call(std::string_view text, bool is_all, AnswerParts& parts);
  size_t take_after_reasoning(std::string_view text, bool is_all);
  size_t take_content(std::string_view text, bool is_all, AnswerParts& parts);
  size_t take_mark(std::string_view text, AnswerParts& parts);

  const ReasoningFormat* reasoning_;
  const CallFormat* format_;  // of calls; null: there are none
  CallReader calls_;
  Place place_;
  bool is_open_;             // the prompt has begun the reasoning
  bool must_call_;           // AnswerSettings
  bool is_wrapped_ = false;  // content_begin was there
  // What is no content wherever it comes, of a format whose marks are tokens of their own, and that
  // many bytes of the text that is not taken have none of them.
  std::vector<std::string_view> marks_;
  size_t num_without_mark_ = 0;
  bool is_cut_ = false;  // by a limit
  // A call begins the text that is not taken: whether it is one, or is in reasoning, is known when
  // the reasoning ends, or the answer. That many bytes have no end of the reasoning.
  bool holds_call_ = false;
  size_t num_without_end_ = 0;
  size_t next_try_ = 0;  // bytes of text before which a call's head is not read again
  std::string pending_;  // text that is not certain yet
};

}  // namespace wideep::answer
