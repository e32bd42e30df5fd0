// SPDX-License-Identifier: Apache-2.0
//
// A state machine over four places: content, the head of a call, its arguments, what may follow it.
// A step takes certain text or changes the place; when it does neither, more text is needed.
//
// Heads and tails are read from their beginning each time, by a Cursor that says "no", "yes" or
// "more". That is simpler than a state for every syntax, and long heads are read again only when
// they have grown by half, so that the work stays linear. What turns out to be no call loses only
// its marker to content: a real call may begin right behind it.
#include "answer/call_reader.h"

#include <algorithm>
#include <utility>

#include "answer/make_arguments.h"

namespace wideep::answer {
namespace {

// A head is read again from its beginning when more text has come. That of a call with its
// arguments before its name may be long: then only after this many bytes more, and half as much
// again as there are, so that the work stays proportional to the text.
constexpr size_t kShortHead = 4096;

// What follows the arguments in their object.
void read_rest_of_object(Cursor& in) {
  for (;;) {
    in.space();
    if (in.optional("}") || !in.ok()) return;
    in.literal(",");
    in.space();
    if (in.peek() != '"') return in.fail();
    in.json();
    in.space();
    in.literal(":");
    in.space();
    in.json();
    if (!in.ok()) return;
  }
}

}  // namespace

size_t CallReader::take(std::string_view text, bool is_all, AnswerParts& out) {
  for (;;) {
    const Place before = place_;
    const size_t bytes = step(text, is_all, out);
    if (bytes > 0 || place_ == before) return bytes;
  }
}

size_t CallReader::step(std::string_view text, bool is_all, AnswerParts& out) {
  switch (place_) {
    case Place::kContent:
      return take_content(text, is_all, out);
    case Place::kHead:
      return take_head(text, is_all, out);
    case Place::kArguments:
      return take_arguments(text, is_all, out);
    default:
      return take_tail(text, is_all, out);
  }
}

// Up to the first marker, or to what may become one.
size_t CallReader::take_content(std::string_view text, bool is_all, AnswerParts& out) {
  size_t end = text.size();
  if (format_ != nullptr) {
    end = std::min(end, find_first(text, format_->begins));
    size_t certain = text.size();
    for (const std::string_view begin : format_->begins) {
      if (!is_all) certain = std::min(certain, text.size() - partial_marker(text, begin));
    }
    if (is_at_beginning_ && format_->bare_begin != '\0') {
      const size_t first = text.find_first_not_of(" \t\r\n");
      if (first < end && text[first] == format_->bare_begin) end = first;
    }
    if (end == 0) {
      place_ = Place::kHead;
      return 0;
    }
    end = std::min(end, certain);
  }
  const std::string_view content = text.substr(0, end);
  if (!trimmed(content).empty()) is_at_beginning_ = false;
  out.add_content(content);
  return end;
}

size_t CallReader::take_head(std::string_view text, bool is_all, AnswerParts& out) {
  if (text.size() < next_try_ && !is_all) return 0;
  Cursor in(text, is_all);
  CallHead head;
  head.may_end = is_all && !is_cut_;
  format_->read_head(in, head);
  if (in.wants_more()) return wait(text);
  next_try_ = 0;
  is_at_beginning_ = false;
  if (in.ok() && begin_call(std::move(head), out)) return in.position();
  // No call: its marker is content, and what follows is looked at again.
  place_ = Place::kContent;
  size_t marker = 1;
  for (const std::string_view begin : format_->begins) {
    if (text.starts_with(begin)) marker = std::max(marker, begin.size());
  }
  out.add_content(text.substr(0, marker));
  return marker;
}

std::optional<bool> CallReader::begins_call(std::string_view text, bool is_all) const {
  if (format_ == nullptr) return false;
  Cursor in(text, is_all);
  CallHead head;
  head.may_end = is_all;
  format_->read_head(in, head);
  if (in.wants_more()) return {};
  return in.ok() && tool_of(&head) != nullptr;
}

// Of the names that the head may mean, the first one that a tool has becomes the call's.
const Tool* CallReader::tool_of(CallHead* head) const {
  const Tool* tool = tools_.find(head->name);
  for (const std::string& name : head->more_names) {
    if (tool != nullptr) break;
    tool = tools_.find(name);
    if (tool != nullptr) head->name = name;
  }
  return tool;
}

bool CallReader::begin_call(CallHead head, AnswerParts& out) {
  const Tool* tool = tool_of(&head);
  if (tool == nullptr) return false;
  out.begin_call(std::move(head.name), std::move(head.id));
  in_object_ = head.in_object;
  if (head.arguments) {
    out.add_arguments(*head.arguments);
    end_call(out);
  } else {
    arguments_ = make_arguments(*format_, *tool);
    place_ = Place::kArguments;
  }
  return true;
}

void CallReader::end_call(AnswerParts& out) {
  out.end_call();
  arguments_.reset();
  place_ = Place::kTail;
}

size_t CallReader::take_arguments(std::string_view text, bool is_all, AnswerParts& out) {
  const size_t bytes = arguments_->take(text, is_all, out);
  if (arguments_->is_done()) end_call(out);
  return bytes;
}

size_t CallReader::take_cut(std::string_view text, AnswerParts& out) {
  is_cut_ = true;
  if (!in_arguments()) return 0;
  arguments_->cut();
  size_t done = 0;
  while (in_arguments() && done < text.size()) {
    const size_t bytes = take_arguments(text.substr(done), true, out);
    done += bytes;
    if (bytes == 0) break;
  }
  return done;
}

// The rest of the object, then another call or what may follow the last one.
size_t CallReader::take_tail(std::string_view text, bool is_all, AnswerParts& out) {
  if (text.size() < next_try_ && !is_all) return 0;
  if (in_object_) {
    Cursor in(text, is_all);
    read_rest_of_object(in);
    if (in.wants_more()) return wait(text);
    in_object_ = false;
    next_try_ = 0;
    if (in.ok()) return in.position();
  }
  if (format_->read_next != nullptr) {
    Cursor in(text, is_all);
    CallHead head;
    format_->read_next(in, head);
    if (in.wants_more()) return wait(text);
    next_try_ = 0;
    if (in.ok() && begin_call(std::move(head), out)) return in.position();
  }
  Cursor in(text, is_all);
  for (const std::string_view part : format_->tail) {
    in.space();
    in.optional(part);
  }
  if (in.wants_more()) return wait(text);
  next_try_ = 0;
  place_ = Place::kContent;
  // An answer may end in the middle of them.
  const std::string_view rest = text.substr(in.position());
  const bool is_begun =
      std::any_of(format_->tail.begin(), format_->tail.end(),
                  [&](std::string_view part) { return !rest.empty() && part.starts_with(rest); });
  return is_all && is_begun ? text.size() : in.position();
}

size_t CallReader::wait(std::string_view text) {
  next_try_ = text.size() < kShortHead ? 0 : text.size() + text.size() / 2;
  return 0;
}

void CallReader::finish(bool is_cut, AnswerParts& out) {
  if (place_ == Place::kArguments && !is_cut) arguments_->complete(out);
  place_ = Place::kContent;
  out.end_answer();
}

}  // namespace wideep::answer
