// SPDX-License-Identifier: Apache-2.0
//
// Arguments between tags (TagSyntax), texts without quotes.
//
// Not thread safe; one per call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "answer/arguments.h"
#include "answer/value_end.h"

namespace wideep::answer {

class TaggedArguments : public Arguments {
 public:
  TaggedArguments(const CallFormat& format, const Tool& tool)
      : tags_(format.tags), tool_(tool), value_end_(format, tool) {}
  size_t take(std::string_view text, bool is_all, AnswerParts& out) override;
  void cut() override { is_cut_ = true; }
  void complete(AnswerParts& out) override;

 private:
  enum class Place { kBetween, kValueBegin, kValue };

  size_t take_between(std::string_view text, bool is_all, AnswerParts& out);
  size_t begin_value(std::string_view key, size_t bytes, AnswerParts& out);
  size_t take_value(std::string_view text, bool is_all, AnswerParts& out);
  void add_to_value(std::string_view text, AnswerParts& out);
  void end_value(AnswerParts& out);
  void end(AnswerParts& out);

  const TagSyntax& tags_;
  const Tool& tool_;
  const ValueEnd value_end_;
  Place place_ = Place::kBetween;
  ValueEnd::Value state_;  // of the value
  std::string value_;      // of an argument that is not passed on at once
  size_t next_try_ = 0;    // bytes of text before which a value is not looked at again
  bool is_cut_ = false;
};

}  // namespace wideep::answer
