// SPDX-License-Identifier: Apache-2.0
//
// For tests: what a model writes to call tools, by the shape of its format. The opposite of reading
// it, made from other parts of the format.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "answer/call_format.h"

namespace wideep::answer {

struct CallToWrite {
  std::string name;
  nlohmann::ordered_json arguments;  // an object
};

inline std::string python_text(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, each] : value.items()) {
    text += text.empty() ? "" : ", ";
    if (value.is_object()) text += nlohmann::ordered_json(key).dump() + ": ";
    text += python_text(each);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// As Gemma 4 writes values.
inline std::string bare_key_text(const CallFormat& format, const nlohmann::ordered_json& value) {
  const std::string quote(format.tags.value_begin);
  if (value.is_string()) return quote + value.get<std::string>() + quote;
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, each] : value.items()) {
    text += text.empty() ? "" : ",";
    if (value.is_object()) text += key + ":";
    text += bare_key_text(format, each);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// As MiniMax-M3 writes values.
inline std::string element_text(const CallFormat& format, const nlohmann::ordered_json& value) {
  if (!value.is_structured()) return value.is_string() ? value.get<std::string>() : value.dump();
  const std::string begin(format.tags.key_begin), end(format.tags.value_end);
  std::string text;
  for (const auto& [key, each] : value.items()) {
    const std::string name = (value.is_array() ? "item" : key) + std::string(format.tags.key_end);
    text += begin + name + element_text(format, each) + end + name;
  }
  return text;
}

inline std::string arguments_text(const CallFormat& format,
                                  const nlohmann::ordered_json& arguments) {
  if (format.form == ArgumentsForm::kJson) return arguments.dump();
  if (format.form == ArgumentsForm::kElements) return element_text(format, arguments);
  if (format.form == ArgumentsForm::kBareKeys) {
    const std::string object = bare_key_text(format, arguments);
    return object.substr(1, object.size() - 2);
  }
  std::string all;
  const TagSyntax& tags = format.tags;
  const auto add = [&](std::string_view text) { all += text; };
  for (const auto& [key, value] : arguments.items()) {
    if (format.form == ArgumentsForm::kPython) {
      add(all.empty() ? "" : ", ");
      add(key + "=" + python_text(value));
      continue;
    }
    add(tags.key_begin);
    add(key);
    if (tags.says_whether_text)
      add(value.is_string() ? "\" string=\"true\"" : "\" string=\"false\"");
    add(tags.key_end);
    add(tags.after_key);
    add(tags.value_begin);
    add(tags.around_value);
    add(value.is_string() ? value.get<std::string>() : value.dump());
    add(tags.around_value);
    add(tags.value_end);
    add(tags.after_value);
  }
  return all;
}

// A part of a shape with the number of a call, and an id that has it.
inline std::string with_number(std::string_view part, size_t number) {
  std::string text(part);
  for (const std::string name : {"{index}", "{id}"}) {
    const size_t at = text.find(name);
    const std::string value = (name == "{id}" ? "abcdefgh0" : "") + std::to_string(number);
    if (at != text.npos) text.replace(at, name.size(), value);
  }
  return text;
}

inline std::string calls_text(const CallFormat& format, const std::vector<CallToWrite>& calls) {
  const CallShape& shape = format.shape;
  std::string all(shape.begin);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) all += shape.between;
    all += with_number(shape.before_name, i) + calls[i].name;
    all += with_number(shape.before_arguments, i) + arguments_text(format, calls[i].arguments);
    all += shape.after_arguments;
  }
  all += shape.end;
  return all;
}

}  // namespace wideep::answer
