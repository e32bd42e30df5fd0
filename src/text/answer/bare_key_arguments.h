// SPDX-License-Identifier: Apache-2.0
//
// Arguments that are an object whose keys have no quotes, and whose texts stand between marks of
// their own (Gemma 4):
//
//   {a:1,s:<|"|>x<|"|>,o:{k:<|"|>y<|"|>},l:[1,true]}
//
// JSON's quotes around keys and texts are read, too. Whatever comes becomes JSON: a value without
// quotes that is none is a text, a bracket that is missing ends with the one around it.
//
// Not thread safe; one per call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "answer/arguments.h"
#include "answer/cursor.h"

namespace wideep::answer {

class BareKeyArguments : public Arguments {
 public:
  // The format and the tool outlive it.
  BareKeyArguments(const CallFormat& format, const Tool& tool)
      : quote_(format.tags.value_begin), call_end_(format.call_end), tool_(tool) {}
  // From the object's beginning.
  size_t take(std::string_view text, bool is_all, AnswerParts& out) override;
  void cut() override { is_cut_ = true; }
  void complete(AnswerParts& out) override;

 private:
  enum class Place {
    kBegin,
    kNext,  // a key, a value of a list, or an end
    kValue,
    kBare,      // in a value without quotes
    kMarked,    // between the marks
    kJsonText,  // between JSON's quotes
  };

  size_t step(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_begin(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_next(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_key(Cursor in, AnswerParts& out);
  std::string read_key(Cursor& in) const;
  size_t take_value(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_bare(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_text(std::string_view text, bool is_all, AnswerParts& out);
  size_t take_json_text(std::string_view text, bool is_all, AnswerParts& out);
  void begin_item(AnswerParts& out);
  void open(char bracket, AnswerParts& out);
  void close(char bracket, AnswerParts& out);
  void end(AnswerParts& out);

  std::string_view quote_, call_end_;
  const Tool& tool_;
  Place place_ = Place::kBegin;
  std::string open_;        // brackets around the place
  bool is_first_ = true;    // nothing came before in the innermost of them
  Types types_ = kAnyType;  // of the value
  size_t num_without_ = 0;  // bytes of a value without quotes that have no end
  bool is_cut_ = false;
};

}  // namespace wideep::answer
