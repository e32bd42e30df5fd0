// SPDX-License-Identifier: Apache-2.0
//
// Llama 3.1 to 4 with calls in JSON: the whole answer is a call, with or without a special token
// before it; several are separated by semicolons.
//
//   <|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

// Without its arguments an object would too easily be an answer in JSON.
constexpr bool kNeedsArguments = true;

void read_head(Cursor& in, CallHead& head) {
  in.optional("<|python_tag|>");
  in.space();
  read_call_object(in, head, kNeedsArguments);
}

void read_next(Cursor& in, CallHead& head) {
  in.space();
  in.literal(";");
  in.space();
  read_call_object(in, head, kNeedsArguments);
}

}  // namespace

const CallFormat kLlamaJson = {.name = "llama3_json",
                               .more_names = {"llama4_json"},
                               .begins = {"<|python_tag|>"},
                               .bare_begin = '{',
                               .read_head = read_head,
                               .read_next = read_next,
                               .tail = {},
                               .shape = {.before_name = "{\"name\": \"",
                                         .before_arguments = "\", \"parameters\": ",
                                         .after_arguments = "}",
                                         .between = "; "}};

}  // namespace wideep::answer
