// SPDX-License-Identifier: Apache-2.0
//
// What a chat's answer consists of, as far as it is known: reasoning, content and calls of tools.
// Readers of an answer add to it; whoever replies takes what is there, after every token or at the
// end. The concatenation of what is taken does not depend on when it is taken.
//
// White space between the parts belongs to the format, not to the answer: it is left out at the
// ends of the reasoning, between reasoning and content, and around calls.
//
// Not thread safe; one per answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wideep::answer {

// A part of a call, or all of it.
struct CallPart {
  int index = 0;          // of the call in the answer
  bool begins = false;    // the first part of this call, which has its id and name
  std::string id;         // as the model has written it; "": it writes none
  std::string name;       // of the tool
  std::string arguments;  // more of the JSON text of the arguments
};

class AnswerParts {
 public:
  // holds_space: white space at the end of content waits for what follows, because a call or an
  // end of the content may.
  explicit AnswerParts(bool holds_space) : holds_space_(holds_space) {}

  void add_reasoning(std::string_view text);
  void end_reasoning();
  void add_content(std::string_view text);
  // What follows is not of one piece with the content so far.
  void end_content();
  void begin_call(std::string name, std::string id);
  void add_arguments(std::string_view text);  // REQUIRES: begin_call
  void end_call();
  void end_answer();

  int num_calls() const { return num_calls_; }
  int num_ended_calls() const { return num_ended_calls_; }

  // What has come since the last time.
  std::string take_reasoning() { return take(&reasoning_); }
  std::string take_content() { return take(&content_); }
  std::vector<CallPart> take_calls();
  bool has_news() const { return !reasoning_.empty() || !content_.empty() || !calls_.empty(); }

 private:
  static std::string take(std::string* text);
  static void add(std::string_view text, bool holds_space, bool* skips_space, std::string* space,
                  std::string* out);

  bool holds_space_;
  std::string reasoning_, content_;              // not taken yet
  std::vector<CallPart> calls_;                  // likewise
  std::string reasoning_space_, content_space_;  // may turn out to be at the end
  bool skips_reasoning_space_ = true;            // at the beginning
  bool skips_content_space_ = false;             // after reasoning or a call
  bool in_call_ = false;
  int num_calls_ = 0;
  int num_ended_calls_ = 0;
};

}  // namespace wideep::answer
