// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3 and R1, and the simpler form of V3.1:
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//   ```json
//   {"a": 1}
//   ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a":
//   1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
// Models leave out the outer markers at times.
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";

std::string_view read_until_separator(Cursor& in) {
  in.optional(kCallsBegin);
  in.space();
  in.literal(kCallBegin);
  return trimmed(in.until(kSeparator, Cursor::kMaxNameBytes));
}

void read_v3_head(Cursor& in, CallHead& head) {
  read_until_separator(in);  // "function"
  head.name = trimmed(in.until("\n", Cursor::kMaxNameBytes));
  in.space();
  in.optional("```json");
  read_arguments_begin(in, head, {"```", kCallEnd});
}

void read_v31_head(Cursor& in, CallHead& head) {
  head.name = read_until_separator(in);
  read_arguments_begin(in, head, {kCallEnd});
}

}  // namespace

const CallFormat kDeepSeekV3 = {
    .name = "deepseek_v3",
    .more_names = {},
    .begins = {kCallsBegin, kCallBegin},
    .read_head = read_v3_head,
    .call_end = kCallEnd,
    .inner = {kSeparator},
    .tail = {"```", kCallEnd, kCallsEnd},
    .shape = {.begin = kCallsBegin,
              .before_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
              .before_arguments = "\n```json\n",
              .after_arguments = "\n```<｜tool▁call▁end｜>",
              .between = "\n",
              .end = kCallsEnd}};

const CallFormat kDeepSeekV31 = {.name = "deepseek_v31",
                                 .more_names = {},
                                 .begins = {kCallsBegin, kCallBegin},
                                 .read_head = read_v31_head,
                                 .call_end = kCallEnd,
                                 .inner = {kSeparator},
                                 .tail = {kCallEnd, kCallsEnd},
                                 .shape = {.begin = kCallsBegin,
                                           .before_name = kCallBegin,
                                           .before_arguments = kSeparator,
                                           .after_arguments = kCallEnd,
                                           .between = "",
                                           .end = kCallsEnd}};

}  // namespace wideep::answer
