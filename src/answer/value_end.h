// SPDX-License-Identifier: Apache-2.0
//
// Where the value of an argument between tags ends. A value may hold the marks of its own format: a
// command that searches for "</parameter>", a file about calls of tools. What is only looked up is
// cut there, and a program runs half a command. So a mark is an end only if the next mark of the
// format follows it:
//
//   VALUE_END  then the next argument, or CALL_END
//   CALL_END   without a VALUE_END, then what follows a call, another call, or the answer's end
//   KEY_BEGIN  likewise, at a line's beginning, with the name of an argument of the tool that has
//              not come yet, whose own value has an end
//
// A call inside of the value, from its head to its CALL_END, is a part of the value. A CALL_END
// that text follows, and then one more without a call's head between, is a part of the value, too:
// the second one is the call's. What is read, written down again, is what was there.
//
// Thread safety: a plain value; find() is const.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "answer/call_format.h"
#include "answer/tool_list.h"

namespace wideep::answer {

// What comes behind a text.
enum class Behind {
  kMore,     // text may
  kNothing,  // the model has ended its answer
  kCut,      // a limit has
};

class ValueEnd {
 public:
  // The format and the tool outlive it.
  ValueEnd(const CallFormat& format, const Tool& tool);

  struct Value {
    std::set<std::string, std::less<>> given;  // names of the arguments so far, this one's too
    Types types = kAnyType;
    bool is_new = true;  // nothing of it was taken yet
  };
  struct Found {
    bool ends = false;
    size_t bytes = 0;  // of the value, which are certain; all of them where it ends
    size_t marks = 0;  // bytes of the value's own end behind these
  };
  // In a text that begins in the value. Its answer for the beginning of a text is right for all of
  // it: bytes do not become fewer.
  Found find(std::string_view text, Behind behind, const Value& value) const;

 private:
  // A mark, and what follows it.
  struct Mark {
    enum class Kind { kNone, kUnclear, kHead, kArgument, kClose, kKey };
    Kind kind = Kind::kNone;
    size_t at = 0;
    size_t own = 0;  // bytes of VALUE_END
    size_t end = 0;  // behind what was read
  };
  enum class Verdict { kNo, kYes, kUnclear };

  size_t next_mark(std::string_view text, size_t from) const;
  bool is_head(std::string_view rest) const;
  Mark read(std::string_view text, size_t at, Behind behind, const Value& value) const;
  Mark read_end(std::string_view text, size_t at, Behind behind, const Value& value) const;
  Mark read_head(std::string_view text, size_t at, Behind behind) const;
  Mark read_key(std::string_view text, size_t at, Behind behind, const Value& value,
                int num_before = 0) const;
  std::string read_name(Cursor& in) const;
  Verdict ends_call(std::string_view text, const Mark& close, Behind behind, bool* is_direct) const;
  Verdict ends_later(std::string_view text, size_t from, Behind behind) const;
  Found at_last(std::string_view text, const std::vector<Mark>& skipped) const;
  size_t certain(std::string_view text) const;

  const CallFormat& format_;
  const Tool& tool_;
  std::vector<std::string_view> marks_;
  std::string first_bytes_;  // of marks
};

// "s" of `s" string="true`.
std::string_view argument_name(const TagSyntax& tags, std::string_view key);

}  // namespace wideep::answer
