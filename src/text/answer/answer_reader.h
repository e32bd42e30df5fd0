// SPDX-License-Identifier: Apache-2.0
//
// From the text that a model generates to what a chat's reply has: reasoning, content and calls of
// tools, token by token.
//
//   AnswerParts parts(settings.format.holds_space());
//   const auto reader = make_answer_reader(settings);
//   while (auto text = next()) reader->add_text(*text, parts);
//   reader->finish(false, parts);
//
// However the text is cut, the parts are the same.
//
// Not thread safe; one per answer.
#pragma once

#include <memory>
#include <string_view>

#include "answer/answer_format.h"
#include "answer/answer_parts.h"
#include "answer/tool_list.h"

namespace wideep::answer {

struct AnswerSettings {
  AnswerFormat format;
  std::shared_ptr<const ToolList> tools;  // never null; empty: nothing is a call
  bool begins_in_reasoning = false;       // opens_reasoning()
  bool must_call = false;                 // after reasoning there are calls, and no content
};

class AnswerReader {
 public:
  virtual ~AnswerReader() = default;

  // Text of the answer. REQUIRES: UTF-8.
  virtual void add_text(std::string_view text, AnswerParts& parts) = 0;
  // A special token that is one of the markers, or a part of one.
  virtual void add_special(std::string_view token, AnswerParts& parts) = 0;
  // The answer has ended. is_cut: by a limit; else what the model has begun is completed. A mark
  // that is cut is content, but for those in a call, and where there must be calls.
  virtual void finish(bool is_cut, AnswerParts& parts) = 0;
};

}  // namespace wideep::answer
