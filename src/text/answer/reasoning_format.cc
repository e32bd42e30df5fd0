// SPDX-License-Identifier: Apache-2.0
#include "answer/reasoning_format.h"

#include <algorithm>
#include <iterator>

#include "answer/cursor.h"

namespace wideep::answer {
namespace {

// The first one whose texts a template contains is taken for it.
constexpr ReasoningFormat kFormats[] = {
    {.name = "mistral", .begin = "[THINK]", .end = "[/THINK]"},
    {.name = "solar_open",
     .begin = "<|think|>",
     .end = "<|end|>",
     .content_begin = "<|content|>",
     .content_end = "<|end|>",
     .has_own_tokens = true,
     .next_message = "<|begin|>assistant"},
    {.name = "cohere_command4",
     .begin = "<|START_THINKING|>",
     .end = "<|END_THINKING|>",
     .content_begin = "<|START_TEXT|>",
     .content_end = "<|END_TEXT|>",
     .has_own_tokens = true},
    {.name = "cohere_command3",
     .begin = "<|START_THINKING|>",
     .end = "<|END_THINKING|>",
     .content_begin = "<|START_RESPONSE|>",
     .content_end = "<|END_RESPONSE|>",
     .has_own_tokens = true},
    {.name = "seed_oss", .begin = "<seed:think>", .end = "</seed:think>"},
    {.name = "gemma4", .begin = "<|channel>thought", .end = "<channel|>", .has_own_tokens = true},
    {.name = "minimax_m3", .begin = "<mm:think>", .end = "</mm:think>", .has_own_tokens = true},
    {.name = "hy_v3",
     .begin = "<think:opensource>",
     .end = "</think:opensource>",
     .has_own_tokens = true,
     .sign = "'<think{}>'"},
    {.name = "granite", .content_begin = "<response>", .content_end = "</response>"},
    {.name = "hunyuan_a13b", .content_begin = "<answer>", .content_end = "</answer>"},
    {.name = "ernie45", .content_begin = "<response>", .content_end = "</response>"},
    {.name = "qwen3"},
    {.name = "deepseek_r1", .is_always_open = true},
    {.name = "deepseek_v3"},
    {.name = "deepseek_v4"},
    {.name = "glm45"},
    {.name = "glm47"},
    {.name = "kimi_k2"},
    {.name = "ling3"},
    {.name = "mimo"},
    {.name = "minimax_m2"},
    {.name = "nemotron_v3"},
    {.name = "olmo3"},
    {.name = "poolside_v1"},
    {.name = "step3", .is_always_open = true},
    {.name = "step3p5"},
};

}  // namespace

std::span<const ReasoningFormat> reasoning_formats() { return kFormats; }

const ReasoningFormat* find_reasoning_format(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const ReasoningFormat& each) { return each.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

// A template may name only the end, to cut earlier reasoning off.
const ReasoningFormat* reasoning_format_of_template(std::string_view text) {
  const auto contains = [&](std::string_view part) { return text.find(part) != text.npos; };
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const ReasoningFormat& each) {
        const bool has_sign = !each.sign.empty() && contains(each.sign);
        const bool has_end = contains(each.end) && !each.has_own_tokens;
        const bool has_marks = contains(each.begin) || has_end || has_sign;
        return has_marks && contains(each.content_begin);
      });
  return found == std::end(kFormats) ? nullptr : found;
}

namespace {

std::string_view end_of(std::string_view prompt) {
  return trimmed(prompt.substr(prompt.size() - std::min<size_t>(prompt.size(), 64)));
}

}  // namespace

bool opens_reasoning(const ReasoningFormat& format, std::string_view prompt) {
  const std::string_view end = end_of(prompt);
  if (end.ends_with(format.begin)) return true;
  return format.is_always_open && !closes_reasoning(format, prompt);
}

bool closes_reasoning(const ReasoningFormat& format, std::string_view prompt) {
  std::string_view end = end_of(prompt);
  for (const std::string_view mark : {format.content_begin, format.next_message}) {
    if (end.ends_with(mark)) end = trimmed(end.substr(0, end.size() - mark.size()));
  }
  if (!end.ends_with(format.end)) return false;
  // Where every message ends so, only an empty reasoning is one.
  if (format.next_message.empty()) return true;
  return trimmed(end.substr(0, end.size() - format.end.size())).ends_with(format.begin);
}

}  // namespace wideep::answer
