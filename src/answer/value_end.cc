// SPDX-License-Identifier: Apache-2.0
#include "answer/value_end.h"

#include <algorithm>

namespace wideep::answer {
namespace {

constexpr std::string_view kWhite = " \t\r\n";
// White space at the end of a value waits for what follows: a line's beginning is told by it.
constexpr size_t kMostHeldSpace = 64;
// Arguments without ends in a row that are looked at before the first one is believed.
constexpr int kMostKeys = 8;

size_t white_space_at_end(std::string_view text) {
  const size_t last = text.find_last_not_of(kWhite);
  return std::min(last == text.npos ? text.size() : text.size() - last - 1, kMostHeldSpace);
}

// Whether only white space comes between `at` and the last line feed before it.
bool begins_line(std::string_view text, size_t at, bool is_new) {
  const size_t space = white_space_at_end(text.substr(0, at));
  return (is_new && space == at) || text.substr(at - space, space).find('\n') != text.npos;
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
  for (const std::string_view mark : marks_) {
    if (first_bytes_.find(mark.front()) == std::string::npos) first_bytes_ += mark.front();
  }
}

size_t ValueEnd::next_mark(std::string_view text, size_t from) const {
  for (;; ++from) {
    from = text.find_first_of(first_bytes_, from);
    if (from == text.npos) return from;
    const std::string_view rest = text.substr(from);
    const auto begins = [&](std::string_view mark) { return rest.starts_with(mark); };
    if (std::ranges::any_of(marks_, begins)) return from;
  }
}

bool ValueEnd::is_head(std::string_view rest) const {
  return std::ranges::any_of(format_.begins,
                             [&](std::string_view begin) { return rest.starts_with(begin); });
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
  size_t depth = 0;           // calls around the place that have begun in the value
  size_t held = text.npos;    // from where on nothing is certain
  std::vector<Mark> skipped;  // ends inside of these
  const auto unclear = [&](size_t at) {
    const size_t bytes = std::min(held, at);
    return Found{.bytes = bytes - white_space_at_end(text.substr(0, bytes))};
  };
  for (size_t at = next_mark(text, 0); at != text.npos; at = next_mark(text, at)) {
    const Mark mark = read(text, at, behind, value);
    switch (mark.kind) {
      case Mark::Kind::kUnclear:
        return unclear(at);
      case Mark::Kind::kNone:
        break;
      case Mark::Kind::kHead:
        ++depth;
        held = std::min(held, at);
        break;
      case Mark::Kind::kKey:
        if (depth == 0) return {.ends = true, .bytes = at, .marks = 0};
        break;
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
        const Verdict verdict = ends_call(text, mark, behind, &is_direct);
        if (verdict == Verdict::kUnclear) return unclear(at);
        if (verdict == Verdict::kYes) return {.ends = true, .bytes = at, .marks = mark.own};
        break;
    }
    at = mark.end;
  }
  if (behind == Behind::kNothing) return at_last(text, skipped);
  if (behind == Behind::kCut) return {.bytes = certain(text)};
  return unclear(certain(text));
}

// The answer has ended, and the calls that have begun in the value have not all: what looks like
// their ends may be that of the value.
ValueEnd::Found ValueEnd::at_last(std::string_view text, const std::vector<Mark>& skipped) const {
  for (const bool directly : {true, false}) {
    for (const Mark& mark : skipped) {
      bool is_direct = mark.kind == Mark::Kind::kArgument;
      const bool ends =
          is_direct || ends_call(text, mark, Behind::kNothing, &is_direct) == Verdict::kYes;
      if (ends && is_direct == directly) return {.ends = true, .bytes = mark.at, .marks = mark.own};
    }
  }
  return {.bytes = text.size()};
}

ValueEnd::Mark ValueEnd::read(std::string_view text, size_t at, Behind behind,
                              const Value& value) const {
  const TagSyntax& tags = format_.tags;
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(tags.value_end) || rest.starts_with(tags.call_end)) {
    return read_end(text, at, behind, value);
  }
  if (rest.starts_with(tags.key_begin)) return read_key(text, at, behind, value);
  return read_head(text, at, behind);
}

ValueEnd::Mark ValueEnd::read_end(std::string_view text, size_t at, Behind behind,
                                  const Value& value) const {
  const TagSyntax& tags = format_.tags;
  Mark mark{.at = at, .end = at + 1};
  Cursor in(text.substr(at), behind != Behind::kMore);
  mark.own = in.optional(tags.value_end) ? tags.value_end.size() : 0;
  mark.end = at + (mark.own > 0 ? mark.own : tags.call_end.size());
  // No number has a mark in it.
  const bool may_hold_marks = (value.types & (kText | kObject | kList)) != 0;
  mark.kind = !may_hold_marks ? Mark::Kind::kArgument : Mark::Kind::kClose;
  if (!may_hold_marks || mark.own == 0) return mark;
  mark.kind = Mark::Kind::kNone;
  in.space();
  Cursor key = in;
  if (in.optional(tags.call_end)) {
    mark.kind = Mark::Kind::kClose;
    mark.end = at + in.position();
    return mark;
  }
  const std::string name = read_name(key);
  const std::string_view left = text.substr(at + in.position());
  const bool is_all = left.empty() || tags.call_end.starts_with(left) ||
                      tags.key_begin.starts_with(left);  // and the answer ends here
  if (in.wants_more() || key.wants_more()) {
    mark.kind = Mark::Kind::kUnclear;
  } else if (key.ok() && !value.given.contains(name)) {
    mark.kind = Mark::Kind::kArgument;
  } else if (is_all && behind == Behind::kNothing) {
    mark.kind = Mark::Kind::kClose;
    mark.end = text.size();
  }
  return mark;
}

ValueEnd::Mark ValueEnd::read_head(std::string_view text, size_t at, Behind behind) const {
  Cursor in(text.substr(at), behind != Behind::kMore);
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
  const std::string_view key = in.until(tags.key_end, Cursor::kMostNameBytes);
  if (!tags.value_begin.empty()) in.space();
  in.literal(tags.value_begin);
  const std::string_view name = argument_name(tags, key);
  if (!is_name(name) && !tool_.arguments.contains(name)) in.fail();
  return std::string(name);
}

ValueEnd::Mark ValueEnd::read_key(std::string_view text, size_t at, Behind behind,
                                  const Value& value, int num_before) const {
  const TagSyntax& tags = format_.tags;
  Mark mark{.at = at, .end = at + tags.key_begin.size()};
  const bool is_text = (value.types & kText) != 0;
  if (is_text && !begins_line(text, at, value.is_new)) return mark;
  Cursor in(text.substr(at), behind != Behind::kMore);
  const std::string name = read_name(in);
  if (in.wants_more()) mark.kind = Mark::Kind::kUnclear;
  if (!in.ok() || !tool_.arguments.contains(name) || value.given.contains(name)) return mark;
  // Just as models are told to write it.
  const std::string written = std::string(tags.key_begin) + name +
                              std::string(tags.says_whether_text ? "\" string=\"" : tags.key_end);
  if (!text.substr(at).starts_with(written)) return mark;
  mark.kind = Mark::Kind::kKey;
  if (num_before >= kMostKeys) return mark;
  // The first end of its value decides, or that of the next one.
  Value next = value;
  next.given.insert(name);
  next.types = kAnyType;
  const std::string_view of_next = text.substr(at + in.position());
  for (size_t end = next_mark(of_next, 0); end != text.npos;) {
    const std::string_view rest = of_next.substr(end);
    const bool is_key = rest.starts_with(tags.key_begin);
    const bool is_end = rest.starts_with(tags.value_end) || rest.starts_with(tags.call_end);
    Mark found{.end = end + 1};
    if (is_key) found = read_key(of_next, end, behind, next, num_before + 1);
    if (is_end) found = read_end(of_next, end, behind, next);
    if (found.kind == Mark::Kind::kUnclear) mark.kind = found.kind;
    if (found.kind != Mark::Kind::kNone) return mark;
    if (is_end) return {.at = at, .end = mark.end};
    end = next_mark(of_next, found.end);
  }
  if (behind == Behind::kMore) mark.kind = Mark::Kind::kUnclear;
  return mark;
}

// is_direct: nothing, or another call, follows.
ValueEnd::Verdict ValueEnd::ends_call(std::string_view text, const Mark& close, Behind behind,
                                      bool* is_direct) const {
  Cursor in(text.substr(close.end), behind != Behind::kMore);
  size_t behind_tail = close.end;
  for (const std::string_view part : format_.tail) {
    in.space();
    if (in.optional(part)) behind_tail = close.end + in.position();
  }
  in.space();
  if (in.wants_more()) return Verdict::kUnclear;
  const size_t next = close.end + in.position();
  const std::string_view rest = text.substr(next);
  const auto begins_with_rest = [&](std::string_view mark) { return mark.starts_with(rest); };
  *is_direct = true;
  if (rest.empty()) return behind == Behind::kMore ? Verdict::kUnclear : Verdict::kYes;
  const Mark head = is_head(rest) ? read_head(text, next, behind) : Mark();
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
  if (behind == Behind::kCut && text[behind_tail] != '\n') return Verdict::kNo;
  switch (ends_later(text, next, behind)) {
    case Verdict::kYes:
      return Verdict::kNo;
    case Verdict::kNo:
      return Verdict::kYes;
    default:
      return Verdict::kUnclear;
  }
}

// Whether a value and its call end once more before another call begins.
ValueEnd::Verdict ValueEnd::ends_later(std::string_view text, size_t from, Behind behind) const {
  const TagSyntax& tags = format_.tags;
  for (size_t at = next_mark(text, from); at != text.npos; at = next_mark(text, at + 1)) {
    const std::string_view rest = text.substr(at);
    if (is_head(rest)) {
      const Mark mark = read_head(text, at, behind);
      if (mark.kind == Mark::Kind::kUnclear) return Verdict::kUnclear;
      if (mark.kind == Mark::Kind::kHead) return Verdict::kNo;
    }
    if (!rest.starts_with(tags.value_end)) continue;
    Cursor in(rest.substr(tags.value_end.size()), behind != Behind::kMore);
    in.space();
    in.literal(tags.call_end);
    if (in.wants_more()) return Verdict::kUnclear;
    if (in.ok()) return Verdict::kYes;
  }
  return behind == Behind::kMore ? Verdict::kUnclear : Verdict::kNo;
}

}  // namespace wideep::answer
