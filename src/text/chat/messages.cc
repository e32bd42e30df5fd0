// SPDX-License-Identifier: Apache-2.0
#include "chat/messages.h"

#include <algorithm>

#include "base/try.h"
#include "formats/json_parse.h"
#include "jinja/python_text.h"

namespace wideep::chat {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;
using nlohmann::ordered_json;

Result<Value> arguments_value(const ordered_json& arguments) {
  if (!arguments.is_string()) return Value::from_json(arguments);
  const auto& text = arguments.get_ref<const std::string&>();
  if (jinja::strip(text, jinja::Ends::kBoth).empty()) return Value(Dict());
  const Result<ordered_json> parsed = formats::parse_exact_json(text, "arguments");
  return Value::from_json(parsed.ok() && parsed->is_object() ? *parsed : arguments);
}

// The object as a dict; make(key, value) makes the value of each member.
template <typename Make>
Result<Value> dict_value(const ordered_json& object, const Make& make) {
  if (!object.is_object()) return Value::from_json(object);
  Dict dict;
  for (const auto& [key, member] : object.items()) {
    WIDEEP_TRY_ASSIGN(Value value, make(key, member));
    dict.set(key, std::move(value));
  }
  return Value(std::move(dict));
}

template <typename Make>
Result<Value> list_value(const ordered_json& array, const Make& make) {
  if (!array.is_array()) return Value::from_json(array);
  List list;
  for (const ordered_json& item : array) {
    WIDEEP_TRY_ASSIGN(Value value, make(item));
    list.push_back(std::move(value));
  }
  return Value(std::move(list));
}

// {"name", "arguments"}, or {"function": {"name", "arguments"}}.
Result<Value> call_value(const ordered_json& call) {
  return dict_value(call, [](const std::string& key, const ordered_json& member) {
    if (key == "arguments") return arguments_value(member);
    return key == "function" ? call_value(member) : Value::from_json(member);
  });
}

Result<Value> message_value(const ordered_json& message, CallArguments arguments) {
  return dict_value(message, [&](const std::string& key, const ordered_json& member) {
    if (key == "content" && member.is_null())
      return Result<Value>(Value(jinja::None{.prints = false}));
    if (arguments == CallArguments::kAsSent) return Value::from_json(member);
    if (key == "function_call") return call_value(member);
    return key == "tool_calls" ? list_value(member, call_value) : Value::from_json(member);
  });
}

// The member, or null if there is none.
const ordered_json& member_of(const ordered_json& object, const char* name) {
  static const ordered_json kAbsent;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? kAbsent : *found;
}

bool is_text_call(const ordered_json& call) {
  return member_of(call, "arguments").is_string() ||
         member_of(member_of(call, "function"), "arguments").is_string();
}

}  // namespace

Result<Value> messages_value(const ordered_json& messages, CallArguments arguments) {
  return list_value(messages,
                    [&](const ordered_json& message) { return message_value(message, arguments); });
}

bool has_text_arguments(const ordered_json& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const ordered_json& message) {
    const ordered_json& calls = member_of(message, "tool_calls");
    return is_text_call(member_of(message, "function_call")) ||
           (calls.is_array() && std::any_of(calls.begin(), calls.end(), is_text_call));
  });
}

}  // namespace wideep::chat
