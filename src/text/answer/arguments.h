// SPDX-License-Identifier: Apache-2.0
//
// Readers of a call's arguments, one for each ArgumentsForm, from what the model writes to the JSON
// text that clients get, as it comes. Those of kTags, kBareKeys and kElements have files of their
// own: tagged_arguments.h, bare_key_arguments.h, element_arguments.h.
//
// Not thread safe; one per call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "answer/answer_parts.h"
#include "answer/call_format.h"
#include "answer/json_walker.h"
#include "answer/python_literal.h"
#include "answer/tool_list.h"

namespace wideep::answer {

class Arguments {
 public:
  virtual ~Arguments() = default;

  // Takes the beginning of `text` as far as it is certain, and returns its bytes; 0: more is
  // needed. is_all: no text follows.
  virtual size_t take(std::string_view text, bool is_all, AnswerParts& out) = 0;
  bool is_done() const { return is_done_; }
  // A limit has cut the answer behind the text that the next calls of take() get, which is all of
  // it: only what has certainly ended ends.
  virtual void cut() {}
  // The model has ended its answer in the middle of them: completes what was begun.
  virtual void complete(AnswerParts& out) = 0;

 protected:
  bool is_done_ = false;
};

// An object, of which each byte is passed on at once; control characters in strings are escaped.
// What turns out not to be JSON is passed on as it is, up to the end of the call: the client's
// error, and its answer to the model, is then that of the model.
class JsonArguments : public Arguments {
 public:
  // end: what ends a call whose arguments are no JSON; "": the answer's end.
  explicit JsonArguments(std::string_view end) : end_(end) {}
  size_t take(std::string_view text, bool is_all, AnswerParts& out) override;
  void complete(AnswerParts&) override {}

 private:
  size_t take_raw(std::string_view text, bool is_all, AnswerParts& out);

  std::string_view end_;
  JsonWalker walker_;
  bool is_json_ = true;
};

class PythonArguments : public Arguments {
 public:
  size_t take(std::string_view text, bool is_all, AnswerParts& out) override;
  void complete(AnswerParts& out) override;

 private:
  size_t take_name(std::string_view text, bool is_all, AnswerParts& out);
  void end_value(AnswerParts& out);

  bool in_value_ = false;
  PythonScanner scanner_;
  std::string value_;
  bool has_any_ = false;
};

std::string quoted_json(std::string_view text);
// The beginning of an argument, up to its value: `{"name": ` or `, "name": `.
void begin_argument(std::string_view name, bool is_first, AnswerParts& out);

}  // namespace wideep::answer
