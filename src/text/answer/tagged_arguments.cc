// SPDX-License-Identifier: Apache-2.0
//
// Between values the next tag decides; a value's end is ValueEnd's to find. A text is passed on as
// far as it is certain; other types wait for their end, because quotes depend on the whole value. A
// value whose end is unclear is looked at again only when it has grown by half.
#include "answer/tagged_arguments.h"

#include "formats/json_text.h"

namespace wideep::answer {
namespace {

// A value whose end is not certain is looked at again when more text has come: from this size on
// when there is half as much again, so that the work stays proportional to the text.
constexpr size_t kShortValue = 4096;

// Without the line feed at its end, and what comes between it and the mark in the same line.
std::string_view without_last_line_feed(std::string_view value, bool has_indent) {
  const size_t end = has_indent ? value.find_last_not_of(" \t") + 1 : value.size();
  if (!value.substr(0, end).ends_with('\n')) return value;
  return value.substr(0, end - 1);
}

}  // namespace

size_t TaggedArguments::take(std::string_view text, bool is_all, AnswerParts& out) {
  for (;;) {
    const Place before = place_;
    const size_t bytes =
        place_ == Place::kBetween ? take_between(text, is_all, out) : take_value(text, is_all, out);
    if (bytes > 0 || is_done_ || place_ == before) return bytes;
  }
}

void TaggedArguments::end(AnswerParts& out) {
  out.add_arguments(state_.given.empty() ? "{}" : "}");
  is_done_ = true;
}

size_t TaggedArguments::take_between(std::string_view text, bool is_all, AnswerParts& out) {
  Cursor call_end(text, is_all);
  call_end.space();
  call_end.literal(tags_.call_end);
  if (call_end.wants_more()) return 0;
  if (call_end.ok()) {
    end(out);
    return call_end.position();
  }
  Cursor in(text, is_all);
  in.space();
  in.literal(tags_.key_begin);
  const std::string_view key = in.until(tags_.key_end, Cursor::kMaxNameBytes);
  if (!tags_.value_begin.empty()) in.space();
  in.literal(tags_.value_begin);
  if (in.ok()) return begin_value(key, in.position(), out);
  // What follows is no argument, so that the call has ended before.
  if (!in.wants_more() && !is_cut_) end(out);
  return 0;
}

size_t TaggedArguments::begin_value(std::string_view key, size_t bytes, AnswerParts& out) {
  const std::string_view name = argument_name(tags_, key);
  state_.types = tool_.types_of(name);
  if (tags_.says_whether_text) {
    const bool is_text = key.find("string=\"true", name.size()) != key.npos;
    state_.types = is_text ? kText : kAnyType;
  }
  begin_argument(name, state_.given.empty(), out);
  state_.given.emplace(name);
  state_.is_new = true;
  if (state_.types == kText) out.add_arguments("\"");
  place_ = Place::kValueBegin;
  return bytes;
}

size_t TaggedArguments::take_value(std::string_view text, bool is_all, AnswerParts& out) {
  if (place_ == Place::kValueBegin) {
    place_ = Place::kValue;
    if (tags_.strips_line_feeds && text.starts_with('\n')) return 1;
  }
  if (text.size() < next_try_ && !is_all) return 0;
  const Behind behind = !is_all ? Behind::kMore : is_cut_ ? Behind::kCut : Behind::kNothing;
  const ValueEnd::Found found = value_end_.find(text, behind, state_);
  const bool waits = found.bytes == 0 && !found.ends && text.size() >= kShortValue;
  next_try_ = waits ? text.size() + text.size() / 2 : 0;
  std::string_view value = text.substr(0, found.bytes);
  if (found.ends && (tags_.strips_line_feeds || found.marks == 0)) {
    value = without_last_line_feed(value, found.marks == 0);
  }
  add_to_value(value, out);
  if (found.ends) end_value(out);
  return found.bytes + found.marks;
}

void TaggedArguments::add_to_value(std::string_view text, AnswerParts& out) {
  if (!text.empty()) state_.is_new = false;
  if (state_.types != kText) {
    value_ += text;
    return;
  }
  std::string json;
  formats::add_json_characters(text, &json);
  out.add_arguments(json);
}

void TaggedArguments::end_value(AnswerParts& out) {
  out.add_arguments(state_.types == kText ? "\"" : argument_json(value_, state_.types));
  value_.clear();
  place_ = Place::kBetween;
}

void TaggedArguments::complete(AnswerParts& out) {
  if (place_ != Place::kBetween) end_value(out);
  end(out);
}

}  // namespace wideep::answer
