// SPDX-License-Identifier: Apache-2.0
//
// Calls as Python writes them: Llama 3.2 and 4, where the whole answer is a list of them, with or
// without special tokens around it, and LFM2.
//
//   <|python_start|>[f(a=1, b="x"), g()]<|python_end|>
//   <|tool_call_start|>[f(a=1)]<|tool_call_end|>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

// f(, and then the first argument or the end.
void read_call(Cursor& in, CallHead& head) {
  in.space();
  head.name = in.word();
  in.space();
  in.literal("(");
  in.space();
  if (in.peek() == ')') return;
  Cursor ahead = in;
  ahead.word();
  ahead.space();
  ahead.literal("=");
  if (!ahead.ok()) in = ahead;
}

void read_head(Cursor& in, CallHead& head) {
  in.optional("<|python_start|>");
  in.optional("<|tool_call_start|>");
  in.space();
  in.literal("[");
  read_call(in, head);
}

void read_next(Cursor& in, CallHead& head) {
  in.space();
  in.literal(",");
  read_call(in, head);
}

}  // namespace

const CallFormat kPythonic = {.name = "pythonic",
                              .more_names = {"llama4_pythonic", "lfm2", "olmo3"},
                              .begins = {"<|python_start|>", "<|tool_call_start|>"},
                              .bare_begin = '[',
                              .read_head = read_head,
                              .read_next = read_next,
                              .form = ArgumentsForm::kPython,
                              .tail = {"]", "<|python_end|>", "<|tool_call_end|>"},
                              .shape = {.begin = "[",
                                        .before_arguments = "(",
                                        .after_arguments = ")",
                                        .between = ", ",
                                        .end = "]"}};

}  // namespace wideep::answer
