// SPDX-License-Identifier: Apache-2.0
//
// Qwen3-Coder, Qwen3.5, Step-3.5 and 3.7, MiMo-V2, Nemotron 3:
//
//   <tool_call>
//   <function=f>
//   <parameter=a>
//   1
//   </parameter>
//   </function>
//   </tool_call>
//
// Qwen3-Coder leaves out the first line at times.
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.optional("<tool_call>");
  in.space();
  in.literal("<function=");
  head.name = trimmed(in.until(">", Cursor::kMaxNameBytes));
  in.space();
  in.expect_either("<parameter=", "</function>");
}

}  // namespace

const CallFormat kQwen3Coder = {.name = "qwen3_coder",
                                .more_names = {"qwen3_xml", "step3p5", "mimo"},
                                .begins = {"<tool_call>", "<function="},
                                .read_head = read_head,
                                .form = ArgumentsForm::kTags,
                                .tags = {.key_begin = "<parameter=",
                                         .key_end = ">",
                                         .value_begin = "",
                                         .value_end = "</parameter>",
                                         .call_end = "</function>",
                                         .strips_line_feeds = true,
                                         .around_value = "\n",
                                         .after_value = "\n"},
                                .tail = {"</tool_call>"},
                                .shape = {.before_name = "<tool_call>\n<function=",
                                          .before_arguments = ">\n",
                                          .after_arguments = "</function>\n</tool_call>",
                                          .between = "\n"}};

}  // namespace wideep::answer
