// SPDX-License-Identifier: Apache-2.0
//
// Solar Open: a message of its own, as are the reasoning and the content. Its last mark is an end
// token, which a call that must come need not write.
//
//   <|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>f<|tool_call:args|>{"a":
//   1}<|tool_call:end|><|calls|>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

constexpr std::string_view kCalls = "<|tool_calls|>";
constexpr std::string_view kCall = "<|tool_call:begin|>";
constexpr std::string_view kName = "<|tool_call:name|>";
constexpr std::string_view kArguments = "<|tool_call:args|>";
constexpr std::string_view kCallEnd = "<|tool_call:end|>";

void read_head(Cursor& in, CallHead& head) {
  in.optional(kCalls);
  in.space();
  in.literal(kCall);
  head.id = trimmed(in.until(kName, Cursor::kMaxNameBytes));
  head.name = trimmed(in.until(kArguments, Cursor::kMaxNameBytes));
  read_arguments_begin(in, head, {kCallEnd});
}

}  // namespace

const CallFormat kSolarOpen = {.name = "solar_open",
                               .more_names = {},
                               .begins = {kCalls, kCall},
                               .read_head = read_head,
                               .call_end = kCallEnd,
                               .inner = {kName, kArguments},
                               .tail = {kCallEnd, "<|calls|>"},
                               .ends_reasoning = true,
                               .shape = {.begin = kCalls,
                                         .before_name = "<|tool_call:begin|>{id}<|tool_call:name|>",
                                         .before_arguments = kArguments,
                                         .after_arguments = kCallEnd}};

}  // namespace wideep::answer
