// SPDX-License-Identifier: Apache-2.0
#include "answer/call_format.h"

#include "answer/json_walker.h"

namespace wideep::answer {
namespace {

// Arguments that are complete: those of a call that were read before its name, or not an object.
void set_arguments(Cursor& in, std::string_view json, CallHead& head) {
  const bool is_text = json.starts_with('"');
  if (json == "null" || (is_text && trimmed(json_string_text(json)).empty())) {
    head.arguments = "{}";
  } else if (json.starts_with('{')) {
    head.arguments = json;
  } else if (is_text) {
    head.arguments = json_string_text(json);
  } else {
    in.fail();
  }
}

}  // namespace

void read_arguments_begin(Cursor& in, CallHead& head,
                          std::initializer_list<std::string_view> ends) {
  in.space();
  if (head.may_end && in.at_end()) return set_arguments(in, "null", head);
  if (in.peek() == '{') return;
  for (const std::string_view end : ends) {
    Cursor ahead = in;
    ahead.literal(end);
    if (ahead.ok()) return set_arguments(in, "null", head);
    if (ahead.wants_more()) in = ahead;
  }
  const std::string_view json = in.json();
  if (in.ok()) set_arguments(in, json, head);
}

void read_call_object(Cursor& in, CallHead& head, bool needs_arguments) {
  std::string_view arguments;
  in.literal("{");
  for (bool first = true; in.ok(); first = false) {
    in.space();
    if (in.peek() == '}') {
      in.literal("}");
      if (head.name.empty() || (needs_arguments && arguments.empty())) in.fail();
      return set_arguments(in, arguments.empty() ? "null" : arguments, head);
    }
    if (!first) in.literal(",");
    in.space();
    if (in.peek() != '"') return in.fail();
    const std::string_view key = in.json();
    in.space();
    in.literal(":");
    in.space();
    if (!in.ok()) return;
    const bool is_arguments = key == "\"arguments\"" || key == "\"parameters\"";
    const bool is_name = key == "\"name\"" || key == "\"tool_name\"";
    const bool is_other = key == "\"type\"" || key == "\"id\"" || key == "\"tool_call_id\"";
    // An object with other members is an answer in JSON, which should not wait for its end.
    if (!is_arguments && !is_name && !is_other) return in.fail();
    const char begin = in.peek();
    if (is_arguments && !head.name.empty() && begin == '{') {
      head.in_object = true;
      return;
    }
    const std::string_view value = in.json();
    if (!in.ok()) return;
    if (is_arguments) arguments = value;
    if (is_name) {
      if (begin != '"') return in.fail();
      head.name = json_string_text(value);
    }
  }
}

void read_listed_call(Cursor& in, CallHead& head) {
  in.space();
  in.literal(",");
  in.space();
  read_call_object(in, head);
}

}  // namespace wideep::answer
