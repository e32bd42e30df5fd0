// SPDX-License-Identifier: Apache-2.0
//
// Tells the calls of tools in an answer's text from its content. What only looks like a call, or
// calls a tool that there is not, is content, with its markers.
//
// A call is certain, and begins to be passed on, when its arguments begin; it stays a call whatever
// its arguments are.
//
// Not thread safe; one per answer.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "answer/answer_parts.h"
#include "answer/arguments.h"
#include "answer/call_format.h"
#include "answer/tool_list.h"

namespace wideep::answer {

class CallReader {
 public:
  // format: null: all is content. It and the tools outlive the reader.
  CallReader(const CallFormat* format, const ToolList& tools)
      : format_(tools.empty() ? nullptr : format), tools_(tools) {}

  // Takes the beginning of `text` as far as it is certain, and returns its bytes; 0: more is
  // needed. is_all: no text follows, all of it is taken after some calls. REQUIRES: not empty.
  size_t take(std::string_view text, bool is_all, AnswerParts& out);
  // A limit has cut the answer behind the text. Takes what has certainly ended of the arguments;
  // what is left of the text is in the middle of them if in_arguments() still.
  size_t take_cut(std::string_view text, AnswerParts& out);
  // Whether a call of a known tool begins the text; nullopt: more is needed.
  std::optional<bool> begins_call(std::string_view text, bool is_all) const;
  // What was not taken yet belongs to a call.
  bool in_arguments() const { return place_ == Place::kArguments; }
  // All text was taken. is_cut: the answer was cut by a limit; else what was begun is completed.
  void finish(bool is_cut, AnswerParts& out);

 private:
  enum class Place { kContent, kHead, kArguments, kTail };

  size_t step(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_content(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_head(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_arguments(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_tail(std::string_view text, bool is_all, AnswerParts& out);
  const Tool* tool_of(CallHead* head) const;
  bool begin_call(CallHead head, AnswerParts& out);
  void end_call(AnswerParts& out);
  size_t wait(std::string_view text);

  const CallFormat* format_;
  const ToolList& tools_;
  Place place_ = Place::kContent;
  bool is_at_beginning_ = true;  // nothing but white space came before
  bool is_cut_ = false;
  bool in_object_ = false;  // CallHead::in_object
  size_t next_try_ = 0;     // bytes of text before which it is not read again
  std::unique_ptr<Arguments> arguments_;
};

}  // namespace wideep::answer
