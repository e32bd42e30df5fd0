// SPDX-License-Identifier: Apache-2.0
//
// A call is written by the same shape by which answer/ reads it; special tokens in the shape are
// matched as tokens. A schema that names no member takes no arguments: a model that had to write
// some would not know when to end. Where a call is only possible, each tool is tried alone, and one
// whose schema cannot be kept to gets free arguments; the work that schemas may take is shared by
// all. Rules are copied before a try, as a refusal leaves some without an end.
#include "server/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "answer/call_format.h"
#include "answer/tool_list.h"
#include "api/body_reader.h"
#include "base/printable.h"
#include "base/try.h"
#include "formats/json_text.h"
#include "grammar/output_format.h"

namespace wideep::server {
namespace {

using grammar::Expression;
using nlohmann::ordered_json;

constexpr std::string_view kIndex = "{index}", kId = "{id}";  // CallShape

// A tool whose parameters say nothing of its members takes no arguments, as OpenAI means one
// without parameters: a model that must write some would not know when to end. Arguments are an
// object even where a schema does not say so.
ordered_json schema_of(const ordered_json& parameters) {
  ordered_json schema = parameters.is_object() ? parameters : ordered_json::object();
  const auto says = [&](std::initializer_list<const char*> keywords) {
    return std::ranges::any_of(keywords, [&](const char* each) { return schema.contains(each); });
  };
  for (const char* keyword : {"properties", "required", "$defs", "definitions"}) {
    if (member_of(schema, keyword).is_null()) schema.erase(keyword);
  }
  if (says({"$ref", "allOf", "anyOf", "oneOf", "enum", "const"})) return schema;
  if (!schema.contains("type")) schema["type"] = "object";
  if (!says({"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
             "minProperties", "maxProperties"})) {
    schema["additionalProperties"] = false;
  }
  return schema;
}

// Keywords that every format reads, or that decide whether a value is a text; others are checked
// where values become JSON. Null is as if it were not there, which is how some clients say nothing.
Status check_keywords(const ordered_json& schema, const std::string& place) {
  struct Keyword {
    const char* name;
    bool (*is_right)(const ordered_json& value);
    const char* expected;
  };
  const auto is_list = [](const ordered_json& value) { return value.is_array(); };
  const auto is_object = [](const ordered_json& value) { return value.is_object(); };
  const Keyword keywords[] = {
      {"properties", is_object, "an object, of schemas by name"},
      {"required", is_list, "a list of names"},
      {"$defs", is_object, "an object, of schemas by name"},
      {"definitions", is_object, "an object, of schemas by name"},
      {"$ref", [](const ordered_json& value) { return value.is_string(); }, "a string"},
      {"enum", is_list, "a list of values"},
      {"anyOf", is_list, "a list of schemas"},
      {"oneOf", is_list, "a list of schemas"},
      {"allOf", is_list, "a list of schemas"},
  };
  for (const Keyword& each : keywords) {
    const ordered_json& value = member_of(schema, each.name);
    if (value.is_null() || each.is_right(value)) continue;
    return invalid_input(fmt::format("{}.{}: expected {}, found {}", place, each.name,
                                     each.expected, BodyReader::shown(value)));
  }
  return {};
}

// The schema of a tool's arguments. The same for every format, so that a client learns of a wrong
// one whatever model it asks.
Status check_form(const ordered_json& parameters, const std::string& place) {
  WIDEEP_TRY(check_keywords(parameters, place));
  const ordered_json& required = member_of(parameters, "required");
  for (size_t i = 0; i < required.size(); ++i) {
    if (required[i].is_string()) continue;
    return invalid_input(fmt::format("{}.required[{}]: expected a name, found {}", place, i,
                                     BodyReader::shown(required[i])));
  }
  for (const auto& [name, schema] : member_of(parameters, "properties").items()) {
    const std::string where = fmt::format("{}.properties.{}", place, base::printable(name));
    if (!schema.is_object() && !schema.is_boolean()) {
      return invalid_input(
          fmt::format("{}: expected a schema, which is an object, true or false, found {}", where,
                      BodyReader::shown(schema)));
    }
    WIDEEP_TRY(check_keywords(schema, where));
  }
  return {};
}

bool has_reference(const ordered_json& schema) {
  if (schema.is_object() && schema.contains("$ref")) return true;
  if (!schema.is_structured()) return false;
  return std::ranges::any_of(schema, has_reference);
}

Expression white_space() {
  return grammar::repeat(grammar::choice({grammar::text(" "), grammar::text("\n")}), 0, 4);
}

Expression digit() { return grammar::byte_range('0', '9'); }

// What a format has written: its special tokens are tokens, or spelled out.
Expression written(std::string_view text, const AnswerStyle& style) {
  std::vector<Expression> parts;
  while (!text.empty()) {
    size_t first = text.size();
    std::string_view token;
    const auto look_for = [&](std::string_view each) {
      const size_t found = text.find(each);
      if (found >= first) return;
      first = found;
      token = each;
    };
    look_for(kIndex);
    look_for(kId);
    for (const std::string& each : style.marker_names) look_for(each);
    if (first > 0) parts.push_back(grammar::text(text.substr(0, first)));
    if (token == kIndex) {
      parts.push_back(grammar::repeat(digit(), 1, 3));
    } else if (token == kId) {
      parts.push_back(
          grammar::repeat(grammar::choice({digit(), grammar::byte_range('a', 'z')}), 10, 10));
    } else if (!token.empty()) {
      parts.push_back(grammar::marker(token));
    }
    text.remove_prefix(first + token.size());
  }
  return grammar::sequence(std::move(parts));
}

// A mark alone is a token also where the tokenizer has not said so.
Expression begin_of(const answer::ReasoningFormat& format, const AnswerStyle& style) {
  const bool is_known = std::ranges::any_of(style.marker_names, [&](const std::string& each) {
    return format.begin.find(each) != format.begin.npos;
  });
  return is_known ? written(format.begin, style) : grammar::marker(format.begin);
}

// One call after the other, of one format.
class CallWriter {
 public:
  // tools: those that may be called.
  CallWriter(const AnswerStyle& style, const ordered_json& tools, grammar::Rules* rules)
      : style_(style), format_(*style.format.calls), rules_(rules) {
    // Others write every value as JSON.
    using enum answer::ArgumentsForm;
    if (format_.form == kJson || format_.form == kPython) return;
    tools_ = answer::ToolList(tools, answer::ToolList::Kept::kArguments);
  }

  bool took_too_much() const { return tools_.took_too_much(); }

  Expression written(std::string_view text) const { return server::written(text, style_); }

  Result<Expression> call(const std::string& name, const ordered_json& parameters,
                          const std::string& place) const {
    const answer::CallShape& shape = format_.shape;
    WIDEEP_TRY(check_form(parameters, place));
    WIDEEP_TRY_ASSIGN(Expression arguments,
                      arguments_of({name, parameters, place, member_of(parameters, "$defs"),
                                    member_of(parameters, "definitions")}));
    return grammar::sequence({written(shape.before_name), grammar::text(name),
                              written(shape.before_arguments), std::move(arguments),
                              written(shape.after_arguments)});
  }

 private:
  Result<Expression> json(const ordered_json& schema, const std::string& place) const {
    return grammar::add_output({.kind = grammar::OutputFormat::Kind::kJsonSchema,
                                .schema = schema,
                                .texts = {},
                                .whitespace = {},
                                .place = place},
                               rules_);
  }

  struct Offered {
    const std::string& tool;
    const ordered_json& parameters;
    const std::string& place;
    const ordered_json &defs, &definitions;  // of the parameters, which may have many members
  };

  Result<Expression> arguments_of(const Offered& offered) const {
    const ordered_json& parameters = offered.parameters;
    const std::string& place = offered.place;
    if (format_.form == answer::ArgumentsForm::kJson) {
      return json(schema_of(parameters), place);
    }
    const ordered_json& properties = member_of(parameters, "properties");
    std::unordered_set<std::string_view> required;
    for (const ordered_json& each : member_of(parameters, "required")) {
      required.insert(each.get_ref<const std::string&>());
    }
    std::vector<Argument> arguments;
    for (const auto& [name, schema] : properties.items()) {
      WIDEEP_TRY_ASSIGN(Expression value, value_of(name, schema, offered));
      arguments.push_back({std::move(value), required.contains(name)});
    }
    if (format_.form == answer::ArgumentsForm::kPython) return separated(arguments, ", ");
    if (format_.form == answer::ArgumentsForm::kBareKeys) return separated(arguments, ",");
    std::vector<Expression> all;
    for (const Argument& each : arguments) {
      all.push_back(each.is_required ? each.text : grammar::optional(each.text));
    }
    return grammar::sequence(std::move(all));
  }

  struct Argument {
    Expression text;
    bool is_required = false;
  };

  // A separator comes between those that are written. From the last one on: what may follow where
  // none has come, and where one has.
  Expression separated(const std::vector<Argument>& arguments, std::string_view separator) const {
    Expression first = grammar::sequence({}), next = first;
    for (auto each = arguments.rbegin(); each != arguments.rend(); ++each) {
      const Expression one = grammar::call(rules_->add("argument", each->text));
      const Expression rest = grammar::call(rules_->add("arguments", std::move(next)));
      const Expression alone = grammar::sequence({one, rest});
      const Expression behind = grammar::sequence({grammar::text(separator), one});
      first = each->is_required ? alone : grammar::choice({alone, std::move(first)});
      next = grammar::sequence({each->is_required ? behind : grammar::optional(behind), rest});
    }
    return first;
  }

  // An argument with its name.
  Result<Expression> value_of(const std::string& name, const ordered_json& schema,
                              const Offered& offered) const {
    const answer::TagSyntax& tags = format_.tags;
    const std::string where = fmt::format("{}.properties.{}", offered.place, name);
    const bool is_python = format_.form == answer::ArgumentsForm::kPython;
    // A text is written without JSON's quotes. What may be something else, too, is read as what it
    // looks like.
    const answer::Tool* tool = is_python ? nullptr : tools_.find(offered.tool);
    const bool is_text = tool != nullptr && (tool->types_of(name) & answer::kText) != 0;
    Expression value;
    if (is_text) {
      value = text_value(schema);
    } else {
      WIDEEP_TRY_ASSIGN(value, json(with_definitions(schema, offered), where));
    }
    if (is_python || format_.form == answer::ArgumentsForm::kBareKeys) {
      return grammar::sequence({grammar::text(name + (is_python ? "=" : ":")), std::move(value)});
    }
    std::string key_end(tags.key_end);
    if (tags.says_whether_text)
      key_end = std::string("\" string=\"") + (is_text ? "true" : "false") + "\">";
    const bool names_end = format_.form == answer::ArgumentsForm::kElements;
    return grammar::sequence(
        {written(tags.key_begin), grammar::text(name), written(key_end), written(tags.after_key),
         written(tags.value_begin), written(tags.around_value), std::move(value),
         written(tags.around_value), written(tags.value_end),
         names_end ? grammar::text(name + std::string(tags.key_end)) : grammar::text(""),
         written(tags.after_value)});
  }

  // Without JSON's quotes. Of an enum with texts, the other values are JSON.
  Expression text_value(const ordered_json& schema) const {
    const answer::TagSyntax& tags = format_.tags;
    const bool has_quotes = format_.form == answer::ArgumentsForm::kBareKeys;
    const auto quoted = [&](Expression text) {
      if (!has_quotes) return text;
      return grammar::sequence(
          {written(tags.value_begin), std::move(text), written(tags.value_end)});
    };
    const ordered_json& values = member_of(schema, "enum");
    if (!values.is_array()) return quoted(grammar::text_without(tags.value_end));
    std::vector<Expression> texts;
    for (const ordered_json& each : values) {
      texts.push_back(each.is_string() ? quoted(grammar::text(each.get<std::string>()))
                                       : grammar::text(formats::json_text(each)));
    }
    return grammar::choice(std::move(texts));
  }

  // A property's schema alone, which may refer to definitions beside it. They may be large: only
  // one that does refer to some has a copy of them.
  static ordered_json with_definitions(const ordered_json& schema, const Offered& offered) {
    ordered_json all = schema;
    if (!all.is_object() || !has_reference(schema)) return all;
    if (offered.defs.is_object()) all["$defs"] = offered.defs;
    if (offered.definitions.is_object()) all["definitions"] = offered.definitions;
    return all;
  }

  const AnswerStyle& style_;
  const answer::CallFormat& format_;
  grammar::Rules* rules_;
  answer::ToolList tools_;  // as the reader has them, without members
};

std::string place_of(size_t tool) { return fmt::format("tools[{}].function.parameters", tool); }

// GPT-OSS: one call, in a message of its own, after reasoning.
Result<Expression> harmony_call(const RequiredCalls& wanted, grammar::Rules* rules) {
  using grammar::special_token;
  using grammar::text;
  const Expression any =
      grammar::repeat(grammar::characters({{0, grammar::kLastCharacter}}), 0, grammar::kNoMax);
  const Expression analysis = grammar::sequence(
      {special_token("<|channel|>"), text("analysis"), special_token("<|message|>"), any,
       special_token("<|end|>"), special_token("<|start|>"), text("assistant")});
  std::vector<Expression> calls;
  for (size_t i = 0; i < wanted.tools.size(); ++i) {
    const ordered_json& function = wanted.tools[i]["function"];
    const std::string name = function["name"];
    if (!wanted.name.empty() && name != wanted.name) continue;
    const ordered_json& parameters = member_of(function, "parameters");
    WIDEEP_TRY(check_form(parameters, place_of(i)));
    WIDEEP_TRY_ASSIGN(Expression arguments,
                      grammar::add_output({.kind = grammar::OutputFormat::Kind::kJsonSchema,
                                           .schema = schema_of(parameters),
                                           .texts = {},
                                           .whitespace = {},
                                           .place = place_of(i)},
                                          rules));
    calls.push_back(
        grammar::sequence({text(" to=functions." + name + " "), special_token("<|constrain|>"),
                           text("json"), special_token("<|message|>"), std::move(arguments)}));
  }
  return grammar::sequence({grammar::optional(analysis), special_token("<|channel|>"),
                            text("commentary"), grammar::choice(std::move(calls))});
}

// Of the schema only names and types of members are kept, which formats of tags need.
void set_free_arguments(ordered_json& parameters) {
  ordered_json free = {{"type", "object"}, {"additionalProperties", true}};
  if (const ordered_json& properties = member_of(parameters, "properties");
      properties.is_object()) {
    constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                           "integer", "boolean", "null"};
    ordered_json kept = properties;  // to find each by its name would take the square of them
    for (ordered_json& schema : kept) {
      const ordered_json type = member_of(schema, "type");
      const bool is_known = std::ranges::any_of(kTypes, [&](auto each) { return type == each; });
      schema = is_known ? ordered_json{{"type", type}} : ordered_json(true);
    }
    free["properties"] = std::move(kept);
  }
  parameters = std::move(free);
}

}  // namespace

Result<Expression> required_calls(const RequiredCalls& wanted, grammar::Rules* rules) {
  if (wanted.style.format.is_harmony) return harmony_call(wanted, rules);
  const answer::CallShape& shape = wanted.style.format.calls->shape;
  const CallWriter writer(wanted.style, wanted.tools, rules);
  if (writer.took_too_much()) return invalid_input(kTooMuchInTools);
  std::vector<Expression> calls;
  for (size_t i = 0; i < wanted.tools.size(); ++i) {
    const ordered_json& function = wanted.tools[i]["function"];
    const std::string name = function["name"];
    if (!wanted.name.empty() && name != wanted.name) continue;
    WIDEEP_TRY_ASSIGN(Expression call,
                      writer.call(name, member_of(function, "parameters"), place_of(i)));
    calls.push_back(std::move(call));
  }
  const int any = rules->add("call", grammar::choice(std::move(calls)));
  std::vector<Expression> parts = {writer.written(shape.begin), grammar::call(any)};
  if (!wanted.one_call && wanted.name.empty()) {
    parts.push_back(
        grammar::repeat(grammar::sequence({writer.written(shape.between), grammar::call(any)}), 0,
                        grammar::kNoMax));
  }
  parts.push_back(writer.written(shape.end));
  return grammar::sequence(std::move(parts));
}

Result<Expression> possible_calls(const RequiredCalls& wanted, grammar::Rules* rules) {
  grammar::Rules with_calls = *rules;  // what is refused leaves rules without an end
  auto calls = required_calls(wanted, &with_calls);
  if (!calls.ok()) {
    ordered_json tools = wanted.tools;
    size_t steps = rules->schema_steps;
    for (ordered_json& each : tools) {
      const ordered_json one = ordered_json::array({each});
      grammar::Rules alone;
      alone.schema_steps = steps;
      const RequiredCalls of_one{.style = wanted.style, .tools = one, .name = {}};
      if (!required_calls(of_one, &alone).ok()) set_free_arguments(each["function"]["parameters"]);
      steps = alone.schema_steps;
    }
    with_calls = *rules;
    calls = required_calls(
        {.style = wanted.style, .tools = tools, .name = wanted.name, .one_call = wanted.one_call},
        &with_calls);
  }
  if (calls.ok()) *rules = std::move(with_calls);
  return calls;
}

Expression in_content(Expression answer, const AnswerStyle& style) {
  const answer::ReasoningFormat* format = style.format.reasoning;
  if (format == nullptr || !format->has_own_tokens || format->content_begin.empty()) return answer;
  return grammar::sequence({written(format->content_begin, style), std::move(answer),
                            grammar::optional(written(format->content_end, style))});
}

Expression after_reasoning(Expression answer, const AnswerStyle& style, Reasoning reasoning) {
  if (reasoning == Reasoning::kOff) return answer;
  const answer::ReasoningFormat& format = *style.format.reasoning;
  const Expression rest =
      grammar::sequence({grammar::text_without(format.end), grammar::marker(format.end),
                         white_space(), written(format.next_message, style)});
  if (reasoning == Reasoning::kBegun) return grammar::sequence({rest, std::move(answer)});
  return grammar::sequence(
      {grammar::optional(grammar::sequence({begin_of(format, style), rest})), std::move(answer)});
}

}  // namespace wideep::server
