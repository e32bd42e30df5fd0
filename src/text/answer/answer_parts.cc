// SPDX-License-Identifier: Apache-2.0
#include "answer/answer_parts.h"

#include <algorithm>
#include <utility>

namespace wideep::answer {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

std::string AnswerParts::take(std::string* text) { return std::exchange(*text, {}); }

std::vector<CallPart> AnswerParts::take_calls() { return std::exchange(calls_, {}); }

void AnswerParts::add(std::string_view text, bool holds_space, bool* skips_space,
                      std::string* space, std::string* out) {
  if (*skips_space) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return;
    *skips_space = false;
  }
  const size_t end = holds_space ? text.find_last_not_of(kSpace) + 1 : text.size();
  if (end > 0) {
    *out += *space;
    *out += text.substr(0, end);
    space->clear();
  }
  *space += text.substr(end);
}

void AnswerParts::add_reasoning(std::string_view text) {
  add(text, true, &skips_reasoning_space_, &reasoning_space_, &reasoning_);
}

void AnswerParts::end_reasoning() {
  // It may begin again.
  if (!skips_reasoning_space_) reasoning_space_ = "\n";
  skips_reasoning_space_ = true;
  skips_content_space_ = true;
}

void AnswerParts::add_content(std::string_view text) {
  add(text, holds_space_, &skips_content_space_, &content_space_, &content_);
}

void AnswerParts::end_content() {
  content_space_.clear();
  skips_content_space_ = true;
}

void AnswerParts::begin_call(std::string name, std::string id) {
  content_space_.clear();
  in_call_ = true;
  calls_.push_back({.index = num_calls_++,
                    .begins = true,
                    .id = std::move(id),
                    .name = std::move(name),
                    .arguments = {}});
}

void AnswerParts::add_arguments(std::string_view text) {
  if (text.empty()) return;
  const int index = num_calls_ - 1;
  if (calls_.empty() || calls_.back().index != index) {
    calls_.push_back({.index = index, .begins = false, .id = {}, .name = {}, .arguments = {}});
  }
  calls_.back().arguments += text;
}

void AnswerParts::end_call() {
  if (!in_call_) return;
  in_call_ = false;
  ++num_ended_calls_;
  skips_content_space_ = true;
}

void AnswerParts::end_answer() {
  end_call();
  if (num_calls_ == 0) content_ += content_space_;
  content_space_.clear();
}

}  // namespace wideep::answer
