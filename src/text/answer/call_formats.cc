// SPDX-License-Identifier: Apache-2.0
#include "answer/call_formats.h"

#include <algorithm>

namespace wideep::answer {
namespace {

constexpr const CallFormat* kFormats[] = {
    &kHermes,     &kGranite,     &kHunyuan,     &kLlamaJson,  &kMistral,     &kMistralV11,
    &kDeepSeekV3, &kDeepSeekV31, &kDeepSeekV32, &kDeepSeekV4, &kKimiK2,      &kGlm45,
    &kCohere,     &kSolarOpen,   &kGemma4,      &kHyV3,       &kHyV3Preview, &kQwen3Coder,
    &kMiniMaxM2,  &kMiniMaxM3,   &kDots,        &kPythonic};

// What only templates of one format contain; the first line whose texts are all there decides.
struct Sign {
  const CallFormat* format;
  std::string_view text;
  std::string_view and_text = {};
};
constexpr Sign kSigns[] = {
    {&kDeepSeekV4, "｜DSML｜", "tool_calls>"},
    {&kDeepSeekV32, "｜DSML｜"},
    {&kDeepSeekV3, "<｜tool▁calls▁begin｜>", "```json"},
    {&kDeepSeekV31, "<｜tool▁calls▁begin｜>"},
    {&kKimiK2, "<|tool_calls_section_begin|>"},
    {&kMiniMaxM3, "]<]minimax[>["},
    {&kMiniMaxM2, "<minimax:tool_call>"},
    {&kCohere, "<|START_ACTION|>"},
    {&kSolarOpen, "<|tool_call:begin|>"},
    {&kGemma4, "<|tool_call>call:"},
    {&kDots, "<dots_function_call>"},
    {&kHyV3, "<tool_sep", ":opensource"},
    {&kHyV3Preview, "<tool_sep>", "<arg_key>"},
    {&kGlm45, "<tool_call>", "<arg_key>"},
    {&kQwen3Coder, "<tool_call>", "<function="},
    {&kMistralV11, "[TOOL_CALLS]", "[ARGS]"},
    {&kMistral, "[TOOL_CALLS]"},
    {&kGranite, "<|tool_call|>"},
    {&kPythonic, "<|tool_call_start|>"},
    {&kPythonic, "<|tool_list_start|>"},
    {&kPythonic, "[func_name1("},
    // Before <tool_call>: Hermes' template contains the schema of a call, with "parameters", too.
    {&kHermes, "<tool_call>\\n{"},
    {&kHermes, "<tool_call>\n{"},
    {&kHunyuan, "<tool_calls>"},
    {&kHermes, "<tool_call>"},
    {&kLlamaJson, "\"parameters\": dictionary of argument name"},
    {&kLlamaJson, "\"parameters\":", "<|python_tag|>"},
};

}  // namespace

std::span<const CallFormat* const> call_formats() { return kFormats; }

const CallFormat* find_call_format(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const auto* each) {
    const auto& more = each->more_names;
    return each->name == name || std::find(more.begin(), more.end(), name) != more.end();
  });
  return found == std::end(kFormats) ? nullptr : *found;
}

const CallFormat* call_format_of_template(std::string_view text) {
  for (const Sign& sign : kSigns) {
    if (text.find(sign.text) == text.npos) continue;
    if (text.find(sign.and_text) != text.npos) return sign.format;
  }
  return nullptr;
}

}  // namespace wideep::answer
