// SPDX-License-Identifier: Apache-2.0
//
// Kimi K2, whose ids contain the name and the call's number in the conversation:
//
//   <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a":
//   1}
//   <|tool_call_end|><|tool_calls_section_end|>
//
// K2-Thinking calls tools in the middle of its reasoning, which is not ended otherwise.
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

constexpr std::string_view kSection = "<|tool_calls_section_begin|>";
constexpr std::string_view kCall = "<|tool_call_begin|>";
constexpr std::string_view kArguments = "<|tool_call_argument_begin|>";

void read_head(Cursor& in, CallHead& head) {
  in.optional(kSection);
  in.space();
  in.literal(kCall);
  const std::string_view id = trimmed(in.until(kArguments, Cursor::kMostNameBytes));
  std::string_view name = id.substr(0, id.rfind(':'));
  if (name.starts_with("functions.")) name.remove_prefix(10);
  head.name = name;
  head.id = id;
  read_arguments_begin(in, head);
}

}  // namespace

const CallFormat kKimiK2 = {.name = "kimi_k2",
                            .more_names = {},
                            .begins = {kSection, kCall},
                            .read_head = read_head,
                            .call_end = "<|tool_call_end|>",
                            .inner = {kArguments},
                            .tail = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
                            .ends_reasoning = true,
                            .shape = {.begin = kSection,
                                      .before_name = "<|tool_call_begin|>functions.",
                                      .before_arguments = ":{index}<|tool_call_argument_begin|>",
                                      .after_arguments = "<|tool_call_end|>",
                                      .between = "",
                                      .end = "<|tool_calls_section_end|>"}};

}  // namespace wideep::answer
