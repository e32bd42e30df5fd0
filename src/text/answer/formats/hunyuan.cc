// SPDX-License-Identifier: Apache-2.0
//
// Hunyuan-A13B: a list between tags. MiniMax-M1 has no list between the same tags, but a call on
// each line.
//
//   <tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.literal("<tool_calls>");
  in.space();
  if (in.optional("[")) in.space();
  read_call_object(in, head);
}

void read_next(Cursor& in, CallHead& head) {
  in.space();
  if (in.optional(",")) in.space();
  read_call_object(in, head);
}

}  // namespace

const CallFormat kHunyuan = {.name = "hunyuan_a13b",
                             .more_names = {"minimax"},
                             .begins = {"<tool_calls>"},
                             .read_head = read_head,
                             .read_next = read_next,
                             .call_end = "</tool_calls>",
                             .tail = {"]", "</tool_calls>"},
                             .shape = {.begin = "<tool_calls>[",
                                       .before_name = "{\"name\": \"",
                                       .before_arguments = "\", \"arguments\": ",
                                       .after_arguments = "}",
                                       .between = ", ",
                                       .end = "]</tool_calls>"}};

}  // namespace wideep::answer
