// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3.2 ("function_calls") and V4 ("tool_calls"):
//
//   <｜DSML｜function_calls>
//   <｜DSML｜invoke name="f">
//   <｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
//   </｜DSML｜invoke>
//   </｜DSML｜function_calls>
#include "answer/call_formats.h"

namespace wideep::answer {
namespace {

void read_head(Cursor& in, CallHead& head) {
  in.optional("<｜DSML｜function_calls>");
  in.optional("<｜DSML｜tool_calls>");
  in.space();
  in.literal("<｜DSML｜invoke name=\"");
  head.name = in.until("\">", Cursor::kMaxNameBytes);
  in.space();
  in.expect_either("<｜DSML｜parameter name=\"", "</｜DSML｜invoke>");
}

}  // namespace

const CallFormat kDeepSeekV32 = {
    .name = "deepseek_v32",
    .more_names = {},
    .begins = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<｜DSML｜invoke name=\""},
    .read_head = read_head,
    .form = ArgumentsForm::kTags,
    .tags = {.key_begin = "<｜DSML｜parameter name=\"",
             .key_end = ">",
             .value_begin = "",
             .value_end = "</｜DSML｜parameter>",
             .call_end = "</｜DSML｜invoke>",
             .says_whether_text = true,
             .after_value = "\n"},
    .tail = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
    .shape = {.begin = "<｜DSML｜function_calls>\n",
              .before_name = "<｜DSML｜invoke name=\"",
              .before_arguments = "\">\n",
              .after_arguments = "</｜DSML｜invoke>\n",
              .end = "</｜DSML｜function_calls>"}};

const CallFormat kDeepSeekV4 = [] {
  CallFormat format = kDeepSeekV32;
  format.name = "deepseek_v4";
  format.shape.begin = "<｜DSML｜tool_calls>\n";
  format.shape.end = "</｜DSML｜tool_calls>";
  return format;
}();

}  // namespace wideep::answer
