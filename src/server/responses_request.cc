// SPDX-License-Identifier: Apache-2.0
#include "server/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "server/body_reader.h"
#include "server/generation_fields.h"
#include "server/responses_items.h"

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

ApiError not_found(const std::string& id) {
  return {.status = 404,
          .message = fmt::format("previous_response_id: there is no stored response {}; it was not "
                                 "sent with store: true, or has made room for newer ones",
                                 BodyReader::shown(ordered_json(id))),
          .param = "previous_response_id",
          .code = "previous_response_not_found"};
}

// The items of a stored response: what it answers, then its answer.
std::optional<ordered_json> earlier_items(const ResponseStore& stored, const std::string& id) {
  const auto found = stored.previous(id);
  if (found == nullptr) return {};
  auto items = formats::parse_exact_json(found->conversation, "conversation");
  auto response = formats::parse_exact_json(found->response, "response");
  if (!items.ok() || !response.ok()) return {};  // not of this server's making
  for (ordered_json& item : (*response)["output"]) items->push_back(std::move(item));
  return std::move(*items);
}

// ---- tools ----

bool has_known_members(BodyReader& body, const std::string& place, const ordered_json& object,
                       std::initializer_list<std::string_view> names) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::ranges::find(names, name) != names.end()) continue;
    body.complain(place + "." + name, "this field is not known, or not supported");
    return false;
  }
  return true;
}

// As a chat has it; null after a complaint.
ordered_json read_tool(BodyReader& body, const std::string& place, const ordered_json& tool) {
  const auto complain = [&](const char* member, const std::string& what) -> ordered_json {
    body.complain(place + member, what);
    return nullptr;
  };
  if (!tool.is_object()) return complain("", "expected an object");
  if (const ordered_json& type = member_of(tool, "type"); type != "function") {
    return complain(".type", "expected \"function\", found " + BodyReader::shown(type) +
                                 "; this server runs no tools of its own");
  }
  if (!has_known_members(body, place, tool,
                         {"type", "name", "description", "parameters", "strict"})) {
    return nullptr;
  }
  const ordered_json& name = member_of(tool, "name");
  if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
    return complain(".name", "expected a name, found " + BodyReader::shown(name));
  }
  const ordered_json& description = member_of(tool, "description");
  if (!description.is_null() && !description.is_string()) {
    return complain(".description", "expected a string, found " + BodyReader::shown(description));
  }
  const ordered_json& parameters = member_of(tool, "parameters");
  if (!parameters.is_null() && !parameters.is_object()) {
    return complain(".parameters",
                    "expected a JSON schema, an object, found " + BodyReader::shown(parameters));
  }
  const ordered_json& strict = member_of(tool, "strict");
  if (!strict.is_null() && !strict.is_boolean()) {
    return complain(".strict", "expected true or false, found " + BodyReader::shown(strict));
  }
  ordered_json function = {{"name", name}};
  for (const char* member : {"description", "parameters", "strict"}) {
    const ordered_json& value = member_of(tool, member);
    if (!value.is_null()) function[member] = value;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

// OpenAI's types say that a tool has these, be it null.
ordered_json repeated_tool(const ordered_json& tool) {
  const ordered_json& function = tool["function"];
  return {{"type", "function"},
          {"name", function["name"]},
          {"description", member_of(function, "description")},
          {"parameters", member_of(function, "parameters")},
          {"strict", member_of(function, "strict")}};
}

class ToolChooser {
 public:
  ToolChooser(BodyReader& body, ChatRequest& chat) : body_(body), chat_(chat) {}

  void choose(const ordered_json& choice) {
    if (choice.is_null() || choice == "auto") return;
    if (choice == "none") {
      chat_.tool_choice = ToolChoice::kNone;
      chat_.tools = nullptr;
      return;
    }
    if (chat_.tools.is_null()) {
      return body_.complain("tool_choice", "expected tools beside it, or \"none\" or \"auto\"");
    }
    if (choice == "required") {
      chat_.tool_choice = ToolChoice::kRequired;
    } else if (member_of(choice, "type") == "function") {
      choose_function(choice);
    } else if (member_of(choice, "type") == "allowed_tools") {
      choose_some(choice);
    } else {
      body_.complain("tool_choice",
                     "expected \"none\", \"auto\", \"required\", {\"type\": \"function\", "
                     "\"name\": …} or {\"type\": \"allowed_tools\", …}, found " +
                         BodyReader::shown(choice));
    }
  }

 private:
  const ordered_json* find(const ordered_json& name) const {
    const auto found = std::ranges::find_if(chat_.tools, [&](const ordered_json& tool) {
      return name.is_string() && tool["function"]["name"] == name;
    });
    return found == chat_.tools.end() ? nullptr : &*found;
  }

  void choose_function(const ordered_json& choice) {
    const ordered_json& name = member_of(choice, "name");
    if (find(name) == nullptr) {
      return body_.complain("tool_choice.name", "expected the name of one of the tools, found " +
                                                    BodyReader::shown(name));
    }
    chat_.tool_choice = ToolChoice::kNamed;
    chat_.named_tool = name;
  }

  // The others are not offered.
  void choose_some(const ordered_json& choice) {
    const ordered_json& mode = member_of(choice, "mode");
    if (mode != "auto" && mode != "required") {
      return body_.complain("tool_choice.mode",
                            "expected \"auto\" or \"required\", found " + BodyReader::shown(mode));
    }
    const ordered_json& names = member_of(choice, "tools");
    if (!names.is_array() || names.empty()) {
      return body_.complain("tool_choice.tools", "expected a list of tools that is not empty");
    }
    ordered_json allowed = ordered_json::array();
    for (size_t i = 0; i < names.size(); ++i) {
      const ordered_json* tool =
          member_of(names[i], "type") == "function" ? find(member_of(names[i], "name")) : nullptr;
      if (tool == nullptr) {
        return body_.complain(fmt::format("tool_choice.tools[{}]", i),
                              "expected {\"type\": \"function\", \"name\": …} with the name of one "
                              "of the tools, found " +
                                  BodyReader::shown(names[i]));
      }
      allowed.push_back(*tool);
    }
    chat_.tools = std::move(allowed);
    if (mode == "required") chat_.tool_choice = ToolChoice::kRequired;
  }

  BodyReader& body_;
  ChatRequest& chat_;
};

void read_tools(BodyReader& body, ResponsesRequest& request) {
  const ordered_json& tools = body.take("tools");
  if (!tools.is_null() && !tools.is_array()) return body.complain("tools", "expected a list");
  ordered_json& repeated = request.repeated["tools"] = ordered_json::array();
  for (size_t i = 0; i < tools.size() && body.is_valid(); ++i) {
    ordered_json tool = read_tool(body, fmt::format("tools[{}]", i), tools[i]);
    if (tool.is_null()) return;
    repeated.push_back(repeated_tool(tool));
    request.chat.tools.push_back(std::move(tool));
  }
  const ordered_json& choice = body.take("tool_choice");
  ToolChooser(body, request.chat).choose(choice);
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
    has_known_members(body, "text.format", format, {"type"});
  } else if (type == "json_object") {
    has_known_members(body, "text.format", format, {"type"});
    wanted = {.kind = Kind::kJsonObject, .place = "text.format"};
  } else if (type == "json_schema") {
    // Strict or not, the answer satisfies the schema.
    has_known_members(body, "text.format", format,
                      {"type", "name", "schema", "strict", "description"});
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
  if (!has_known_members(body, "text", text, {"format", "verbosity"})) return;
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
  const auto most = body.integer(options.max_tokens_name, 1, kMostTokens);
  if (most) options.max_tokens = static_cast<int>(*most);
  request.repeated[options.max_tokens_name] = most ? ordered_json(*most) : ordered_json();
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
  const auto count = body.integer("top_logprobs", 0, kMostTopLogprobs).value_or(0);
  if (count > 0 && !options.logprobs) {
    body.complain("top_logprobs", fmt::format("expected include: [\"{}\"] beside it", kLogprobs));
  }
  options.sampling.top_log_probabilities = static_cast<int>(count);
  request.repeated["top_logprobs"] = count;
}

void read_metadata(BodyReader& body, ResponsesRequest& request) {
  constexpr size_t kMostPairs = 16, kMostNameBytes = 64, kMostBytes = 512;  // OpenAI's
  const ordered_json& metadata = body.take("metadata");
  request.repeated["metadata"] = ordered_json::object();
  if (metadata.is_null()) return;
  if (!metadata.is_object() || metadata.size() > kMostPairs) {
    return body.complain("metadata",
                         fmt::format("expected an object of at most {} members", kMostPairs));
  }
  for (const auto& [name, value] : metadata.items()) {
    if (name.size() > kMostNameBytes || !value.is_string() ||
        value.get_ref<const std::string&>().size() > kMostBytes) {
      return body.complain(
          "metadata", fmt::format("expected names of at most {} bytes and texts of at most {}, "
                                  "found {}: {}",
                                  kMostNameBytes, kMostBytes, BodyReader::shown(ordered_json(name)),
                                  BodyReader::shown(value)));
    }
  }
  request.repeated["metadata"] = metadata;
}

void read_stream(BodyReader& body, ResponsesRequest& request) {
  request.chat.options.stream = body.flag("stream");
  request.chat.options.without_effect = body.without_effect();
  const ordered_json& options = body.take("stream_options");
  if (options.is_null()) return;
  if (!options.is_object() || !request.chat.options.stream) {
    return body.complain("stream_options", "expected an object, and only with stream: true");
  }
  if (!has_known_members(body, "stream_options", options, {"include_obfuscation"})) return;
  const ordered_json& pads = member_of(options, "include_obfuscation");
  if (!pads.is_null() && !pads.is_boolean()) {
    body.complain("stream_options.include_obfuscation", "expected true or false");
  }
}

void read_conversation(BodyReader& body, const ResponseStore& stored, ResponsesRequest& request,
                       std::optional<ApiError>* error) {
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
  if (!previous.empty()) {
    auto items = earlier_items(stored, previous);
    if (!items) {
      *error = not_found(previous);
      return;
    }
    request.conversation = std::move(*items);
  }
  read_input(body, input, &request.conversation);
  if (!body.is_valid()) return;
  request.chat.messages = messages_of(body, instructions, request.conversation);
}

}  // namespace

Parsed<ResponsesRequest> parse_responses_request(std::string_view text,
                                                 const ResponseStore& stored) {
  BodyReader body(kResponsesBody, text);
  ResponsesRequest request;
  GenerationOptions& options = request.chat.options;
  options.model = body.string("model");
  options.without_effect = body.without_effect();
  request.repeated["background"] = false;
  body.only("background", false, "answering in the background");
  read_limit(body, request);
  read_sampling(body, options);
  options.ignore_eos = body.flag("ignore_eos");
  options.speculates = read_speculates(body);
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
  for (const char* name : {"temperature", "top_p"}) {
    const ordered_json& value = body.take(name);
    request.repeated[name] = value.is_null() ? ordered_json(1.0) : value;
  }
  body.only("truncation", "disabled", "leaving out the beginning of a conversation");
  request.repeated["truncation"] = "disabled";
  request.repeated["service_tier"] = "default";
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    const std::string value = body.string(name);
    if (!value.empty()) request.repeated[name] = value;
  }
  std::optional<ApiError> unknown;
  read_conversation(body, stored, request, &unknown);
  if (const auto error = body.finish()) return *error;
  if (unknown) return *unknown;
  return request;
}

}  // namespace wideep::server
