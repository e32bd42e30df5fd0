// SPDX-License-Identifier: Apache-2.0
//
// How JSON values may be written in an answer. Numbers and strings are all that RFC 8259 has, but
// for halves of surrogate pairs, which are no text. Between parts there may be nothing, a space, or
// a line feed and an indentation (JsonStyle), so that a model writes JSON as it has learnt to and
// does not write spaces for ever.
//
// Thread safety: one thread per object.
#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace wideep::grammar {

struct JsonStyle {
  // Between parts; null: as above.
  Expression space = nullptr;
};
JsonStyle compact_json();  // without spaces

class JsonText {
 public:
  // rules: outlives this.
  JsonText(Rules* rules, JsonStyle style);

  Expression space() const { return space_; }
  Expression string();
  Expression integer();
  Expression number();
  Expression boolean() const;
  Expression null() const;
  Expression any_value();
  Expression any_object();
  Expression any_array();
  // "name": and what may follow before the value.
  Expression key(std::string_view name) const;

  // A string of so many characters.
  Expression string_of(int min, int max);
  // Any string that is none of these.
  Expression string_other_than(const std::vector<std::string>& texts) const;
  // What is inside the quotes; characters that JSON escapes are written in one way.
  static Expression characters(const CharacterRanges& ranges);
  static Expression quoted(Expression inside);

  // begin (part ("," part)*)? end, with so many parts.
  Expression list(std::string_view begin, Expression part, std::string_view end, int min,
                  int max) const;
  Expression separator() const;  // "," and what may follow

 private:
  int rule(int* number, const char* name, Expression (JsonText::*body)());
  Expression string_body();
  Expression character_body();
  Expression integer_body();
  Expression number_body();
  Expression object_body();
  Expression array_body();
  Expression value_body();

  Rules* rules_;
  Expression space_;
  int string_ = -1, character_ = -1, integer_ = -1, number_ = -1, object_ = -1, array_ = -1,
      value_ = -1;
};

}  // namespace wideep::grammar
