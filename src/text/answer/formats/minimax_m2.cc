// SPDX-License-Identifier: Apache-2.0
//
// MiniMax-M2:
//
//   <minimax:tool_call>
//   <invoke name="f">
//   <parameter name="a">1</parameter>
//   </invoke>
//   </minimax:tool_call>
//
// Dots has <dots_function_call> around the same.
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.optional("<minimax:tool_call>");
  in.optional("<dots_function_call>");
  in.space();
  in.literal("<invoke name=\"");
  head.name = trimmed(in.until("\">", Cursor::kMaxNameBytes));
  in.space();
  in.expect_either("<parameter name=\"", "</invoke>");
}

}  // namespace

const CallFormat kMiniMaxM2 = {.name = "minimax_m2",
                               .more_names = {},
                               .begins = {"<minimax:tool_call>", "<invoke name=\""},
                               .read_head = read_head,
                               .form = ArgumentsForm::kTags,
                               .tags = {.key_begin = "<parameter name=\"",
                                        .key_end = "\">",
                                        .value_begin = "",
                                        .value_end = "</parameter>",
                                        .call_end = "</invoke>",
                                        .after_value = "\n"},
                               .tail = {"</minimax:tool_call>"},
                               .shape = {.begin = "<minimax:tool_call>\n",
                                         .before_name = "<invoke name=\"",
                                         .before_arguments = "\">\n",
                                         .after_arguments = "</invoke>\n",
                                         .end = "</minimax:tool_call>"}};

const CallFormat kDots = [] {
  CallFormat format = kMiniMaxM2;
  format.name = "dots";
  format.begins = {"<dots_function_call>", "<invoke name=\""};
  format.tail = {"</dots_function_call>"};
  format.shape.begin = "<dots_function_call>\n";
  format.shape.end = "</dots_function_call>";
  return format;
}();

}  // namespace wideep::answer
