// SPDX-License-Identifier: Apache-2.0
//
// Mistral: a special token, then a list of calls; since the tokenizer's version 11, the name and
// the arguments of one call, with the token before each.
//
//   [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]
//   [TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.literal("[TOOL_CALLS]");
  in.space();
  if (in.peek() == '[' || in.peek() == '{') {
    in.optional("[");
    in.space();
    return read_call_object(in, head);
  }
  head.name = in.word();
  if (in.optional("[CALL_ID]")) head.id = in.word();
  in.optional("[ARGS]");
  read_arguments_begin(in, head, {"[TOOL_CALLS]"});
}

}  // namespace

const CallFormat kMistral = {.name = "mistral",
                             .more_names = {},
                             .begins = {"[TOOL_CALLS]"},
                             .read_head = read_head,
                             .read_next = read_listed_call,
                             .call_end = "[TOOL_CALLS]",
                             .inner = {"[CALL_ID]", "[ARGS]"},
                             .tail = {"]"},
                             .shape = {.begin = "[TOOL_CALLS][",
                                       .before_name = "{\"name\": \"",
                                       .before_arguments = "\", \"arguments\": ",
                                       .after_arguments = "}",
                                       .between = ", ",
                                       .end = "]"},
                             .has_short_ids = true};

// Read alike, but it writes the second form: Small 3.2 and 4, Ministral 3, Devstral, Magistral.
const CallFormat kMistralV11 = [] {
  CallFormat format = kMistral;
  format.name = "mistral_v11";
  format.shape = {.before_name = "[TOOL_CALLS]", .before_arguments = "[ARGS]"};
  return format;
}();

}  // namespace wideep::answer
