// SPDX-License-Identifier: Apache-2.0
//
// Hermes, Qwen2.5, Qwen3, Granite 4, ERNIE 4.5, K-EXAONE, Trinity:
//
//   <tool_call>
//   {"name": "f", "arguments": {"a": 1}}
//   </tool_call>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

// Models that call several tools at once may write a list.
void read_head(Cursor& in, CallHead& head) {
  in.literal("<tool_call>");
  in.space();
  if (in.optional("[")) in.space();
  read_call_object(in, head);
}

}  // namespace

const CallFormat kHermes = {.name = "hermes",
                            .more_names = {"granite4", "ernie45"},
                            .begins = {"<tool_call>"},
                            .read_head = read_head,
                            .read_next = read_listed_call,
                            .call_end = "</tool_call>",
                            .tail = {"]", "</tool_call>"},
                            .shape = {.before_name = "<tool_call>\n{\"name\": \"",
                                      .before_arguments = "\", \"arguments\": ",
                                      .after_arguments = "}\n</tool_call>",
                                      .between = "\n"}};

}  // namespace wideep::answer
