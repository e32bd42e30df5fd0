// SPDX-License-Identifier: Apache-2.0
//
// Readers go on after a complaint and the first one is the answer, so none may rely on what another
// has found to be valid. Messages are put into the form that templates expect: parts of text become
// one text, null members go, a refusal becomes content. Which other members are known depends on
// the template, so they are only noted here. A format can be said in several ways, of which a body
// may have one.
#include "api/openai_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "api/body_reader.h"
#include "api/generation_fields.h"
#include "api/request_fields.h"
#include "api/shared_prompt_fields.h"
#include "api/token_fields.h"
#include "api/tool_choice.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxLogprobs = 5;  // of a completion

constexpr size_t kMaxChoices = 10'000;

constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};

std::vector<std::string> read_stop(BodyReader& body) {
  const ordered_json& value = body.take("stop");
  std::vector<std::string> stops;
  if (value.is_null()) return stops;
  const auto add = [&](const ordered_json& each) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty()) {
      return body.complain("stop", "expected a string or a list of strings, none of them empty");
    }
    const auto& text = each.get_ref<const std::string&>();
    if (text.size() > kMaxStopBytes) {
      return body.complain("stop", fmt::format("expected strings of at most {} bytes, found {}",
                                               kMaxStopBytes, text.size()));
    }
    stops.push_back(text);
  };
  if (!value.is_array()) {
    add(value);
  } else if (value.size() > kMaxStops) {
    body.complain("stop",
                  fmt::format("expected at most {} strings, found {}", kMaxStops, value.size()));
  } else {
    for (const ordered_json& each : value) add(each);
  }
  return stops;
}

bool read_include_usage(BodyReader& body, bool stream, bool* is_continuous) {
  const ordered_json& value = body.take("stream_options");
  if (value.is_null()) return false;
  if (!value.is_object() || !stream) {
    body.complain("stream_options", "expected an object, and only with stream: true");
    return false;
  }
  // include_obfuscation: padding against guesses from the size of events. There is none here.
  if (!body.check_members("stream_options", value, kStreamOptions)) return false;
  for (const auto& [name, each] : value.items()) {
    if (!each.is_boolean() && !each.is_null()) {
      body.complain("stream_options." + name, "expected true or false");
    }
  }
  const bool includes = member_of(value, "include_usage") == true;
  *is_continuous = includes && member_of(value, "continuous_usage_stats") == true;
  return includes;
}

// A whole reply has no room for it.
bool read_progress(BodyReader& body, bool stream) {
  constexpr const char* kName = "return_progress";
  const bool wanted = body.flag(kName);
  if (wanted && !stream) {
    body.complain(kName, "expected stream: true beside it, or leave it out: only a stream has it");
  }
  return wanted;
}

std::optional<int> read_experts_start(BodyReader& body, bool stream) {
  constexpr const char* kName = "routed_experts_prompt_start";
  const auto start = body.integer(kName);
  if (!start) return {};
  if (stream) {
    body.complain(kName, "a stream has no routed experts: expected stream: false, or leave it out");
  }
  return static_cast<int>(*start);
}

// ---- what the answer has to be ----

using grammar::OutputFormat;

// One of these may be given.
void set_format(BodyReader& body, OutputFormat format, GenerationOptions& options) {
  if (options.format) {
    return body.complain(format.place,
                         fmt::format("beside {}: expected one of them", options.format->place));
  }
  options.format = std::move(format);
}

// A schema, or its text.
void read_schema(BodyReader& body, const ordered_json& value, const std::string& place,
                 GenerationOptions& options) {
  OutputFormat format{.kind = OutputFormat::Kind::kJsonSchema, .schema = value, .place = place};
  if (value.is_string()) {
    auto parsed = formats::parse_exact_json(value.get_ref<const std::string&>(), "text",
                                            BodyReader::kMaxMembers);
    if (!parsed.ok()) return body.complain(place, parsed.status().message());
    format.schema = std::move(*parsed);
  }
  if (!format.schema.is_object() && !format.schema.is_boolean()) {
    return body.complain(place, "expected a JSON schema, an object");
  }
  set_format(body, std::move(format), options);
}

void read_pattern(BodyReader& body, const ordered_json& value, OutputFormat::Kind kind,
                  const std::string& place, GenerationOptions& options) {
  if (!value.is_string()) return body.complain(place, "expected a string");
  set_format(body, {.kind = kind, .texts = {value.get<std::string>()}, .place = place}, options);
}

void read_choices(BodyReader& body, const ordered_json& value, const std::string& place,
                  GenerationOptions& options) {
  const bool is_list =
      value.is_array() && !value.empty() && value.size() <= kMaxChoices &&
      std::ranges::all_of(value, [](const auto& each) { return each.is_string(); });
  if (!is_list) {
    return body.complain(place, fmt::format("expected a list of 1 to {} strings", kMaxChoices));
  }
  set_format(body,
             {.kind = OutputFormat::Kind::kChoice,
              .texts = value.get<std::vector<std::string>>(),
              .place = place},
             options);
}

// OpenAI's.
void read_response_format(BodyReader& body, GenerationOptions& options) {
  const ordered_json& value = body.take("response_format");
  if (value.is_null()) return;
  constexpr const char* kPlace = "response_format";
  const ordered_json type =
      value.is_object() ? value.value("type", ordered_json()) : ordered_json();
  if (type == "text") {
    body.check_members(kPlace, value, kTextFormat);
    return;
  }
  if (type == "json_object") {
    body.check_members(kPlace, value, kJsonFormat);
    // llama.cpp's, Together's and Fireworks' way to give a schema.
    if (value.contains("schema") && !value["schema"].is_null()) {
      return read_schema(body, value["schema"], "response_format.schema", options);
    }
    return set_format(body, {.kind = OutputFormat::Kind::kJsonObject, .place = "response_format"},
                      options);
  }
  if (type != "json_schema") {
    return body.complain(
        "response_format.type",
        fmt::format("expected \"text\", \"json_object\" or \"json_schema\", found {}",
                    BodyReader::shown(type)));
  }
  body.check_members(kPlace, value, kSchemaFormat);
  const ordered_json inner = value.value("json_schema", ordered_json());
  if (!inner.is_object() || !inner.contains("schema")) {
    return body.complain("response_format.json_schema", "expected an object with a schema");
  }
  if (!body.check_members("response_format.json_schema", inner, kSchemaOfFormat)) return;
  read_schema(body, inner["schema"], "response_format.json_schema.schema", options);
}

void read_constraint(BodyReader& body, const std::string& kind, const ordered_json& value,
                     const std::string& place, GenerationOptions& options) {
  using Kind = OutputFormat::Kind;
  if (kind == "json") return read_schema(body, value, place, options);
  if (kind == "regex") return read_pattern(body, value, Kind::kRegex, place, options);
  if (kind == "grammar") return read_pattern(body, value, Kind::kGrammar, place, options);
  if (kind == "choice") return read_choices(body, value, place, options);
  if (value == true) set_format(body, {.kind = Kind::kJsonObject, .place = place}, options);
  if (!value.is_boolean()) body.complain(place, "expected true or false");
}

bool read_flag(BodyReader& body, const ordered_json& value, const std::string& place) {
  if (!value.is_boolean()) {
    body.complain(place, "expected true or false, found " + BodyReader::shown(value));
  }
  return value == true;
}

// vLLM's guided_json and so on, and their later form, members of structured_outputs.
void read_structured_outputs(BodyReader& body, GenerationOptions& options) {
  constexpr const char* kKinds[] = {"json", "regex", "choice", "grammar", "json_object"};
  std::optional<std::string> whitespace;
  const auto read_whitespace = [&](const ordered_json& value, const std::string& place) {
    if (value.is_null()) return;
    if (!value.is_string()) return body.complain(place, "expected a regular expression");
    whitespace = value.get<std::string>();
  };
  for (const char* kind : kKinds) {
    const std::string place = fmt::format("guided_{}", kind);
    const ordered_json& value = body.take(place.c_str());
    if (!value.is_null()) read_constraint(body, kind, value, place, options);
  }
  read_whitespace(body.take("guided_whitespace_pattern"), "guided_whitespace_pattern");
  bool is_compact = false, is_open = false;
  const ordered_json& all = body.take("structured_outputs");
  if (!all.is_null() && !all.is_object()) {
    return body.complain("structured_outputs", "expected an object");
  }
  for (const auto& [name, value] : all.items()) {
    const std::string place = "structured_outputs." + name;
    if (value.is_null()) continue;
    if (std::ranges::find(kKinds, name) != std::end(kKinds)) {
      read_constraint(body, name, value, place, options);
    } else if (name == "whitespace_pattern") {
      read_whitespace(value, place);
    } else if (name == "disable_any_whitespace") {
      is_compact = read_flag(body, value, place);
    } else if (name == "disable_additional_properties") {
      is_open = !read_flag(body, value, place);
    } else if (name != "disable_fallback") {
      body.complain(place, "this field is not known");
    }
  }
  // vLLM wants exactly one, too. response_format may be it.
  if (!options.format && all.is_object()) {
    return body.complain("structured_outputs",
                         fmt::format("expected one of {} (true) in it: without a format its other "
                                     "members have no effect",
                                     fmt::join(kKinds, ", ")));
  }
  if (!options.format && whitespace) {
    return body.complain("guided_whitespace_pattern",
                         "has no effect without a format: expected guided_json or "
                         "guided_json_object or response_format beside it");
  }
  if (!options.format) return;
  if (is_compact) whitespace = "";
  options.format->whitespace = whitespace;
  options.format->allows_more_members = is_open;
}

GenerationOptions read_options(BodyReader& body, const run::SamplingDefaults& defaults,
                               bool echo = false) {
  GenerationOptions options;
  options.echo = echo;
  options.model = body.string("model");
  read_sampling(body, defaults, options);
  read_max_tokens(body, "max_tokens", options);
  options.n = static_cast<int>(body.integer("n").value_or(1));
  options.stream = body.flag("stream");
  options.include_usage = read_include_usage(body, options.stream, &options.continuous_usage);
  options.returns_progress = read_progress(body, options.stream);
  read_engine_fields(body, options);
  options.experts_start = read_experts_start(body, options.stream);
  options.stop = read_stop(body);
  read_response_format(body, options);
  read_structured_outputs(body, options);
  read_token_fields(body, options);
  body.only("priority", 0, "an order of requests by priority");
  body.only("use_beam_search", false, "beam search");
  return options;
}

std::optional<std::vector<int32_t>> token_ids(const ordered_json& list) {
  std::vector<int32_t> ids;
  for (const ordered_json& each : list) {
    if (!each.is_number_integer()) return {};
    const auto id = each.get<int64_t>();
    if (id < 0 || id > INT32_MAX) return {};
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// A string, a list of token ids, or a list of either.
std::vector<Prompt> read_prompts(BodyReader& body) {
  constexpr const char* kExpected =
      "expected a string, a list of strings, a list of token ids, or a list of such lists";
  const ordered_json& value = body.take("prompt");
  std::vector<Prompt> prompts;
  if (value.is_string()) {
    prompts.emplace_back(value.get<std::string>());
  } else if (value.is_array() && !value.empty() && value[0].is_number()) {
    if (auto ids = token_ids(value)) prompts.emplace_back(std::move(*ids));
  } else if (value.is_array()) {
    for (const ordered_json& each : value) {
      const auto ids = each.is_array() ? token_ids(each) : std::nullopt;
      if (each.is_string()) prompts.emplace_back(each.get<std::string>());
      if (ids) prompts.emplace_back(*ids);
    }
    if (prompts.size() != value.size()) prompts.clear();
  }
  if (prompts.empty()) body.complain("prompt", kExpected);
  if (static_cast<int>(prompts.size()) > kMaxAnswers) {
    body.complain("prompt", fmt::format("expected at most {} prompts, found {}", kMaxAnswers,
                                        prompts.size()));
  }
  return prompts;
}

// Parts of text become one text; every other kind of part is refused. What an assistant has said
// instead of an answer is its text, too.
void join_text_parts(BodyReader& body, const std::string& where, ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const ordered_json& part = (*content)[i];
    const bool is_refusal = message["role"] == "assistant" && member_of(part, "type") == "refusal";
    const ordered_json& more = member_of(part, is_refusal ? "refusal" : "text");
    if ((!is_refusal && member_of(part, "type") != "text") || !more.is_string()) {
      return body.complain("messages", "content: only parts of type text are supported");
    }
    const std::string place = fmt::format("{}.content[{}]", where, i);
    if (!body.check_members(place, part, is_refusal ? kChatRefusal : kChatText)) return;
    text += more.get<std::string>();
  }
  *content = text;
}

// An assistant that has refused to answer has a text there, and no content.
void read_refusal(BodyReader& body, const std::string& where, ordered_json& message) {
  const ordered_json refusal = member_of(message, "refusal");
  message.erase("refusal");
  if (refusal.is_null()) return;
  const ordered_json& content = member_of(message, "content");
  const bool is_alone = content.is_null() || content == "";
  if (!refusal.is_string() || message["role"] != "assistant" || !is_alone) {
    return body.complain(where + ".refusal",
                         "expected a text in the place of an assistant's content, found " +
                             BodyReader::shown(refusal));
  }
  message["content"] = refusal;
}

void read_calls(BodyReader& body, const std::string& where, const ordered_json& calls) {
  const bool are_calls =
      calls.is_null() || (calls.is_array() && std::ranges::all_of(calls, [](const auto& call) {
                            return member_of(member_of(call, "function"), "name").is_string();
                          }));
  if (!are_calls) {
    return body.complain("messages",
                         where +
                             ": tool_calls: expected a list of {\"function\": {\"name\", "
                             "\"arguments\"}}");
  }
  for (size_t i = 0; i < calls.size() && body.is_valid(); ++i) {
    const std::string place = fmt::format("{}.tool_calls[{}]", where, i);
    const ordered_json& function = member_of(calls[i], "function");
    if (const ordered_json& type = member_of(calls[i], "type");
        !type.is_null() && type != "function") {
      return body.complain(place + ".type",
                           "expected \"function\", found " + BodyReader::shown(type));
    }
    body.check_members(place, calls[i], kChatCall);
    body.check_members(place + ".function", function, kChatCallFunction);
  }
}

// Members that only a template may know (Preparation::choose_template), or nobody.
void note_other_members(BodyReader& body, const std::string& where, const ordered_json& message,
                        ChatRequest& request) {
  for (const auto& [name, value] : message.items()) {
    if (kChatMessage.knows(name)) continue;
    if (!kChatMessage.ignores(name)) {
      request.template_members.push_back({.path = where + "." + name, .name = name});
    } else if (!value.is_null()) {
      body.ignore_member(kChatMessage, name);
    }
  }
}

// Only an assistant's message may lack its content: it may have called tools instead.
void read_message(BodyReader& body, size_t index, ordered_json& message, ChatRequest& request) {
  const std::string where = fmt::format("messages[{}]", index);
  const auto complain = [&](const std::string& what) {
    body.complain("messages", fmt::format("{}: {}", where, what));
  };
  if (!message.is_object() || !message.value("role", ordered_json()).is_string()) {
    return complain("expected an object with a role");
  }
  const std::string role = message["role"];
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    return complain(fmt::format("role: expected {}, found {}", fmt::join(kRoles, ", "),
                                BodyReader::shown(message["role"])));
  }
  read_refusal(body, where, message);
  const ordered_json content = message.value("content", ordered_json());
  if (content.is_null() && role != "assistant") {
    return complain(fmt::format("a message of role {} needs content", role));
  }
  if (!content.is_string() && !content.is_null() && !content.is_array()) {
    return complain("content: expected a string, or a list of parts");
  }
  join_text_parts(body, where, message);
  read_calls(body, where, member_of(message, "tool_calls"));
  // Null is "not given". Templates may look for a null content, though.
  for (auto member = message.begin(); member != message.end();) {
    const bool absent = member->is_null() && member.key() != "content";
    member = absent ? message.erase(member) : std::next(member);
  }
  note_other_members(body, where, message, request);
}

ordered_json read_messages(BodyReader& body, ChatRequest& request) {
  ordered_json messages = body.take("messages");
  if (!messages.is_array() || messages.empty()) {
    body.complain("messages", "expected a list of messages that is not empty");
    return ordered_json::array();
  }
  for (size_t i = 0; i < messages.size(); ++i) read_message(body, i, messages[i], request);
  return messages;
}

void check_tool(BodyReader& body, size_t index, const ordered_json& tool) {
  const auto complain = [&](const char* member, const std::string& what) {
    body.complain("tools", fmt::format("tools[{}]{}: {}", index, member, what));
  };
  if (!tool.is_object()) return complain("", "expected an object");
  if (const ordered_json& type = member_of(tool, "type"); type != "function") {
    return complain(".type", "expected \"function\", found " + BodyReader::shown(type));
  }
  const ordered_json& function = member_of(tool, "function");
  const ordered_json& name = member_of(function, "name");
  if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
    return complain(".function.name", "expected a name, found " + BodyReader::shown(name));
  }
  const std::string place = fmt::format("tools[{}]", index);
  body.check_members(place, tool, kChatTool);
  body.check_members(place + ".function", function, kChatFunction);
  const ordered_json& parameters = member_of(function, "parameters");
  if (!parameters.is_null() && !parameters.is_object()) {
    complain(".function.parameters",
             "expected a JSON schema, an object, found " + BodyReader::shown(parameters));
  }
}

// "none", "auto", "required", or {"type": "function", "function": {"name": …}}.
FoundChoice find_choice(const ordered_json& choice, const ordered_json& tools) {
  if (choice.is_null() || choice == "auto") return {};
  if (choice == "none") return {.kind = FoundChoice::kNone};
  if (choice == "required") return {.kind = FoundChoice::kRequired};
  const ordered_json& name = member_of(member_of(choice, "function"), "name");
  if (member_of(choice, "type") != "function" || !name.is_string()) {
    return {.kind = FoundChoice::kOther};
  }
  return {.kind = FoundChoice::kTool, .function = offered_function(tools, name), .name = name};
}

void read_tool_choice(BodyReader& body, ChatRequest& request) {
  const ordered_json& choice = body.take("tool_choice");
  const FoundChoice found = find_choice(choice, request.tools);
  const ChoicePlaces places{.choice = "tool_choice", .name = "tool_choice"};
  if (!choose_tools(body, found, places, request)) return;
  if (found.kind == FoundChoice::kTool) {
    body.check_members("tool_choice", choice, kChatChoice);
    body.check_members("tool_choice.function", member_of(choice, "function"), kChatChoiceFunction);
  } else if (found.kind == FoundChoice::kOther) {
    body.complain("tool_choice",
                  "expected \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                  "\"function\": {\"name\": …}}, found " +
                      BodyReader::shown(choice));
  }
}

void read_tools(BodyReader& body, ChatRequest& request) {
  const ordered_json& tools = body.take("tools");
  if (!tools.is_null() && !tools.is_array()) return body.complain("tools", "expected a list");
  for (size_t i = 0; i < tools.size() && body.is_valid(); ++i) check_tool(body, i, tools[i]);
  if (!body.is_valid()) return;
  if (!tools.empty()) request.tools = tools;
  read_tool_choice(body, request);
  request.parallel_tool_calls = body.flag("parallel_tool_calls", true);
}

void read_reasoning(BodyReader& body, ChatRequest& request) {
  request.reasoning_effort = read_effort(body, "reasoning_effort", body.take("reasoning_effort"));
  request.include_reasoning = body.flag("include_reasoning", true);
}

// The last message, of the assistant, goes on. vLLM wants its counterpart to be switched off.
void read_continuation(BodyReader& body, ChatRequest& request) {
  constexpr const char* kName = "continue_final_message";
  request.add_generation_prompt = body.flag("add_generation_prompt", true);
  if (!body.flag(kName)) return;
  if (request.add_generation_prompt) {
    return body.complain(kName, "expected add_generation_prompt: false beside it");
  }
  if (request.messages.empty() || !body.is_valid()) return;
  const ordered_json last = request.messages.back();
  const ordered_json& content = member_of(last, "content");
  const bool is_text = last["role"] == "assistant" && content.is_string() && content != "" &&
                       !last.contains("tool_calls") && request.messages.size() > 1;
  if (!is_text) {
    return body.complain(kName, "expected a text of role assistant as the last message");
  }
  if (request.must_call() || request.options.format) {
    return body.complain(
        kName, fmt::format("beside {}: expected one of them",
                           request.must_call() ? "tool_choice" : request.options.format->place));
  }
  request.prefill = content;
  request.messages.erase(request.messages.size() - 1);
  request.add_generation_prompt = true;  // the text follows the begin of an answer
}

// What another server has replied, for which TensorRT-LLM needs no messages any more.
void read_prompt_ids(BodyReader& body, ChatRequest& request) {
  constexpr const char* kName = "prompt_token_ids";
  const ordered_json& ids = body.take(kName);
  if (ids.is_null()) return;
  if (request.options.shared_prompt == nullptr) {
    return body.complain(kName, fmt::format("expected {} beside it, or leave it out", kTrtParams));
  }
  request.prompt_ids = ids.is_array() ? token_ids(ids) : std::nullopt;
  if (!request.prompt_ids) {
    body.complain(kName, "expected a list of token ids, found " + BodyReader::shown(ids));
  }
}

template <typename Request>
Parsed<Request> finish(BodyReader& body, Request request) {
  if (const auto error = body.finish()) return *error;
  return request;
}

template <typename Request>
Parsed<Request> finish_generation(BodyReader& body, Request request) {
  request.options.without_effect = body.without_effect();
  return finish(body, std::move(request));
}

}  // namespace

Parsed<CompletionRequest> parse_completion_request(std::string_view text,
                                                   const run::SamplingDefaults& defaults) {
  BodyReader body(kCompletionBody, text);
  CompletionRequest request{.options = read_options(body, defaults, body.flag("echo")),
                            .prompts = read_prompts(body)};
  if (const auto count = body.integer("logprobs", 0, kMaxLogprobs)) {
    request.options.logprobs = true;
    request.options.engine_request.sampling.top_log_probabilities = static_cast<int>(*count);
  }
  body.only("best_of", request.options.n, "choosing the best of more answers");
  body.only("suffix", "", "a suffix");
  // The engine takes its tokens for an answer's.
  if (request.options.scores_prompts() && request.options.returns_progress) {
    body.complain("return_progress", "beside echo with logprobs: expected one of them");
  }
  if (request.options.scores_prompts() && request.options.format) {
    body.complain("echo", fmt::format("with logprobs beside {}: expected one of them",
                                      request.options.format->place));
  }
  return finish_generation(body, std::move(request));
}

Parsed<ChatRequest> parse_chat_request(std::string_view text,
                                       const run::SamplingDefaults& defaults) {
  BodyReader body(kChatBody, text);
  ChatRequest request;
  request.options = read_options(body, defaults);
  request.messages = read_messages(body, request);
  read_prompt_ids(body, request);
  read_tools(body, request);
  read_reasoning(body, request);
  request.variables = read_variables(body);
  request.chat_template = body.string("chat_template");
  read_max_tokens(body, "max_completion_tokens", request.options);
  request.options.logprobs = body.flag("logprobs");
  if (const auto count = body.integer("top_logprobs")) {
    request.options.engine_request.sampling.top_log_probabilities = static_cast<int>(*count);
    if (*count > 0 && !request.options.logprobs) {
      body.complain("top_logprobs", "expected logprobs: true beside it");
    }
  }
  read_continuation(body, request);
  body.only("add_special_tokens", false, "adding special tokens to what the template writes");
  read_thought_limit(body, "thinking_token_budget", body.take("thinking_token_budget"),
                     request.options);
  body.only("modalities", ordered_json::array({"text"}), "another modality");
  return finish_generation(body, std::move(request));
}

Parsed<TokenizeRequest> parse_tokenize_request(std::string_view text) {
  BodyReader body(kTokenizeBody, text);
  TokenizeRequest request;
  request.model = body.string("model");
  const bool has_prompt = !body.take("prompt").is_null();
  request.is_chat = !body.take("messages").is_null();
  if (has_prompt == request.is_chat) body.complain("prompt", "expected a text, or messages");
  if (has_prompt) request.prompt = body.string("prompt");
  request.chat.messages = request.is_chat ? read_messages(body, request.chat) : ordered_json();
  read_tools(body, request.chat);
  read_reasoning(body, request.chat);
  request.chat.variables = read_variables(body);
  request.chat.chat_template = body.string("chat_template");
  request.add_special_tokens = body.flag("add_special_tokens", !request.is_chat);
  read_continuation(body, request.chat);
  request.returns_strings = body.flag("return_token_strs");
  return finish(body, std::move(request));
}

Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view text) {
  BodyReader body(kDetokenizeBody, text);
  DetokenizeRequest request{.model = body.string("model"), .tokens = {}};
  const ordered_json& tokens = body.take("tokens");
  auto ids = tokens.is_array() ? token_ids(tokens) : std::nullopt;
  if (!ids) body.complain("tokens", "expected a list of token ids");
  request.tokens = std::move(ids).value_or(std::vector<int32_t>());
  return finish(body, std::move(request));
}

Parsed<ScaleRequest> parse_scale_request(std::string_view text) {
  BodyReader body(kScaleBody, text);
  ScaleRequest request;
  const auto num_ranks = body.integer("new_data_parallel_size");
  if (!num_ranks) body.complain("new_data_parallel_size", "expected the number of ranks");
  request.num_ranks = num_ranks.value_or(0);
  request.timeout_seconds = body.integer("drain_timeout").value_or(request.timeout_seconds);
  return finish(body, request);
}

}  // namespace wideep::server
