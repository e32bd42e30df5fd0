// SPDX-License-Identifier: Apache-2.0
//
// MiniMax-M3: as M2, but with a token before each tag, and parameters that are elements themselves.
//
//   ]<]minimax[>[<tool_call>
//   ]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>
//   ]<]minimax[>[</tool_call>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.optional("]<]minimax[>[<tool_call>");
  in.space();
  in.literal("]<]minimax[>[<invoke name=\"");
  head.name = trimmed(in.until("\">", Cursor::kMaxNameBytes));
  in.space();
  if (head.may_end && in.at_end()) {
    head.arguments = "{}";
    return;
  }
  in.expect_either("]<]minimax[>[<", "]<]minimax[>[</invoke>");
}

}  // namespace

const CallFormat kMiniMaxM3 = {
    .name = "minimax_m3",
    .more_names = {},
    .begins = {"]<]minimax[>[<tool_call>", "]<]minimax[>[<invoke name=\""},
    .read_head = read_head,
    .form = ArgumentsForm::kElements,
    .tags = {.key_begin = "]<]minimax[>[<",
             .key_end = ">",
             .value_end = "]<]minimax[>[</",
             .call_end = "]<]minimax[>[</invoke>"},
    .tail = {"]<]minimax[>[</tool_call>"},
    .ends_reasoning = true,
    .shape = {.begin = "]<]minimax[>[<tool_call>\n",
              .before_name = "]<]minimax[>[<invoke name=\"",
              .before_arguments = "\">",
              .after_arguments = "]<]minimax[>[</invoke>\n",
              .end = "]<]minimax[>[</tool_call>"}};

}  // namespace wideep::answer
