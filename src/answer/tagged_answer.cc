// SPDX-License-Identifier: Apache-2.0
#include "answer/tagged_answer.h"

#include <algorithm>

#include "answer/cursor.h"

namespace wideep::answer {

TaggedAnswer::TaggedAnswer(const AnswerSettings& settings)
    : reasoning_(settings.format.reasoning),
      ends_reasoning_(nullptr),
      calls_(settings.format.calls, *settings.tools),
      place_(reasoning_ == nullptr ? Place::kContent : Place::kBegin),
      is_open_(settings.begins_in_reasoning),
      must_call_(settings.must_call) {
  const CallFormat* calls = settings.format.calls;
  if (calls != nullptr && calls->ends_reasoning && !settings.tools->empty()) {
    ends_reasoning_ = calls;
  }
}

void TaggedAnswer::add_text(std::string_view text, AnswerParts& parts) {
  pending_ += text;
  take_all(false, parts);
}

void TaggedAnswer::finish(bool is_cut, AnswerParts& parts) {
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
      return take_begin(text, is_all);
    case Place::kReasoning:
      return take_reasoning(text, is_all, parts);
    case Place::kAfterReasoning:
      return take_after_reasoning(text, is_all);
    default:
      return take_content(text, is_all, parts);
  }
}

// The tag that begins the reasoning, also if the prompt has it already: some models repeat it.
size_t TaggedAnswer::take_begin(std::string_view text, bool is_all) {
  Cursor in(text, is_all);
  in.space();
  const bool begins = in.optional(reasoning_->begin);
  if (in.wants_more()) return 0;
  place_ = begins || is_open_ ? Place::kReasoning : Place::kContent;
  return begins ? in.position() : 0;
}

size_t TaggedAnswer::take_reasoning(std::string_view text, bool is_all, AnswerParts& parts) {
  const size_t end = text.find(reasoning_->end);
  size_t call = text.npos, certain = text.size();
  if (!is_all) certain -= partial_marker(text, reasoning_->end);
  if (ends_reasoning_ != nullptr) {
    for (const std::string_view begin : ends_reasoning_->begins) {
      call = std::min(call, text.find(begin));
      if (!is_all) certain = std::min(certain, text.size() - partial_marker(text, begin));
    }
  }
  const size_t until = std::min(end, call);
  if (until == text.npos) {
    parts.add_reasoning(text.substr(0, certain));
    return certain;
  }
  parts.add_reasoning(text.substr(0, until));
  parts.end_reasoning();
  if (call < end) {
    place_ = Place::kContent;
    return until;
  }
  place_ = Place::kAfterReasoning;
  return until + reasoning_->end.size();
}

size_t TaggedAnswer::take_after_reasoning(std::string_view text, bool is_all) {
  Cursor in(text, is_all);
  if (!reasoning_->content_begin.empty()) {
    in.space();
    is_wrapped_ = in.optional(reasoning_->content_begin);
    if (in.wants_more()) return 0;
  }
  place_ = Place::kContent;
  return is_wrapped_ ? in.position() : 0;
}

size_t TaggedAnswer::take_content(std::string_view text, bool is_all, AnswerParts& parts) {
  if (!is_wrapped_) return calls_.take(text, is_all, parts);
  const std::string_view end = reasoning_->content_end;
  const size_t found = text.find(end);
  if (found == 0) {
    is_wrapped_ = false;
    parts.end_content();
    return end.size();
  }
  if (found != text.npos) return calls_.take(text.substr(0, found), true, parts);
  const size_t certain = text.size() - (is_all ? 0 : partial_marker(text, end));
  if (certain == 0) return 0;
  return calls_.take(text.substr(0, certain), is_all, parts);
}

}  // namespace wideep::answer
