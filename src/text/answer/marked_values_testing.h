// SPDX-License-Identifier: Apache-2.0
//
// For tests: calls whose arguments hold the marks of their own format, written down and read again.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_testing.h"
#include "answer/written_calls_testing.h"

namespace wideep::answer {

// Without white space and ends of values, which models leave out at times.
inline std::string only_text(const CallFormat& format, std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const std::string_view end = format.tags.value_end;
    const bool is_end = !end.empty() && text.starts_with(end);
    const bool is_space = std::string_view(" \t\r\n").find(text.front()) != text.npos;
    if (!is_end && !is_space) all += text.front();
    text.remove_prefix(is_end ? end.size() : 1);
  }
  return all;
}

inline std::vector<CallToWrite> as_written(const ReadAnswer& answer) {
  std::vector<CallToWrite> calls;
  for (const ReadCall& call : answer.calls) {
    calls.push_back({call.name, nlohmann::ordered_json::parse(call.arguments, nullptr, false)});
  }
  return calls;
}

// Whether what was no call has no end in it. Few values make others: those that look like the end
// of their call, and what follows.
inline bool has_whole_calls(const CallFormat& format, const ReadAnswer& answer) {
  const auto ends = {format.tags.value_end, format.tags.call_end};
  return answer.calls.empty() || format.form != ArgumentsForm::kTags ||
         std::ranges::none_of(ends, [&](std::string_view end) {
           return answer.content.find(end) != std::string::npos;
         });
}

// Whether the answer is a right reading of the calls' text: the same calls; or none; or others that
// are written as this text, so that nothing tells them apart.
inline bool is_right_reading(const CallFormat& format, const std::vector<CallToWrite>& calls,
                             const ReadAnswer& answer) {
  const std::vector<CallToWrite> found = as_written(answer);
  if (found.empty()) return true;
  const auto same = [](const CallToWrite& a, const CallToWrite& b) {
    return a.name == b.name && a.arguments == b.arguments;
  };
  if (std::ranges::equal(found, calls, same)) return answer.content.empty();
  if (format.form != ArgumentsForm::kTags) return false;
  const std::string text = only_text(format, calls_text(format, calls));
  size_t size = only_text(format, answer.content).size() +
                only_text(format, format.shape.begin).size() +
                only_text(format, format.shape.end).size();
  size_t at = 0;
  for (const CallToWrite& call : found) {
    std::string one = calls_text(format, {call});
    one = one.substr(format.shape.begin.size(),
                     one.size() - format.shape.begin.size() - format.shape.end.size());
    const std::string written = only_text(format, one);
    at = text.find(written, at);
    if (at == text.npos) return false;
    at += written.size();
    size += written.size();
  }
  // Models leave out the marks around calls at times.
  return size >= text.size();
}

}  // namespace wideep::answer
