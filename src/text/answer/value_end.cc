// SPDX-License-Identifier: Apache-2.0
//
// find() goes from mark to mark. At each it reads what stands there: the head of a call (one
// deeper), an end (one less deep, or the value's own), or the name of a further argument, which is
// an end without a mark. "Unclear" anywhere ends the search with what is certain before it.
//
//   is this end the call's?    nothing, a tail or another call follows: yes
//                              text follows: no, if a value and a call end once more before
//                              another call begins (ends_later)
//   is this key an argument?   at a line's beginning, not given yet, and its own value has an end
//                              (first_end)
//
// Both look-ups run ahead and could make the work quadratic. Their answer is the same for all
// places up to the mark that decided it, so it is kept with that range (Known).
#include "answer/value_end.h"

#include <algorithm>

namespace wideep::answer {
namespace {

constexpr std::string_view kWhite = " \t\r\n";
// White space at the end of a value waits for what follows: a line's beginning is told by it.
constexpr size_t kMaxHeldSpace = 64;
// Arguments without ends in a row that are looked at before the first one is believed.
constexpr size_t kMaxKeys = 8;
// Calls in a value whose ends do not come: more of them are text that shows how calls begin. Beyond
// all that one file has inside each other, and what is held for their ends is read that many times.
constexpr size_t kMaxOpenCalls = 32;

size_t white_space_at_end(std::string_view text) {
  const size_t last = text.find_last_not_of(kWhite);
  return std::min(last == text.npos ? text.size() : text.size() - last - 1, kMaxHeldSpace);
}

// Whether only white space comes behind the last line feed of what is before a mark.
bool begins_line(std::string_view before, bool is_new) {
  const size_t space = white_space_at_end(before);
  const std::string_view indent = before.substr(before.size() - space);
  return (is_new && space == before.size()) || indent.find('\n') != indent.npos;
}

// A tool's name, or one of an argument, and not what comes before the next '>' somewhere.
bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_of(" \t\r\n<>\"'") == text.npos;
}

}  // namespace

std::string_view argument_name(const TagSyntax& tags, std::string_view key) {
  return trimmed(tags.says_whether_text ? key.substr(0, key.find('"')) : key);
}

ValueEnd::ValueEnd(const CallFormat& format, const Tool& tool) : format_(format), tool_(tool) {
  const TagSyntax& tags = format.tags;
  marks_ = {tags.value_end, tags.call_end, tags.key_begin};
  marks_.insert(marks_.end(), format.begins.begin(), format.begins.end());
}

size_t ValueEnd::next_mark(Search& in, size_t from) const {
  ++in.num_looked_at;
  return find_first(in.text, marks_, from);
}

bool ValueEnd::is_head(std::string_view rest) const {
  return std::ranges::any_of(format_.begins,
                             [&](std::string_view begin) { return rest.starts_with(begin); });
}

bool ValueEnd::is_end(std::string_view rest) const {
  return rest.starts_with(format_.tags.value_end) || rest.starts_with(format_.tags.call_end);
}

// Bytes that are no beginning of a mark.
size_t ValueEnd::certain(std::string_view text) const {
  size_t partial = white_space_at_end(text);
  for (const std::string_view mark : marks_) {
    const size_t bytes = partial_marker(text, mark);
    if (bytes == 0) continue;
    // Behind white space that is held, too.
    partial = std::max(partial, bytes + white_space_at_end(text.substr(0, text.size() - bytes)));
  }
  return text.size() - partial;
}

ValueEnd::Found ValueEnd::find(std::string_view text, Behind behind, const Value& value) const {
  Search in{.text = text, .behind = behind, .value = value};
  Found found = find(in);
  found.num_looked_at = in.num_looked_at;
  return found;
}

ValueEnd::Found ValueEnd::find(Search& in) const {
  const std::string_view text = in.text;
  size_t depth = 0;           // calls around the place that have begun in the value
  size_t held = text.npos;    // from where on nothing is certain
  std::vector<Mark> skipped;  // ends inside of these
  const auto unclear = [&](size_t at) {
    const size_t bytes = std::min(held, at);
    return Found{.bytes = bytes - white_space_at_end(text.substr(0, bytes))};
  };
  for (size_t at = next_mark(in, 0); at != text.npos; at = next_mark(in, at)) {
    const Mark mark = read(in, at, depth > 0);
    switch (mark.kind) {
      case Mark::Kind::kUnclear:
        return unclear(at);
      case Mark::Kind::kNone:
        break;
      case Mark::Kind::kHead:
        held = std::min(held, at);
        if (++depth <= kMaxOpenCalls) break;
        depth = 0;
        held = text.npos;
        skipped.clear();
        break;
      case Mark::Kind::kKey:
        return {.ends = true, .bytes = at, .marks = 0};
      case Mark::Kind::kArgument:
        if (depth == 0) return {.ends = true, .bytes = at, .marks = mark.own};
        skipped.push_back(mark);
        break;
      case Mark::Kind::kClose:
        if (depth > 0) {
          --depth;
          skipped.push_back(mark);
          break;
        }
        bool is_direct = false;
        const Verdict verdict = ends_call(in, mark, &is_direct);
        if (verdict == Verdict::kUnclear) return unclear(at);
        if (verdict == Verdict::kYes) return {.ends = true, .bytes = at, .marks = mark.own};
        break;
    }
    at = mark.end;
  }
  if (in.behind == Behind::kNothing) return at_last(in, skipped);
  if (in.behind == Behind::kCut) return {.bytes = certain(text)};
  return unclear(certain(text));
}

// The answer has ended, and the calls that have begun in the value have not all: what looks like
// their ends may be that of the value.
ValueEnd::Found ValueEnd::at_last(Search& in, const std::vector<Mark>& skipped) const {
  for (const bool directly : {true, false}) {
    for (const Mark& mark : skipped) {
      bool is_direct = mark.kind == Mark::Kind::kArgument;
      const bool ends = is_direct || ends_call(in, mark, &is_direct) == Verdict::kYes;
      if (ends && is_direct == directly) return {.ends = true, .bytes = mark.at, .marks = mark.own};
    }
  }
  return {.bytes = in.text.size()};
}

// in_call: that of a value, whose arguments are none of the call that the value is for.
ValueEnd::Mark ValueEnd::read(Search& in, size_t at, bool in_call) const {
  const std::string_view rest = in.text.substr(at);
  if (is_end(rest)) {
    Mark mark = read_end(in, at, in.value.types);
    const bool is_given = in.value.given.contains(mark.name);
    if (mark.kind == Mark::Kind::kArgument && !mark.name.empty() && is_given) {
      mark.kind = Mark::Kind::kNone;
    }
    return mark;
  }
  if (!rest.starts_with(format_.tags.key_begin)) return read_head(in, at);
  if (in_call || !may_begin_key(in, in.text.substr(0, at), in.value.is_new)) {
    return {.at = at, .end = at + format_.tags.key_begin.size()};
  }
  return read_key_and_end(in, at);
}

// before: of a value that is_new says nothing was taken of.
bool ValueEnd::may_begin_key(const Search& in, std::string_view before, bool is_new) {
  const bool is_text = (in.value.types & kText) != 0;
  return !is_text || begins_line(before, is_new);
}

// types: of the value that may end here.
ValueEnd::Mark ValueEnd::read_end(const Search& search, size_t at, Types types) const {
  const TagSyntax& tags = format_.tags;
  Cursor in = search.at(at);
  Mark mark{.kind = Mark::Kind::kClose, .at = at};
  mark.own = in.optional(tags.value_end) ? tags.value_end.size() : 0;
  mark.end = at + (mark.own > 0 ? mark.own : tags.call_end.size());
  // No number has a mark in it.
  const bool may_hold_marks = (types & (kText | kObject | kList)) != 0;
  if (!may_hold_marks) mark.kind = Mark::Kind::kArgument;
  if (!may_hold_marks || mark.own == 0) return mark;
  in.space();
  Cursor key = in;
  if (in.optional(tags.call_end)) {
    mark.end = at + in.position();
    return mark;
  }
  mark.kind = Mark::Kind::kNone;
  mark.name = read_name(key);
  const std::string_view left = search.text.substr(at + in.position());
  const bool is_all = left.empty() || tags.call_end.starts_with(left) ||
                      tags.key_begin.starts_with(left);  // and the answer ends here
  if (in.wants_more() || key.wants_more()) {
    mark.kind = Mark::Kind::kUnclear;
  } else if (key.ok()) {
    mark.kind = Mark::Kind::kArgument;
  } else if (is_all && search.behind == Behind::kNothing) {
    mark.kind = Mark::Kind::kClose;
    mark.end = search.text.size();
  }
  return mark;
}

ValueEnd::Mark ValueEnd::read_head(const Search& search, size_t at) const {
  Cursor in = search.at(at);
  CallHead head;
  format_.read_head(in, head);
  if (in.wants_more()) return {.kind = Mark::Kind::kUnclear, .at = at, .end = at + 1};
  if (!in.ok() || !is_name(head.name)) return {.at = at, .end = at + 1};
  return {.kind = Mark::Kind::kHead, .at = at, .end = at + in.position()};
}

// The argument's name, and what comes before its value.
std::string ValueEnd::read_name(Cursor& in) const {
  const TagSyntax& tags = format_.tags;
  in.literal(tags.key_begin);
  const std::string_view key = in.until(tags.key_end, Cursor::kMaxNameBytes);
  if (!tags.value_begin.empty()) in.space();
  in.literal(tags.value_begin);
  const std::string_view name = argument_name(tags, key);
  if (!is_name(name) && !tool_.arguments.contains(name)) in.fail();
  return std::string(name);
}

// One that has not come yet, whatever its value's end is.
ValueEnd::Mark ValueEnd::read_key(const Search& search, size_t at) const {
  const TagSyntax& tags = format_.tags;
  Mark mark{.at = at, .end = at + tags.key_begin.size()};
  Cursor in = search.at(at);
  mark.name = read_name(in);
  if (in.wants_more()) mark.kind = Mark::Kind::kUnclear;
  const bool is_given = search.value.given.contains(mark.name);
  if (!in.ok() || is_given || !tool_.arguments.contains(mark.name)) return mark;
  // Just as models are told to write it.
  const std::string written = std::string(tags.key_begin) + mark.name +
                              std::string(tags.says_whether_text ? "\" string=\"" : tags.key_end);
  if (!search.text.substr(at).starts_with(written)) return mark;
  mark.kind = Mark::Kind::kKey;
  mark.end = at + in.position();
  return mark;
}

// Whether its value has an end: the first one behind it decides, that of the next argument where
// this one has none, too.
ValueEnd::Mark ValueEnd::read_key_and_end(Search& in, size_t at) const {
  Mark key = read_key(in, at);
  if (key.kind != Mark::Kind::kKey) return key;
  const Mark end = first_end(in, key);
  const bool is_known = end.name == key.name || in.value.given.contains(end.name);
  if (end.kind == Mark::Kind::kUnclear) key.kind = end.kind;
  if (end.kind == Mark::Kind::kNone || (end.kind == Mark::Kind::kArgument && is_known)) {
    return {.at = at, .end = at + format_.tags.key_begin.size()};
  }
  return key;
}

// The first end behind an argument, or what decides before: so many more arguments without an end,
// or the text's end. Where there are fewer in front of an end, fewer are behind the next argument.
ValueEnd::Mark ValueEnd::first_end(Search& in, const Mark& key) const {
  if (in.first_end.holds_for(key.end)) return in.first_end.answer;
  std::set<std::string, std::less<>> names;
  size_t begin = key.end;  // of the value of the last one
  for (size_t at = next_mark(in, begin); at != in.text.npos; at = next_mark(in, at + 1)) {
    const std::string_view rest = in.text.substr(at);
    if (is_end(rest)) {
      in.first_end = {.from = key.end, .at = at, .answer = read_end(in, at, kAnyType)};
      return in.first_end.answer;
    }
    if (!rest.starts_with(format_.tags.key_begin)) continue;
    if (!may_begin_key(in, in.text.substr(begin, at - begin), true)) continue;
    const Mark next = read_key(in, at);
    if (next.kind == Mark::Kind::kUnclear) return next;
    if (next.kind != Mark::Kind::kKey) continue;
    begin = next.end;
    if (next.name != key.name) names.insert(next.name);
    if (names.size() == kMaxKeys) return next;
  }
  return {.kind = in.behind == Behind::kMore ? Mark::Kind::kUnclear : Mark::Kind::kKey};
}

// is_direct: nothing, or another call, follows.
ValueEnd::Verdict ValueEnd::ends_call(Search& search, const Mark& close, bool* is_direct) const {
  Cursor in = search.at(close.end);
  const Behind behind = search.behind;
  size_t behind_tail = close.end;
  for (const std::string_view part : format_.tail) {
    in.space();
    if (in.optional(part)) behind_tail = close.end + in.position();
  }
  in.space();
  if (in.wants_more()) return Verdict::kUnclear;
  const size_t next = close.end + in.position();
  const std::string_view rest = search.text.substr(next);
  const auto begins_with_rest = [&](std::string_view mark) { return mark.starts_with(rest); };
  *is_direct = true;
  if (rest.empty()) return behind == Behind::kMore ? Verdict::kUnclear : Verdict::kYes;
  const Mark head = is_head(rest) ? read_head(search, next) : Mark();
  if (head.kind == Mark::Kind::kHead) return Verdict::kYes;
  if (head.kind == Mark::Kind::kUnclear) return Verdict::kUnclear;
  if (behind == Behind::kMore && std::ranges::any_of(format_.begins, begins_with_rest)) {
    return Verdict::kUnclear;
  }
  if (behind != Behind::kMore && std::ranges::any_of(format_.tail, begins_with_rest)) {
    return Verdict::kYes;
  }
  *is_direct = false;
  if (close.own == 0 && behind_tail == close.end) return Verdict::kNo;
  if (behind == Behind::kCut && search.text[behind_tail] != '\n') return Verdict::kNo;
  switch (ends_later(search, next)) {
    case Verdict::kYes:
      return Verdict::kNo;
    case Verdict::kNo:
      return Verdict::kYes;
    default:
      return Verdict::kUnclear;
  }
}

// Whether a value and its call end once more before another call begins.
ValueEnd::Verdict ValueEnd::ends_later(Search& in, size_t from) const {
  if (!in.ends_later.holds_for(from)) in.ends_later = later_end(in, from);
  return in.ends_later.answer;
}

ValueEnd::Known<ValueEnd::Verdict> ValueEnd::later_end(Search& search, size_t from) const {
  const TagSyntax& tags = format_.tags;
  const std::string_view text = search.text;
  for (size_t at = next_mark(search, from); at != text.npos; at = next_mark(search, at + 1)) {
    const std::string_view rest = text.substr(at);
    if (is_head(rest)) {
      const Mark mark = read_head(search, at);
      if (mark.kind == Mark::Kind::kUnclear) return {from, at, Verdict::kUnclear};
      if (mark.kind == Mark::Kind::kHead) return {from, at, Verdict::kNo};
    }
    if (!rest.starts_with(tags.value_end)) continue;
    Cursor in = search.at(at + tags.value_end.size());
    in.space();
    in.literal(tags.call_end);
    if (in.wants_more()) return {from, at, Verdict::kUnclear};
    if (in.ok()) return {from, at, Verdict::kYes};
  }
  const bool is_open = search.behind == Behind::kMore;
  return {from, text.npos, is_open ? Verdict::kUnclear : Verdict::kNo};
}

}  // namespace wideep::answer
