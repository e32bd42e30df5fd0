// SPDX-License-Identifier: Apache-2.0
//
// Kimi K2, whose ids contain the name and the call's number in the conversation:
//
//   <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a":
//   1}
//   <|tool_call_end|><|tool_calls_section_end|>
//
// Kimi K2 writes other ids, too, where earlier ones were not of this form: "functions_f_0",
// "functionsf0", "f:0", and both marks of the section without the "s". K2-Thinking calls tools in
// the middle of its reasoning, which is not ended otherwise.
#include <string>
#include <vector>

#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

constexpr std::string_view kSection = "<|tool_calls_section_begin|>";
constexpr std::string_view kOtherSection = "<|tool_call_section_begin|>";
constexpr std::string_view kCall = "<|tool_call_begin|>";
constexpr std::string_view kCallEnd = "<|tool_call_end|>";
constexpr std::string_view kArguments = "<|tool_call_argument_begin|>";

// All names that an id may have in it, the likeliest first: an id has the call's number, so that
// "functions_run_1" is rather a call of "run" than of "run_1".
std::vector<std::string> names_in(std::string_view id) {
  std::vector<std::string> names;
  for (const std::string_view begin : {"functions.", "functions_", "functions:", "functions", ""}) {
    if (!id.starts_with(begin)) continue;
    const std::string_view name = id.substr(begin.size());
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits > 0 && digits < name.size()) {
      if (std::string_view(":_.-").find(name[digits - 1]) != std::string_view::npos) {
        names.emplace_back(name.substr(0, digits - 1));
      }
      for (size_t end = digits; end < name.size(); ++end) names.emplace_back(name.substr(0, end));
    }
    names.emplace_back(name);
  }
  return names;
}

void read_head(Cursor& in, CallHead& head) {
  if (!in.optional(kSection)) in.optional(kOtherSection);
  in.space();
  in.literal(kCall);
  const std::string_view id = trimmed(in.until(kArguments, Cursor::kMaxNameBytes));
  head.more_names = names_in(id);
  if (!head.more_names.empty()) head.name = head.more_names.front();
  head.id = id;
  read_arguments_begin(in, head, {kCallEnd});
}

}  // namespace

const CallFormat kKimiK2 = {
    .name = "kimi_k2",
    .more_names = {},
    .begins = {kSection, kOtherSection, kCall},
    .read_head = read_head,
    .call_end = kCallEnd,
    .inner = {kArguments},
    .tail = {kCallEnd, "<|tool_calls_section_end|>", "<|tool_call_section_end|>"},
    .ends_reasoning = true,
    .shape = {.begin = kSection,
              .before_name = "<|tool_call_begin|>functions.",
              .before_arguments = ":{index}<|tool_call_argument_begin|>",
              .after_arguments = "<|tool_call_end|>",
              .between = "",
              .end = "<|tool_calls_section_end|>"}};

}  // namespace wideep::answer
