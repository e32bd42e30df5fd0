// SPDX-License-Identifier: Apache-2.0
//
// The reply repeats what was asked for: each reader puts what it has taken, or the default, into
// `repeated`. Tools that tool_choice does not allow leave the chat but not what is repeated, for
// the client did send them. A stored response is looked up only while the body is valid; that there
// is none is said only if nothing else is wrong.
#include "api/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "api/body_reader.h"
#include "api/generation_fields.h"
#include "api/responses_items.h"
#include "api/tool_choice.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

constexpr const char* kLogprobs = "message.output_text.logprobs";
constexpr const char* kIncludes[] = {kLogprobs,
                                     "reasoning.encrypted_content",
                                     "message.input_image.image_url",
                                     "file_search_call.results",
                                     "web_search_call.results",
                                     "web_search_call.action.sources",
                                     "computer_call_output.output.image_url",
                                     "code_interpreter_call.outputs"};

HttpError not_found(const std::string& id) {
  return {.status = 404,
          .message = fmt::format("previous_response_id: there is no stored response {}; it was not "
                                 "sent with store: true, or has made room for newer ones",
                                 BodyReader::shown(ordered_json(id))),
          .param = "previous_response_id",
          .code = "previous_response_not_found"};
}

// Begins the conversation with the items of a stored response: what it answers, then its answer.
// False: there is none.
bool go_on_from(const ResponseStore& stored, const std::string& id, ResponsesRequest& request) {
  request.previous = stored.previous(id);
  if (request.previous == nullptr) return false;
  auto items = formats::parse_exact_json(request.previous->conversation, "conversation");
  auto response = formats::parse_exact_json(request.previous->response, "response");
  if (!items.ok() || !response.ok()) return false;  // not of this server's making
  request.num_stored = items->size();
  for (ordered_json& item : (*response)["output"]) items->push_back(std::move(item));
  request.conversation = std::move(*items);
  return true;
}

// ---- tools ----

class ToolChooser {
 public:
  ToolChooser(BodyReader& body, ResponsesRequest& request)
      : body_(body), tools_(request.tools), chat_(request.chat) {}

  void choose(const ordered_json& choice) {
    const FoundChoice found = find(choice);
    if (!choose_tools(body_, found, {}, chat_)) return;
    if (found.kind == FoundChoice::kTool) body_.check_members("tool_choice", choice, kItemChoice);
    if (found.kind != FoundChoice::kOther) return;
    if (member_of(choice, "type") == "allowed_tools") return choose_some(choice);
    body_.complain("tool_choice",
                   "expected \"none\", \"auto\", \"required\", {\"type\": \"function\", "
                   "\"name\": …}, {\"type\": \"custom\", \"name\": …} or {\"type\": "
                   "\"allowed_tools\", …}, found " +
                       BodyReader::shown(choice));
  }

 private:
  FoundChoice find(const ordered_json& choice) const {
    if (choice.is_null() || choice == "auto") return {};
    if (choice == "none") return {.kind = FoundChoice::kNone};
    if (choice == "required") return {.kind = FoundChoice::kRequired};
    if (!is_tool(choice)) return {.kind = FoundChoice::kOther};
    return {.kind = FoundChoice::kTool,
            .function = function_of(choice),
            .name = member_of(choice, "name")};
  }
  static bool is_tool(const ordered_json& choice) {
    const ordered_json& type = member_of(choice, "type");
    return type == "function" || type == "custom";
  }

  // {"type", "name"}; "": there is no such tool.
  std::string function_of(const ordered_json& choice) const {
    const ordered_json& name = member_of(choice, "name");
    if (!is_tool(choice) || !name.is_string()) return "";
    return tools_.function_of(name.get_ref<const std::string&>(), choice["type"] == "custom");
  }

  // The others are not offered.
  void choose_some(const ordered_json& choice) {
    if (!body_.check_members("tool_choice", choice, kItemAllowed)) return;
    const ordered_json& mode = member_of(choice, "mode");
    if (mode != "auto" && mode != "required") {
      return body_.complain("tool_choice.mode",
                            "expected \"auto\" or \"required\", found " + BodyReader::shown(mode));
    }
    const ordered_json& names = member_of(choice, "tools");
    if (!names.is_array() || names.empty()) {
      return body_.complain("tool_choice.tools", "expected a list of tools that is not empty");
    }
    std::set<std::string, std::less<>> allowed;
    for (size_t i = 0; i < names.size(); ++i) {
      std::string function = function_of(names[i]);
      if (function.empty()) {
        return body_.complain(fmt::format("tool_choice.tools[{}]", i),
                              "expected {\"type\": \"function\", \"name\": …} with the name of one "
                              "of the tools, found " +
                                  BodyReader::shown(names[i]));
      }
      if (!body_.check_members(fmt::format("tool_choice.tools[{}]", i), names[i],
                               kItemAllowedTool)) {
        return;
      }
      allowed.insert(std::move(function));
    }
    offer(allowed);
    if (mode == "required") chat_.tool_choice = ToolChoice::kRequired;
  }

  // Each once, however often it was named: names are short, and tools are not.
  void offer(const std::set<std::string, std::less<>>& functions) {
    ordered_json offered = ordered_json::array();
    for (ordered_json& tool : chat_.tools) {
      const ordered_json& name = tool["function"]["name"];
      if (functions.contains(name.get_ref<const std::string&>())) {
        offered.push_back(std::move(tool));
      }
    }
    chat_.tools = std::move(offered);
  }

  BodyReader& body_;
  const ResponseTools& tools_;
  ChatRequest& chat_;
};

void read_tools(BodyReader& body, ResponsesRequest& request) {
  request.tools = read_response_tools(body, body.take("tools"));
  request.chat.tools = request.tools.functions;
  request.repeated["tools"] = request.tools.repeated;
  if (!body.is_valid()) return;
  const ordered_json& choice = body.take("tool_choice");
  ToolChooser(body, request).choose(choice);
  request.repeated["tool_choice"] = choice.is_null() ? ordered_json("auto") : choice;
  request.chat.parallel_tool_calls = body.flag("parallel_tool_calls", true);
  request.repeated["parallel_tool_calls"] = request.chat.parallel_tool_calls;
}

// ---- what the answer has to be ----

void read_format(BodyReader& body, const ordered_json& format, ResponsesRequest& request) {
  using Kind = grammar::OutputFormat::Kind;
  const ordered_json& type = member_of(format, "type");
  std::optional<grammar::OutputFormat>& wanted = request.chat.options.format;
  if (type == "text") {
    body.check_members("text.format", format, kItemPlainFormat);
  } else if (type == "json_object") {
    body.check_members("text.format", format, kItemPlainFormat);
    wanted = {.kind = Kind::kJsonObject, .place = "text.format"};
  } else if (type == "json_schema") {
    // Strict or not, the answer satisfies the schema.
    body.check_members("text.format", format, kItemSchemaFormat);
    const ordered_json& schema = member_of(format, "schema");
    if (!member_of(format, "name").is_string()) {
      return body.complain("text.format.name", "expected a name for the schema, found " +
                                                   BodyReader::shown(member_of(format, "name")));
    }
    if (!schema.is_object()) {
      return body.complain("text.format.schema",
                           "expected a JSON schema, an object, found " + BodyReader::shown(schema));
    }
    wanted = {.kind = Kind::kJsonSchema, .schema = schema, .place = "text.format.schema"};
  } else {
    return body.complain(
        "text.format.type",
        "expected \"text\", \"json_object\" or \"json_schema\", found " + BodyReader::shown(type));
  }
  request.repeated["text"]["format"] = format;
}

void read_text(BodyReader& body, ResponsesRequest& request) {
  request.repeated["text"] = {{"format", {{"type", "text"}}}};
  const ordered_json& text = body.take("text");
  if (text.is_null()) return;
  if (!text.is_object()) return body.complain("text", "expected an object");
  if (!body.check_members("text", text, kItemFormatOptions)) return;
  if (const ordered_json& verbosity = member_of(text, "verbosity"); !verbosity.is_null()) {
    if (verbosity != "medium") {
      body.complain("text.verbosity", "is not supported: expected \"medium\" or nothing, found " +
                                          BodyReader::shown(verbosity));
    }
    request.repeated["text"]["verbosity"] = "medium";
  }
  if (const ordered_json& format = member_of(text, "format"); !format.is_null()) {
    read_format(body, format, request);
  }
}

void read_reasoning(BodyReader& body, ResponsesRequest& request) {
  request.chat.include_reasoning = body.flag("include_reasoning", true);
  ordered_json& repeated = request.repeated["reasoning"];
  repeated = {{"effort", nullptr}, {"summary", nullptr}};
  const ordered_json& reasoning = body.take("reasoning");
  if (reasoning.is_null()) return;
  if (!reasoning.is_object()) return body.complain("reasoning", "expected an object");
  constexpr const char* kSummaries[] = {"auto", "concise", "detailed"};
  for (const auto& [name, value] : reasoning.items()) {
    const std::string place = "reasoning." + name;
    if (value.is_null()) continue;
    if (name == "effort") {
      request.chat.reasoning_effort = read_effort(body, place, value);
      repeated["effort"] = value;
    } else if (name == "summary" || name == "generate_summary") {
      if (std::ranges::find(kSummaries, value) == std::end(kSummaries)) {
        body.complain(place, "expected \"auto\", \"concise\" or \"detailed\", found " +
                                 BodyReader::shown(value));
      }
    } else if (!(name == "context" && value == "auto") &&
               !(name == "mode" && value == "standard")) {
      body.complain(place, "is not supported: expected nothing, found " + BodyReader::shown(value));
    }
  }
}

// ---- the rest ----

void read_limit(BodyReader& body, ResponsesRequest& request) {
  GenerationOptions& options = request.chat.options;
  options.max_tokens_name = "max_output_tokens";
  const auto max = body.integer(options.max_tokens_name);
  if (max) options.max_tokens = static_cast<int>(*max);
  request.repeated[options.max_tokens_name] = max ? ordered_json(*max) : ordered_json();
}

void read_logprobs(BodyReader& body, ResponsesRequest& request) {
  GenerationOptions& options = request.chat.options;
  const ordered_json& include = body.take("include");
  if (!include.is_null() && !include.is_array()) body.complain("include", "expected a list");
  for (size_t i = 0; include.is_array() && i < include.size(); ++i) {
    if (std::ranges::find(kIncludes, include[i]) == std::end(kIncludes)) {
      body.complain(fmt::format("include[{}]", i),
                    fmt::format("expected one of OpenAI's names, such as \"{}\", found {}",
                                kLogprobs, BodyReader::shown(include[i])));
    }
    options.logprobs |= include[i] == kLogprobs;
  }
  const auto count = body.integer("top_logprobs").value_or(0);
  if (count > 0 && !options.logprobs) {
    body.complain("top_logprobs", fmt::format("expected include: [\"{}\"] beside it", kLogprobs));
  }
  options.engine_request.sampling.top_log_probabilities = static_cast<int>(count);
  request.repeated["top_logprobs"] = count;
}

void read_metadata(BodyReader& body, ResponsesRequest& request) {
  constexpr size_t kMaxPairs = 16, kMaxNameBytes = 64, kMaxBytes = 512;  // OpenAI's
  const ordered_json& metadata = body.take("metadata");
  request.repeated["metadata"] = ordered_json::object();
  if (metadata.is_null()) return;
  if (!metadata.is_object() || metadata.size() > kMaxPairs) {
    return body.complain("metadata",
                         fmt::format("expected an object of at most {} members", kMaxPairs));
  }
  for (const auto& [name, value] : metadata.items()) {
    if (name.size() > kMaxNameBytes || !value.is_string() ||
        value.get_ref<const std::string&>().size() > kMaxBytes) {
      return body.complain(
          "metadata", fmt::format("expected names of at most {} bytes and texts of at most {}, "
                                  "found {}: {}",
                                  kMaxNameBytes, kMaxBytes, BodyReader::shown(ordered_json(name)),
                                  BodyReader::shown(value)));
    }
  }
  request.repeated["metadata"] = metadata;
}

void read_stream(BodyReader& body, ResponsesRequest& request) {
  request.chat.options.stream = body.flag("stream");
  const ordered_json& options = body.take("stream_options");
  if (options.is_null()) return;
  if (!options.is_object() || !request.chat.options.stream) {
    return body.complain("stream_options", "expected an object, and only with stream: true");
  }
  if (!body.check_members("stream_options", options, kItemStreamOptions)) return;
  const ordered_json& pads = member_of(options, "include_obfuscation");
  if (!pads.is_null() && !pads.is_boolean()) {
    body.complain("stream_options.include_obfuscation", "expected true or false");
  }
}

// 0.6, not 0.6000000238418579.
ordered_json shown_number(float value) { return std::stod(fmt::format("{}", value)); }

void read_conversation(BodyReader& body, const ResponseStore& stored, ResponsesRequest& request,
                       std::optional<HttpError>* error) {
  request.conversation = ordered_json::array();
  request.chat.messages_name = "input";
  request.chat.folds_systems = true;
  const std::string instructions = body.string("instructions");
  const std::string previous = body.string("previous_response_id");
  const ordered_json& input = body.take("input");
  request.repeated["instructions"] =
      instructions.empty() ? ordered_json() : ordered_json(instructions);
  request.repeated["previous_response_id"] =
      previous.empty() ? ordered_json() : ordered_json(previous);
  if (!body.is_valid()) return;
  if (!previous.empty() && !go_on_from(stored, previous, request)) {
    *error = not_found(previous);
    return;
  }
  // Agents try a server with instructions and nothing else.
  const bool may_be_empty = !instructions.empty() || !previous.empty();
  if (may_be_empty && input.is_array() && input.empty()) {
    body.ignore("input without items");
  } else {
    read_input(body, input, &request.conversation);
  }
  if (!body.is_valid()) return;
  request.chat.messages = messages_of(body, instructions, request.conversation);
}

}  // namespace

Parsed<ResponsesRequest> parse_responses_request(std::string_view text, const ResponseStore& stored,
                                                 const run::SamplingDefaults& defaults) {
  BodyReader body(kResponsesBody, text);
  ResponsesRequest request;
  GenerationOptions& options = request.chat.options;
  options.model = body.string("model");
  request.repeated["background"] = false;
  body.only("background", false, "answering in the background");
  read_limit(body, request);
  read_sampling(body, defaults, options);
  read_engine_fields(body, options);
  read_logprobs(body, request);
  read_stream(body, request);
  read_tools(body, request);
  read_text(body, request);
  read_reasoning(body, request);
  read_metadata(body, request);
  request.chat.variables = read_variables(body);
  request.chat.chat_template = body.string("chat_template");
  request.store = body.flag("store");
  request.repeated["store"] = request.store;
  const engine::SamplingParams unsaid = sampling_without(defaults);
  const std::pair<const char*, float> kRepeated[] = {{"temperature", unsaid.temperature},
                                                     {"top_p", unsaid.top_p}};
  for (const auto& [name, by_default] : kRepeated) {
    const ordered_json& value = body.take(name);
    request.repeated[name] = value.is_null() ? shown_number(by_default) : value;
  }
  body.only("truncation", "disabled", "leaving out the beginning of a conversation");
  request.repeated["truncation"] = "disabled";
  request.repeated["service_tier"] = "default";
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    const std::string value = body.string(name);
    if (!value.empty()) request.repeated[name] = value;
  }
  std::optional<HttpError> unknown;
  read_conversation(body, stored, request, &unknown);
  options.without_effect = body.without_effect();
  if (const auto error = body.finish()) return *error;
  if (unknown) return *unknown;
  return request;
}

}  // namespace wideep::server
