// SPDX-License-Identifier: Apache-2.0
#include "answer/answer_format.h"

#include <fmt/format.h>

namespace wideep::answer {
namespace {

constexpr std::string_view kHarmonyTokens[] = {"<|start|>", "<|channel|>",   "<|message|>",
                                               "<|end|>",   "<|constrain|>", "<|call|>"};

}  // namespace

std::span<const std::string_view> harmony_tokens() { return kHarmonyTokens; }

std::vector<std::string_view> AnswerFormat::markers() const {
  std::vector<std::string_view> all;
  const auto add = [&](std::string_view marker) {
    if (!marker.empty()) all.push_back(marker);
  };
  if (is_harmony) {
    for (const std::string_view token : harmony_tokens()) add(token);
  }
  if (reasoning != nullptr) {
    for (const std::string_view each : {reasoning->begin, reasoning->end, reasoning->content_begin,
                                        reasoning->content_end, reasoning->next_message}) {
      add(each);
    }
  }
  if (calls != nullptr) {
    const TagSyntax& tags = calls->tags;
    for (const std::string_view each : calls->begins) add(each);
    for (const std::string_view each : calls->inner) add(each);
    for (const std::string_view each : calls->tail) add(each);
    for (const std::string_view each :
         {tags.key_begin, tags.key_end, tags.value_begin, tags.value_end, tags.call_end}) {
      add(each);
    }
  }
  return all;
}

std::string AnswerFormat::description() const {
  if (is_harmony) return "tool calls: openai, reasoning: openai_gptoss";
  return fmt::format("tool calls: {}, reasoning: {}", calls == nullptr ? "none" : calls->name,
                     reasoning == nullptr ? "none" : reasoning->name);
}

}  // namespace wideep::answer
