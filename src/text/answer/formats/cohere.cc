// SPDX-License-Identifier: Apache-2.0
//
// Cohere's Command R7B, A and A+ and its MoE models. The ids are numbers within the conversation,
// which the template writes anew: clients get others.
//
//   <|START_ACTION|>[
//       {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}
//   ]<|END_ACTION|>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.literal("<|START_ACTION|>");
  in.space();
  if (in.optional("[")) in.space();
  read_call_object(in, head);
}

}  // namespace

const CallFormat kCohere = {
    .name = "cohere_command4",
    .more_names = {"cohere_command3"},
    .begins = {"<|START_ACTION|>"},
    .read_head = read_head,
    .read_next = read_listed_call,
    .call_end = "<|END_ACTION|>",
    .tail = {"]", "<|END_ACTION|>"},
    .ends_reasoning = true,
    .shape = {.begin = "<|START_ACTION|>[\n",
              .before_name = "    {\"tool_call_id\": \"{index}\", \"tool_name\": \"",
              .before_arguments = "\", \"parameters\": ",
              .after_arguments = "}",
              .between = ",\n",
              .end = "\n]<|END_ACTION|>"}};

}  // namespace wideep::answer
