// SPDX-License-Identifier: Apache-2.0
//
// Arguments that are elements, with objects and lists as elements inside of them (MiniMax-M3). Each
// tag has a token before it that no text has, here "~":
//
//   ~<a>1~</a>~<o>~<k>x~</k>~</o>~<l>~<item>1~</item>~<item>2~</item>~</l>~</invoke>
//
// TagSyntax: key_begin "~<", key_end ">", value_end "~</", call_end "~</invoke>". An end that is
// missing comes with the one around it.
//
// Not thread safe; one per call.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "answer/arguments.h"

namespace wideep::answer {

class ElementArguments : public Arguments {
 public:
  // The format and the tool outlive it.
  ElementArguments(const CallFormat& format, const Tool& tool) : tags_(format.tags), tool_(tool) {}
  size_t take(std::string_view text, bool is_all, AnswerParts& out) override;
  void cut() override { is_cut_ = true; }
  void complete(AnswerParts& out) override;

 private:
  // A value up to its end, and the bytes of the end. "more": it has none yet.
  struct Found {
    size_t bytes = 0, end = 0;
    bool more = false;
  };

  size_t take_between(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_text(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_value(std::string_view text, bool is_all, AnswerParts& out);
  Found find_end(std::string_view text, std::string_view name, bool is_all) const;
  std::string end_tag(std::string_view name) const;
  std::string json_of(std::string_view text, const std::string& path, size_t depth) const;
  void end(AnswerParts& out);

  const TagSyntax& tags_;
  const Tool& tool_;
  std::string name_;  // of the argument whose value comes; "": between two
  bool has_any_ = false;
  size_t next_try_ = 0;  // bytes of text before which a value is not looked at again
  bool is_cut_ = false;
};

}  // namespace wideep::answer
