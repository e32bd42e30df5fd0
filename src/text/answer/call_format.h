// SPDX-License-Identifier: Apache-2.0
//
// How a family of models writes the calls of tools in its answers. A format is a value, in a file
// of its own in formats/: with which markers a call begins, how what comes before its arguments is
// read, how the arguments are written, and what may come after them. CallReader goes through
// answers with it.
//
// Thread safety: immutable values with static storage.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/cursor.h"

namespace wideep::answer {

// What comes before the arguments.
struct CallHead {
  std::string name;
  std::string id;  // if the model writes one
  // Other readings of what stands for the name, where models write it in several ways.
  std::vector<std::string> more_names;
  // JSON text, where the arguments came before the name, or there are none.
  std::optional<std::string> arguments;
  bool in_object = false;  // the arguments are a member of a JSON object, which ends after them
  bool may_end = false;    // the model has ended its answer: arguments that are missing are none
};

enum class ArgumentsForm {
  kJson,    // an object
  kTags,    // each between tags, texts without quotes
  kPython,  // name=value, …
  // {name:value, …}, with texts between TagSyntax's value_begin and value_end, and names without
  // quotes inside of values, too.
  kBareKeys,
  kElements,  // as kTags, with names in the tags, and objects and lists as elements inside
};

// Tags around arguments: KEY_BEGIN name KEY_END VALUE_BEGIN value VALUE_END …, then CALL_END.
struct TagSyntax {
  std::string_view key_begin = {}, key_end = {};
  std::string_view value_begin = {};  // "": nothing
  std::string_view value_end = {};
  std::string_view call_end = {};
  bool strips_line_feeds = false;  // one at each end of a value belongs to the format
  // What comes between a name's end and KEY_END: ` string="true"`, or "false" for JSON.
  bool says_whether_text = false;

  // For whoever makes a model write a call: what it writes between KEY_END and VALUE_BEGIN, at both
  // ends of a value, and after VALUE_END.
  std::string_view after_key = {}, around_value = {}, after_value = {};
};

// How a model writes calls, for whoever makes it write them: BEGIN, then for each call BEFORE_NAME
// name BEFORE_ARGUMENTS arguments AFTER_ARGUMENTS, with BETWEEN two calls, then END. "{index}"
// stands for the number of the call, "{id}" for ten lower-case letters and digits.
struct CallShape {
  std::string_view begin = {};
  std::string_view before_name = {}, before_arguments = {}, after_arguments = {};
  std::string_view between = {};
  std::string_view end = {};
};

struct CallFormat {
  std::string_view name;                     // vLLM's
  std::vector<std::string_view> more_names;  // likewise: other models with this format
  // What a call begins with. What looks like one but has no known tool is content.
  std::vector<std::string_view> begins;
  // The character that a call may begin with instead, at the very beginning of an answer; or '\0'.
  char bare_begin = '\0';
  // From the marker, which is read, too, to the arguments, which are not.
  void (*read_head)(Cursor& in, CallHead& head) = nullptr;
  // The same for a call directly after another one, from the separator. Null: every call has its
  // own marker.
  void (*read_next)(Cursor& in, CallHead& head) = nullptr;
  ArgumentsForm form = ArgumentsForm::kJson;
  TagSyntax tags = {};
  // Of kBareKeys: what ends a call in any case. Of kJson: what ends a call whose arguments are no
  // JSON; "": the end of the answer.
  std::string_view call_end = {};
  // Markers between begin and arguments.
  std::vector<std::string_view> inner = {};
  // What may follow a call, in this order, with white space between.
  std::vector<std::string_view> tail;
  // The beginning of a call ends reasoning at once, which has no end of its own then. Of others one
  // ends reasoning only if nothing else does.
  bool ends_reasoning = false;
  CallShape shape = {};
  // Some templates end a prompt with TURN_END where they should begin the answer.
  std::string_view turn_end = {}, turn_begin = {};
  // Ids as the model's template wants them: nine letters and digits.
  bool has_short_ids = false;
};

// {"name": …, "arguments": {…}}, with its members in any order, "type" and "id" beside them;
// "parameters" is as good as "arguments", and Cohere's "tool_name" as "name". Arguments that are a
// JSON text, or null, are the object that they mean. needs_arguments: an object without them is no
// call.
void read_call_object(Cursor& in, CallHead& head, bool needs_arguments = false);
// The next one of a list of them, from the comma.
void read_listed_call(Cursor& in, CallHead& head);
// Arguments that are not in such an object. ends: what may follow instead where there are none.
void read_arguments_begin(Cursor& in, CallHead& head, std::initializer_list<std::string_view> ends);

}  // namespace wideep::answer
