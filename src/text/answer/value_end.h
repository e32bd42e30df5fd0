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
// the second one is the call's. What is read, written down again, is what was there. Heads of more
// than 32 calls that have no ends are text.
//
// The work is proportional to the text, whatever is in it: a model writes as many marks as it is
// asked for, and the thread that reads them serves all. What is asked about many marks, which end
// comes next and whether a call ends once more, is looked up once for all in front of the answer.
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
    size_t bytes = 0;          // of the value, which are certain; all of them where it ends
    size_t marks = 0;          // bytes of the value's own end behind these
    size_t num_looked_at = 0;  // marks of the format, each time that one was: the work
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
    size_t own = 0;         // bytes of VALUE_END
    size_t end = 0;         // behind what was read
    std::string name = {};  // kKey: its own; kArgument: that of the argument that follows
  };
  enum class Verdict { kNo, kYes, kUnclear };
  // A question's answer that is the same for all places from `from` to `at`, which decides it.
  template <typename T>
  struct Known {
    size_t from = 1, at = 0;  // none yet
    T answer = {};
    bool holds_for(size_t place) const { return from <= place && place <= at; }
  };
  // One find(). Its places grow, so that what is known now is of use for the next ones.
  struct Search {
    std::string_view text;
    Behind behind;
    const Value& value;
    Known<Mark> first_end = {};
    Known<Verdict> ends_later = {};
    size_t num_looked_at = 0;

    Cursor at(size_t place) const { return {text.substr(place), behind != Behind::kMore}; }
  };

  size_t next_mark(Search& in, size_t from) const;
  bool is_head(std::string_view rest) const;
  bool is_end(std::string_view rest) const;
  Found find(Search& in) const;
  Mark read(Search& in, size_t at, bool in_call) const;
  static bool may_begin_key(const Search& in, std::string_view before, bool is_new);
  Mark read_end(const Search& in, size_t at, Types types) const;
  Mark read_head(const Search& in, size_t at) const;
  Mark read_key(const Search& in, size_t at) const;
  Mark read_key_and_end(Search& in, size_t at) const;
  Mark first_end(Search& in, const Mark& key) const;
  std::string read_name(Cursor& in) const;
  Verdict ends_call(Search& in, const Mark& close, bool* is_direct) const;
  Verdict ends_later(Search& in, size_t from) const;
  Known<Verdict> later_end(Search& in, size_t from) const;
  Found at_last(Search& in, const std::vector<Mark>& skipped) const;
  size_t certain(std::string_view text) const;

  const CallFormat& format_;
  const Tool& tool_;
  std::vector<std::string_view> marks_;
};

// "s" of `s" string="true`.
std::string_view argument_name(const TagSyntax& tags, std::string_view key);

}  // namespace wideep::answer
