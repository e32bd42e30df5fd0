// SPDX-License-Identifier: Apache-2.0
//
// GLM-4.5 to 5, Laguna, Ling 3. Newer ones have no line feed after the name.
//
//   <tool_call>f
//   <arg_key>a</arg_key>
//   <arg_value>1</arg_value>
//   </tool_call>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.literal("<tool_call>");
  in.space();
  head.name = in.word();
  in.space();
  in.expect_either("<arg_key>", "</tool_call>");
}

}  // namespace

const CallFormat kGlm45 = {.name = "glm45",
                           .more_names = {"glm47", "poolside_v1", "ling3"},
                           .begins = {"<tool_call>"},
                           .read_head = read_head,
                           .form = ArgumentsForm::kTags,
                           .tags = {.key_begin = "<arg_key>",
                                    .key_end = "</arg_key>",
                                    .value_begin = "<arg_value>",
                                    .value_end = "</arg_value>",
                                    .call_end = "</tool_call>",
                                    .after_key = "\n",
                                    .after_value = "\n"},
                           .tail = {},
                           .shape = {.before_name = "<tool_call>",
                                     .before_arguments = "\n",
                                     .after_arguments = "</tool_call>",
                                     .between = "\n"}};

}  // namespace wideep::answer
