// SPDX-License-Identifier: Apache-2.0
//
// Gemma 4. The mark that its template has behind calls, where results follow, is an end token.
// Where an earlier message of the model has content and calls, the template does not begin the
// answer behind the results.
//
//   <|tool_call>call:f{a:1,s:<|"|>x<|"|>}<tool_call|><|tool_response>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.literal("<|tool_call>");
  in.space();
  if (in.optional("call:")) in.space();
  head.name = in.word();
  in.space();
  const bool ends = head.may_end && in.at_end();
  if (!ends) in.expect_either("{", "<tool_call|>");
  if (ends || (in.ok() && in.peek() != '{')) head.arguments = "{}";
}

}  // namespace

const CallFormat kGemma4 = {.name = "gemma4",
                            .more_names = {},
                            .begins = {"<|tool_call>"},
                            .read_head = read_head,
                            .form = ArgumentsForm::kBareKeys,
                            .tags = {.value_begin = "<|\"|>", .value_end = "<|\"|>"},
                            .call_end = "<tool_call|>",
                            .tail = {"<tool_call|>", "<|tool_response>"},
                            .ends_reasoning = true,
                            .shape = {.before_name = "<|tool_call>call:",
                                      .before_arguments = "{",
                                      .after_arguments = "}<tool_call|>"},
                            .turn_end = "<turn|>\n",
                            .turn_begin = "<|turn>model\n"};

}  // namespace wideep::answer
