// SPDX-License-Identifier: Apache-2.0
//
// Granite 3: a list of calls after the special token <|tool_call|>, or after the text <tool_call>.
//
//   <|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  if (!in.optional("<|tool_call|>")) in.literal("<tool_call>");
  in.space();
  if (in.optional("[")) in.space();
  read_call_object(in, head);
}

}  // namespace

const CallFormat kGranite = {.name = "granite",
                             .more_names = {},
                             .begins = {"<|tool_call|>", "<tool_call>"},
                             .read_head = read_head,
                             .read_next = read_listed_call,
                             .call_end = "</tool_call>",
                             .tail = {"]", "</tool_call>"},
                             .shape = {.begin = "<|tool_call|>[",
                                       .before_name = "{\"name\": \"",
                                       .before_arguments = "\", \"arguments\": ",
                                       .after_arguments = "}",
                                       .between = ", ",
                                       .end = "]"}};

}  // namespace wideep::answer
