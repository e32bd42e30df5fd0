// SPDX-License-Identifier: Apache-2.0
//
// Places in order: the beginning, reasoning, what follows its end, content. Text that may be part
// of a tag waits in pending_.
//
// A call in reasoning is part of it, unless the reasoning never ends; then the model has called
// without closing its thoughts. Which of the two is known only at the end of one of them, so the
// call is held until then, and the text behind it is searched for the end once, from where the last
// search stopped.
#include "answer/tagged_answer.h"

#include <algorithm>
#include <optional>
#include <span>

#include "answer/cursor.h"

namespace wideep::answer {

TaggedAnswer::TaggedAnswer(const AnswerSettings& settings)
    : reasoning_(settings.format.reasoning),
      format_(settings.tools->empty() ? nullptr : settings.format.calls),
      calls_(settings.format.calls, *settings.tools),
      place_(reasoning_ == nullptr ? Place::kContent : Place::kBegin),
      is_open_(settings.begins_in_reasoning),
      must_call_(settings.must_call) {
  if (reasoning_ == nullptr || !reasoning_->has_own_tokens) return;
  for (const std::string_view mark : {reasoning_->begin, reasoning_->end, reasoning_->content_begin,
                                      reasoning_->content_end, reasoning_->next_message}) {
    if (!mark.empty()) marks_.push_back(mark);
  }
}

void TaggedAnswer::add_text(std::string_view text, AnswerParts& parts) {
  pending_ += text;
  take_all(false, parts);
}

void TaggedAnswer::finish(bool is_cut, AnswerParts& parts) {
  is_cut_ = is_cut;
  if (is_cut) pending_.erase(0, calls_.take_cut(pending_, parts));
  // What is not certain yet has begun like a mark.
  const bool in_calls = calls_.in_arguments() || (must_call_ && place_ != Place::kReasoning);
  if (is_cut && in_calls) pending_.clear();
  take_all(true, parts);
  if (place_ == Place::kReasoning) parts.end_reasoning();
  calls_.finish(is_cut, parts);
}

void TaggedAnswer::take_all(bool is_all, AnswerParts& parts) {
  size_t done = 0;
  while (done < pending_.size()) {
    const Place before = place_;
    const size_t bytes = step(std::string_view(pending_).substr(done), is_all, parts);
    done += bytes;
    if (bytes == 0 && place_ == before) break;
  }
  pending_.erase(0, done);
}

size_t TaggedAnswer::step(std::string_view text, bool is_all, AnswerParts& parts) {
  switch (place_) {
    case Place::kBegin:
      return take_begin(text, is_all, parts);
    case Place::kReasoning:
      return take_reasoning(text, is_all, parts);
    case Place::kAfterReasoning:
      return take_after_reasoning(text, is_all);
    default:
      return take_content(text, is_all, parts);
  }
}

// The tag that begins the reasoning, also if the prompt has it already: some models repeat it. Its
// end alone says that there is none.
size_t TaggedAnswer::take_begin(std::string_view text, bool is_all, AnswerParts& parts) {
  Cursor in(text, is_all);
  in.space();
  const bool begins = in.optional(reasoning_->begin);
  const bool ends = !begins && !is_open_ && in.optional(reasoning_->end);
  if (in.wants_more()) return 0;
  place_ = begins || is_open_ ? Place::kReasoning : ends ? Place::kAfterReasoning : Place::kContent;
  if (ends) parts.end_reasoning();
  return begins || ends ? in.position() : 0;
}

size_t TaggedAnswer::take_reasoning(std::string_view text, bool is_all, AnswerParts& parts) {
  if (holds_call_) return take_held_call(text, is_all, parts);
  const size_t end = text.find(reasoning_->end);
  // Before the end of the reasoning, a call is a part of it.
  const bool looks_for_call = format_ != nullptr && (format_->ends_reasoning || end == text.npos);
  const size_t call = looks_for_call ? find_first(text, format_->begins) : text.npos;
  const size_t until = std::min(end, call);
  if (until == text.npos) {
    size_t certain = text.size();
    if (!is_all) certain -= partial_marker(text, reasoning_->end);
    for (size_t i = 0; !is_all && format_ != nullptr && i < format_->begins.size(); ++i) {
      certain = std::min(certain, text.size() - partial_marker(text, format_->begins[i]));
    }
    parts.add_reasoning(text.substr(0, certain));
    return certain;
  }
  parts.add_reasoning(text.substr(0, until));
  if (end < call) {
    parts.end_reasoning();
    place_ = Place::kAfterReasoning;
    return until + reasoning_->end.size();
  }
  if (until > 0) return until;
  if (format_->ends_reasoning) {
    parts.end_reasoning();
    place_ = Place::kContent;
    return 0;
  }
  if (text.size() < next_try_ && !is_all) return 0;
  const std::optional<bool> is_call = calls_.begins_call(text, is_all);
  next_try_ = is_call ? 0 : text.size() + text.size() / 2;
  if (!is_call) return 0;
  holds_call_ = *is_call;
  num_without_end_ = 0;
  if (holds_call_) return take_held_call(text, is_all, parts);
  parts.add_reasoning(text.substr(0, 1));
  return 1;
}

// A call in front of the reasoning's end is a part of it; where it has no end, the call ends it.
size_t TaggedAnswer::take_held_call(std::string_view text, bool is_all, AnswerParts& parts) {
  const size_t end = text.find(reasoning_->end, num_without_end_);
  const size_t partial = reasoning_->end.size() - 1;
  num_without_end_ = text.size() - std::min(text.size(), partial);
  if (end == text.npos && !is_all) return 0;
  holds_call_ = false;
  if (end == text.npos && !is_cut_) {
    parts.end_reasoning();
    place_ = Place::kContent;
    return 0;
  }
  // Up to the end, which is looked at again.
  const size_t bytes = std::min(end, text.size());
  parts.add_reasoning(text.substr(0, bytes));
  return bytes;
}

size_t TaggedAnswer::take_after_reasoning(std::string_view text, bool is_all) {
  Cursor in(text, is_all);
  if (!reasoning_->content_begin.empty() && marks_.empty()) {
    in.space();
    is_wrapped_ = in.optional(reasoning_->content_begin);
    if (in.wants_more()) return 0;
  }
  place_ = Place::kContent;
  return is_wrapped_ ? in.position() : 0;
}

// Before a mark, which tokens of their own or an end of the content make certain, all is certain.
size_t TaggedAnswer::take_content(std::string_view text, bool is_all, AnswerParts& parts) {
  const bool has_marks = is_wrapped_ || !marks_.empty();
  if (!has_marks || calls_.in_arguments()) {
    num_without_mark_ = 0;
    return calls_.take(text, is_all, parts);
  }
  const auto marks = marks_.empty() ? std::span(&reasoning_->content_end, 1)
                                    : std::span<const std::string_view>(marks_);
  const size_t found = find_first(text, marks, num_without_mark_);
  if (found == 0) return take_mark(text, parts);
  size_t certain = std::min(found, text.size()), partial = 0;
  for (const std::string_view mark : marks) {
    partial = std::max(partial, found == text.npos ? partial_marker(text, mark) : 0);
  }
  num_without_mark_ = certain - partial;
  if (!is_all) certain -= partial;
  if (certain == 0) return 0;
  const size_t bytes = calls_.take(text.substr(0, certain), is_all || found != text.npos, parts);
  num_without_mark_ -= std::min(num_without_mark_, bytes);
  return bytes;
}

size_t TaggedAnswer::take_mark(std::string_view text, AnswerParts& parts) {
  num_without_mark_ = 0;
  parts.end_content();
  if (marks_.empty()) {
    is_wrapped_ = false;
    return reasoning_->content_end.size();
  }
  if (text.starts_with(reasoning_->begin)) {
    place_ = Place::kReasoning;
    return reasoning_->begin.size();
  }
  const auto is_here = [&](std::string_view mark) { return text.starts_with(mark); };
  return std::ranges::find_if(marks_, is_here)->size();
}

}  // namespace wideep::answer
