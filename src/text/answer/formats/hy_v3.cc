// SPDX-License-Identifier: Apache-2.0
//
// Hy3, whose marks are tokens that end in ":opensource"; those of its preview do not.
//
//   <tool_calls:opensource>
//   <tool_call:opensource>f<tool_sep:opensource>
//   <arg_key:opensource>a</arg_key:opensource>
//   <arg_value:opensource>1</arg_value:opensource>
//   </tool_call:opensource>
//   </tool_calls:opensource>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

struct Marks {
  std::string_view calls, call, separator, key, key_end, value, value_end, call_end, calls_end;
  std::string_view begin_text, separator_text, end_text;  // each with what is written around it
};

constexpr Marks kOpen = {.calls = "<tool_calls:opensource>",
                         .call = "<tool_call:opensource>",
                         .separator = "<tool_sep:opensource>",
                         .key = "<arg_key:opensource>",
                         .key_end = "</arg_key:opensource>",
                         .value = "<arg_value:opensource>",
                         .value_end = "</arg_value:opensource>",
                         .call_end = "</tool_call:opensource>",
                         .calls_end = "</tool_calls:opensource>",
                         .begin_text = "<tool_calls:opensource>\n",
                         .separator_text = "<tool_sep:opensource>\n",
                         .end_text = "</tool_call:opensource>\n"};
constexpr Marks kPreview = {.calls = "<tool_calls>",
                            .call = "<tool_call>",
                            .separator = "<tool_sep>",
                            .key = "<arg_key>",
                            .key_end = "</arg_key>",
                            .value = "<arg_value>",
                            .value_end = "</arg_value>",
                            .call_end = "</tool_call>",
                            .calls_end = "</tool_calls>",
                            .begin_text = "<tool_calls>\n",
                            .separator_text = "<tool_sep>\n",
                            .end_text = "</tool_call>\n"};

template <const Marks& kMarks>
void read_head(Cursor& in, CallHead& head) {
  in.optional(kMarks.calls);
  in.space();
  in.literal(kMarks.call);
  head.name = trimmed(in.until(kMarks.separator, Cursor::kMaxNameBytes));
  in.space();
  in.expect_either(kMarks.key, kMarks.call_end);
}

template <const Marks& kMarks>
CallFormat format(std::string_view name) {
  return {.name = name,
          .more_names = {},
          .begins = {kMarks.calls, kMarks.call},
          .read_head = read_head<kMarks>,
          .form = ArgumentsForm::kTags,
          .tags = {.key_begin = kMarks.key,
                   .key_end = kMarks.key_end,
                   .value_begin = kMarks.value,
                   .value_end = kMarks.value_end,
                   .call_end = kMarks.call_end,
                   .after_key = "\n",
                   .after_value = "\n"},
          .inner = {kMarks.separator},
          .tail = {kMarks.calls_end},
          .ends_reasoning = true,
          .shape = {.begin = kMarks.begin_text,
                    .before_name = kMarks.call,
                    .before_arguments = kMarks.separator_text,
                    .after_arguments = kMarks.end_text,
                    .end = kMarks.calls_end}};
}

}  // namespace

const CallFormat kHyV3 = format<kOpen>("hy_v3");
const CallFormat kHyV3Preview = format<kPreview>("hy_v3_preview");

}  // namespace wideep::answer
