// SPDX-License-Identifier: Apache-2.0
//
// What the body asks for is rewritten as OpenAI's body would ask for it, so templates, grammars and
// the engine have one path. Clients that do not ask for thinking expect text first: then it is
// switched off by the names that templates know, and left out of the reply. An answer that goes on
// after a prefill is refused beside a format or a call that must come, because the grammar would be
// of the rest alone.
#include "api/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/body_reader.h"
#include "api/generation_fields.h"
#include "api/token_fields.h"
#include "api/tool_choice.h"
#include "api/turn_messages.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// ---- how tokens are drawn ----

void read_options(BodyReader& body, const run::SamplingDefaults& defaults,
                  GenerationOptions& options) {
  if (body.take("max_tokens").is_null()) {
    body.complain("max_tokens", "expected how many tokens may be generated, found nothing");
  }
  if (const auto max = body.integer("max_tokens")) {
    options.max_tokens = static_cast<int>(*max);
  }
  options.stream = body.flag("stream");
  options.stop = body.texts("stop_sequences", {.max = kMaxStops, .max_bytes = kMaxStopBytes});
  read_sampling(body, defaults, options);
  read_engine_fields(body, options);
}

// ---- tools ----

// Some types stand for tools that run at Anthropic, others for schemas that its models know.
ordered_json read_tool(BodyReader& body, size_t index, const ordered_json& tool) {
  const std::string place = fmt::format("tools[{}]", index);
  const auto complain = [&](const char* member, const char* expected, const ordered_json& found) {
    body.complain(place + member,
                  fmt::format("expected {}, found {}", expected, BodyReader::shown(found)));
    return ordered_json();
  };
  if (!tool.is_object()) return complain("", "an object", tool);
  if (const ordered_json& type = member_of(tool, "type"); !type.is_null() && type != "custom") {
    return complain(".type", "\"custom\" or nothing", type);
  }
  const ordered_json& name = member_of(tool, "name");
  if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
    return complain(".name", "a name", name);
  }
  if (!body.check_members(place, tool, kTurnTool)) return nullptr;
  const ordered_json& schema = member_of(tool, "input_schema");
  if (!schema.is_object()) return complain(".input_schema", "a JSON schema, an object", schema);
  ordered_json function = {{"name", name}};
  if (const ordered_json& description = member_of(tool, "description"); !description.is_null()) {
    if (!description.is_string()) return complain(".description", "a string", description);
    function["description"] = description;
  }
  function["parameters"] = schema;
  return {{"type", "function"}, {"function", std::move(function)}};
}

FoundChoice find_choice(const ordered_json& choice, const ordered_json& tools) {
  const ordered_json& type = member_of(choice, "type");
  if (type == "none") return {.kind = FoundChoice::kNone};
  if (type == "any") return {.kind = FoundChoice::kRequired};
  if (type != "tool") return {};
  const ordered_json& name = member_of(choice, "name");
  return {.kind = FoundChoice::kTool, .function = offered_function(tools, name), .name = name};
}

void read_tool_choice(BodyReader& body, ChatRequest& request) {
  const ordered_json& choice = body.take("tool_choice");
  if (choice.is_null()) return;
  const ordered_json& type = member_of(choice, "type");
  if (type != "auto" && type != "any" && type != "tool" && type != "none") {
    return body.complain(
        "tool_choice.type",
        "expected \"auto\", \"any\", \"tool\" or \"none\", found " + BodyReader::shown(type));
  }
  body.check_members("tool_choice", choice, kTurnChoice);
  const ordered_json& one = member_of(choice, "disable_parallel_tool_use");
  if (!one.is_null() && !one.is_boolean()) {
    body.complain("tool_choice.disable_parallel_tool_use", "expected true or false");
  }
  request.parallel_tool_calls = one != true;
  choose_tools(body, find_choice(choice, request.tools),
               {.choice = "tool_choice.type", .name = "tool_choice.name"}, request);
}

void read_tools(BodyReader& body, ChatRequest& request) {
  const ordered_json& tools = body.take("tools");
  if (!tools.is_null() && !tools.is_array()) body.complain("tools", "expected a list");
  if (tools.is_array() && !tools.empty()) {
    request.tools = ordered_json::array();
    for (size_t i = 0; i < tools.size() && body.is_valid(); ++i) {
      request.tools.push_back(read_tool(body, i, tools[i]));
    }
  }
  read_tool_choice(body, request);
}

// ---- thinking, and what the answer has to be ----

// Whether the model should think, as the templates that know such a thing call it.
void set_thinking(ChatRequest& request, bool thinks) {
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!request.variables.contains(name)) request.variables[name] = thinks;
  }
}

// Clients that do not ask for thinking expect text first: what some models think anyway is left
// out.
void read_thinking(BodyReader& body, ChatRequest& request) {
  const ordered_json& thinking = body.take("thinking");
  bool thinks = false;
  if (!thinking.is_null()) {
    const ordered_json& type = member_of(thinking, "type");
    thinks = type == "enabled" || type == "adaptive" || type == "between_tools";
    if (!thinks && type != "disabled") {
      return body.complain("thinking.type",
                           "expected \"enabled\", \"adaptive\", \"between_tools\" or \"disabled\", "
                           "found " +
                               BodyReader::shown(type));
    }
    body.check_members("thinking", thinking, kTurnThinkingOptions);
    read_thought_limit(body, "thinking.budget_tokens", member_of(thinking, "budget_tokens"),
                       request.options);
  }
  const ordered_json& display = member_of(thinking, "display");
  if (!display.is_null() && display != "summarized" && display != "omitted") {
    body.complain("thinking.display",
                  "expected \"summarized\" or \"omitted\", found " + BodyReader::shown(display));
  }
  request.include_reasoning = thinks && display != "omitted";
  set_thinking(request, thinks);
}

void read_format(BodyReader& body, const std::string& place, const ordered_json& format,
                 GenerationOptions& options) {
  if (format.is_null()) return;
  const ordered_json& type = member_of(format, "type");
  if (type != "json_schema") {
    return body.complain(place + ".type",
                         "expected \"json_schema\", found " + BodyReader::shown(type));
  }
  body.check_members(place, format, kTurnFormat);
  const ordered_json& schema = member_of(format, "schema");
  if (!schema.is_object()) {
    return body.complain(place + ".schema",
                         "expected a JSON schema, an object, found " + BodyReader::shown(schema));
  }
  if (options.format) {
    return body.complain(place,
                         fmt::format("beside {}: expected one of them", options.format->place));
  }
  options.format = {.kind = grammar::OutputFormat::Kind::kJsonSchema,
                    .schema = schema,
                    .place = place + ".schema"};
}

void read_output(BodyReader& body, ChatRequest& request) {
  const ordered_json& config = body.take("output_config");
  if (!config.is_null() && !config.is_object()) {
    body.complain("output_config", "expected an object");
  }
  if (config.is_object()) body.check_members("output_config", config, kTurnOutput);
  request.reasoning_effort = read_effort(body, "output_config.effort", member_of(config, "effort"));
  read_format(body, "output_config.format", member_of(config, "format"), request.options);
  read_format(body, "output_format", body.take("output_format"), request.options);
}

// ---- messages ----

void read_messages(BodyReader& body, ChatRequest& request) {
  TurnMessages turns(body);
  turns.add_system("system", body.take("system"));
  const ordered_json& messages = body.take("messages");
  if (!messages.is_array() || messages.empty()) {
    return body.complain("messages", "expected a list of messages that is not empty");
  }
  for (size_t i = 0; i < messages.size() && body.is_valid(); ++i) {
    turns.add(fmt::format("messages[{}]", i), messages[i]);
  }
  request.folds_systems = true;
  request.prefill = turns.take_prefill();
  request.messages = turns.take();
  if (request.messages.empty()) body.complain("messages", "expected one of role user");
}

// A grammar would be that of the text after the prefill.
void check_prefill(BodyReader& body, const ChatRequest& request) {
  if (request.prefill.empty()) return;
  if (!request.must_call() && !request.options.format) return;
  body.complain("messages",
                fmt::format("the last one, of role assistant, would be continued: expected none "
                            "beside {}",
                            request.must_call() ? "tool_choice" : request.options.format->place));
}

ChatRequest read_request(BodyReader& body) {
  ChatRequest request;
  request.options.model = body.string("model");
  read_messages(body, request);
  read_tools(body, request);
  request.variables = read_variables(body);
  request.chat_template = body.string("chat_template");
  read_thinking(body, request);
  read_output(body, request);
  body.only("mcp_servers", ordered_json::array(), "a server of tools");
  check_prefill(body, request);
  return request;
}

Parsed<ChatRequest> finish(BodyReader& body, ChatRequest request) {
  request.options.without_effect = body.without_effect();
  if (const auto error = body.finish()) return *error;
  return request;
}

}  // namespace

Parsed<ChatRequest> parse_messages_request(std::string_view text,
                                           const run::SamplingDefaults& defaults) {
  BodyReader body(kMessagesBody, text);
  ChatRequest request = read_request(body);
  read_options(body, defaults, request.options);
  return finish(body, std::move(request));
}

Parsed<ChatRequest> parse_count_tokens_request(std::string_view text) {
  BodyReader body(kCountTokensBody, text);
  ChatRequest request = read_request(body);
  return finish(body, std::move(request));
}

}  // namespace wideep::server
