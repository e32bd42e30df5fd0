// SPDX-License-Identifier: Apache-2.0
//
// A request is made from its index alone, so that all clients know the same ones and their answers
// can be compared. Those that are refused are tables of bodies with the status that each must get,
// whatever state the server is in. Options that have no effect, null ones among them, are mixed in,
// and arguments of tool calls with names that templates could trip over. Streams and whole replies
// are brought to one form, choice by choice.
#include "soak_requests.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <random>

namespace wideep::tests {
namespace {

using nlohmann::json;
using server::RequestCase;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChats = "/v1/chat/completions";
constexpr int kMaxTokens = 24;
// Rows of the embedding; the tokenizer has fewer tokens.
constexpr int kVocabulary = 264;

// ---- requests that are answered ----

std::string nested(int depth) {
  const auto times = static_cast<size_t>(depth);
  return std::string(times, '[') + std::string(times, ']');
}

class Maker {
 public:
  explicit Maker(int index) : rng_(static_cast<uint32_t>(index)) {}

  AnsweredRequest make() {
    const bool chat = one_in(2);
    json body = chat ? chat_body() : completion_body();
    add_options(body);
    return {kind_, chat ? kChats : kCompletions, std::move(body)};
  }

 private:
  int below(int limit) { return static_cast<int>(rng_() % static_cast<uint32_t>(limit)); }
  bool one_in(int count) { return below(count) == 0; }

  std::string text() {
    static const char* const kTexts[] = {"The cat", "x", "Füße, 猫 and 🙂",
                                         "1 + 1 =", "\n\t\"\\\" "};
    std::string text = kTexts[below(std::size(kTexts))];
    if (one_in(4)) text = std::string(150, 'a') + text;  // a prefix that many prompts share
    if (one_in(12)) text += std::string(static_cast<size_t>(100 + below(200)), 'l');
    return text;
  }

  std::vector<int> ids() {
    std::vector<int> ids(static_cast<size_t>(1 + below(40)));
    for (int& id : ids) id = below(kVocabulary);
    ids.back() = kVocabulary - 1;
    return ids;
  }

  json completion_body() {
    json body;
    body["logprobs"] = one_in(3) ? json(below(6)) : json();
    kind_ = "completion";
    switch (below(5)) {
      case 0:
        body["prompt"] = json::array({text(), text()});
        break;
      case 1:
        kind_ = "token ids";
        body["prompt"] = ids();
        break;
      case 2:
        kind_ = "token ids";
        body["prompt"] = json::array({ids(), ids()});
        break;
      default:
        body["prompt"] = text();
    }
    if (one_in(4)) body.update({{"best_of", nullptr}, {"echo", false}, {"suffix", nullptr}});
    return body;
  }

  json chat_body() {
    json body;
    body["messages"] = json::array({json({{"role", "user"}, {"content", text()}})});
    kind_ = "chat";
    if (one_in(3)) body["response_format"] = {{"type", "text"}};
    if (one_in(3)) body.update({{"logprobs", true}, {"top_logprobs", below(21)}});
    if (one_in(3)) body["messages"][0]["content"] = parts();
    if (one_in(2)) add_tools(body);
    return body;
  }

  json parts() {
    return {{{"type", "text"}, {"text", text()}}, {{"type", "text"}, {"text", "more"}}};
  }

  // Arguments as OpenAI's clients send them, a text of JSON, or as an object.
  void add_tools(json& body) {
    kind_ = "tools";
    json arguments = {{"city", text()}, {"days", below(9)}, {"deep", {{"list", {1, 2.5}}}}};
    if (one_in(4)) arguments["nested"] = json::parse(nested(20));
    if (one_in(4)) arguments.update({{"", nullptr}, {"__class__", true}, {"items", {"values"}}});
    // Of digits that fit into no number of the processor.
    const std::string large = R"({"n": 123456789012345678901234567890, "x": -1e5})";
    const json call = {
        {"name", "weather"},
        {"arguments", one_in(4)   ? json(large)
                      : one_in(2) ? json(arguments.dump())
                                  : arguments},
    };
    const json calls = json::array({json({{"id", "1"}, {"type", "function"}, {"function", call}})});
    json& messages = body["messages"];
    messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}});
    messages.push_back({{"role", "tool"}, {"tool_call_id", "1"}, {"content", "It rains."}});
    messages.push_back({{"role", "user"}, {"content", "And then?"}, {"name", nullptr}});
    if (one_in(3)) return;
    const json parameters = {{"type", "object"}, {"properties", json::object()}};
    const json function = {{"name", "weather"}, {"parameters", parameters}};
    body["tools"] = json::array({json({{"type", "function"}, {"function", function}})});
    body["tool_choice"] = one_in(2) ? json("auto") : json("none");
  }

  void add_options(json& body) {
    body.update({{"model", "m"}, {"max_tokens", 1 + below(kMaxTokens)}, {"temperature", 0}});
    if (one_in(2)) {
      body.update(
          {{"temperature", 0.5 + 0.25 * below(4)}, {"seed", below(1000)}, {"n", 1 + below(3)}});
      if (one_in(2)) body.update({{"top_p", 0.9}, {"top_k", 5 + below(50)}});
    }
    if (one_in(4)) body["stop"] = one_in(2) ? json("e") : json({"ab", "\n", "猫", "zz"});
    if (one_in(16)) add_long_stops(body);
    if (one_in(16)) body.update({{"max_tokens", 300}, {"n", 2}, {"seed", 1}, {"stop", nullptr}});
    if (one_in(3)) {
      body.update({{"user", "u"},
                   {"metadata", {{"a", 1}}},
                   {"store", nullptr},
                   {"logit_bias", nullptr},
                   {"functions", nullptr},
                   {"presence_penalty", 0},
                   {"stream", nullptr}});
    }
  }

  // The longest that are allowed. They nearly match, again and again.
  void add_long_stops(json& body) {
    kind_ = "long stop strings";
    json stops = json::array();
    for (int i = 0; i < 16; ++i) {
      stops.push_back(std::string(1023, "aelx"[i % 4]) + static_cast<char>('a' + i));
    }
    body["stop"] = std::move(stops);
  }

  std::mt19937 rng_;
  std::string kind_;
};

std::string text_of(const json& choice) {
  if (choice.contains("text")) return choice["text"];
  const json& message = choice.contains("message") ? choice["message"] : choice["delta"];
  return message.value("content", "");
}

// ---- requests that are refused ----

std::string many_members(int count) {
  json members = json::object();
  for (int i = 0; i < count; ++i) members[fmt::format("member{}", i)] = i;
  return members.dump();
}

std::vector<RefusedRequest> texts_that_are_no_json() {
  const std::string open = R"({"model":"m","prompt":)";
  std::vector<RefusedRequest> all;
  for (const std::string& body : std::vector<std::string>{
           "",
           "{",
           "null",
           "[]",
           "\"x\"",
           open,
           open + "\"x\"",
           open + "\"x\",}",
           open + "'x'}",
           open + "\"x\"} {}",
           open + "\"x\"}//",
           open + "NaN}",
           open + "1e999}",
           open + "01}",
           open + "\"\\ud800\"}",
           open + "\"\\udc00\\ud800\"}",
           open + "\"\\u12\"}",
           open + "\"\xff\"}",
           open + "\"\xed\xa0\x80\"}",
           open + "\"\xc0\xaf\"}",
           open + "\"\n\"}",
           open + std::string("\"\0\"}", 4),
           open + "\"x\",\"prompt\":\"y\"}",
           open + "\"x\",\"metadata\":{\"a\":{\"b\":1,\"b\":1}}}",
           open + "\"x\",\"metadata\":" + many_members(513) + "}",
           open + nested(50'000) + "}",
           open + std::string(100'000, '['),
           open + std::string(100'000, '{'),
           "\xef\xbb\xbf{}",
           "\x1f\x8b\x08",
       }) {
    for (const char* path : {kCompletions, kChats}) all.push_back({"no JSON", path, body, 400});
  }
  return all;
}

// Fields of the wrong type, or beyond their limits.
std::vector<json> wrong_options() {
  std::vector<json> all;
  const auto add = [&](const char* name, std::vector<json> values) {
    for (json& value : values) {
      json& each = all.emplace_back();
      each[name] = std::move(value);
    }
  };
  const json text = "x", object = json::object(), list = json::array();
  add("max_tokens", {0, -2, 1.5, text, object, list, true, 1 << 25, UINT64_MAX});
  add("temperature", {-0.1, 101, text, true, list});
  add("top_p", {0, 1.1, -1, text});
  add("top_k", {-2, 1.5, text});
  add("n", {0, 129, -1, text, 1e300});
  add("seed", {UINT64_MAX, 0.5, text});
  add("stream", {text, 1, object});
  add("stream_options", {object, text, {{"include_usage", true}}});
  add("stop", {"",
               5,
               {"a", ""},
               {1},
               std::string(1025, 's'),
               object,
               json(std::vector<std::string>(17, "s"))});
  add("logprobs", {text, 6, object});
  add("presence_penalty", {2.5, text, object});
  add("logit_bias", {{{"x", 1}}, {{"1", 101}}, text});
  add("unknown", {1, text, object});
  add("", {1});
  add("a\nb\x01", {1});
  return all;
}

std::vector<RefusedRequest> options_that_are_wrong() {
  const json completion = {{"model", "m"}, {"prompt", "x"}};
  const json chat = {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
  std::vector<RefusedRequest> all;
  for (const json& wrong : wrong_options()) {
    for (json body : {completion, chat}) {
      body.update(wrong);
      all.push_back(
          {"wrong options", body.contains("prompt") ? kCompletions : kChats, body.dump(), 400});
    }
  }
  all.push_back({"wrong options", kCompletions, R"({"model":"other","prompt":"x"})", 404});
  all.push_back({"wrong options", kCompletions, R"({"prompt":"x"})", 404});
  return all;
}

std::vector<RefusedRequest> prompts_that_are_wrong() {
  const json object = json::object(), list = json::array();
  const auto of = [](auto... values) { return json::array({json(values)...}); };
  std::vector<RefusedRequest> all;
  for (const json& prompt : std::vector<json>{json(),
                                              "",
                                              list,
                                              object,
                                              1,
                                              true,
                                              of("x", 1),
                                              of(1, "x"),
                                              of(1, of(1)),
                                              of(object),
                                              of(list),
                                              of(of("x")),
                                              of(-1),
                                              of(kVocabulary),
                                              of(1, 1 << 30),
                                              of(int64_t{1} << 40),
                                              of(UINT64_MAX),
                                              of(1.5),
                                              of(1, nullptr),
                                              std::vector<int>(5000, 7),
                                              std::string(5000, 'x'),
                                              std::string(5000, ' '),
                                              std::vector<std::string>(129, "x")}) {
    all.push_back(
        {"wrong prompts", kCompletions, json({{"model", "m"}, {"prompt", prompt}}).dump(), 400});
  }
  return all;
}

std::vector<json> messages_that_are_wrong() {
  const json object = json::object(), list = json::array();
  std::vector<json> all = {json(), "", list, object, 1};
  const json image = json::array({{{"type", "image_url"}, {"image_url", "x"}}});
  for (const json& message : std::vector<json>{
           json(1), json("x"), object, json({{"role", "alien"}, {"content", "x"}}),
           json({{"role", "user"}}), json({{"role", "user"}, {"content", 5}}),
           json({{"role", "user"}, {"content", image}}), json({{"role", 1}, {"content", "x"}}),
           json({{"role", "user"}, {"content", "odd"}})}) {
    all.push_back(json::array({message}));
  }
  for (const json& arguments : std::vector<json>{"no JSON", "[1]", "{\"a\":1,\"a\":2}", 1, list}) {
    const json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
    json message = {{"role", "assistant"}, {"content", nullptr}};
    message["tool_calls"] = json::array({call});
    all.push_back(json::array({message}));
  }
  return all;
}

std::vector<RefusedRequest> chats_that_are_wrong() {
  const json object = json::object(), list = json::array();
  std::vector<RefusedRequest> all;
  const auto add = [&](const char* name, const std::vector<json>& values) {
    for (const json& value : values) {
      json body = {{"model", "m"}};
      body["messages"] = json::array({json({{"role", "user"}, {"content", "x"}})});
      body[name] = value;
      all.push_back({"wrong chats", kChats, body.dump(), 400});
    }
  };
  add("messages", messages_that_are_wrong());
  add("response_format", {json({{"type", "xml"}}), json({{"type", "json_schema"}}), "text", list});
  add("tool_choice", {"required", "f", 1, object});
  add("tools", {object, "x", 1});
  add("chat_template", {"none such", 1});
  add("chat_template_kwargs", {list, json({{"messages", list}})});
  add("top_logprobs", {2, 21, "x"});
  add("modalities", {json::array({"audio"}), "text"});
  return all;
}

template <typename Range>
void append(Range more, std::vector<typename Range::value_type>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

}  // namespace

// Goes through the arguments of tool calls, as templates of models with tools do.
const char* const kSoakTemplate =
    "{%- if tools %}{{ tools | tojson }}{% endif -%}"
    "{%- for m in messages -%}[{{ m.role }}]"
    "{%- for c in m.tool_calls or [] -%}<{{ c.function.name }}>"
    "{%- for k, v in c.function.arguments | items -%}<{{ k }}>{{ v }}</{{ k }}>{%- endfor -%}"
    "{%- endfor -%}{{ m.content }}"
    "{%- if m.content == 'odd' %}{{ raise_exception('odd text') }}{% endif -%}"
    "{%- endfor -%}[assistant]";

AnsweredRequest answered_request(int index) { return Maker(index).make(); }

std::string lasting_part(const std::vector<json>& parts) {
  std::map<int, json> answers;
  for (const json& part : parts) {
    for (const json& choice : part["choices"]) {
      const auto found = answers.emplace(choice["index"], json({{"text", ""}})).first;
      json& answer = found->second;
      answer["text"].get_ref<std::string&>() += text_of(choice);
      if (!choice["finish_reason"].is_null()) answer["finish_reason"] = choice["finish_reason"];
      for (const auto& [name, values] : choice["logprobs"].items()) {
        for (const json& each : values) answer[name].push_back(each);
      }
    }
  }
  return json(answers).dump();
}

const std::vector<RefusedRequest>& refused_requests() {
  static const std::vector<RefusedRequest> kAll = [] {
    std::vector<RefusedRequest> all = texts_that_are_no_json();
    append(options_that_are_wrong(), &all);
    append(prompts_that_are_wrong(), &all);
    append(chats_that_are_wrong(), &all);
    return all;
  }();
  return kAll;
}

const std::vector<RefusedRequest>& huge_requests() {
  static const std::vector<RefusedRequest> kAll = [] {
    const std::string text(3 << 20, 'x');
    const json ids = std::vector<int>(400'000, 100);
    const json message = {{"role", "user"}, {"content", text}};
    std::vector<RefusedRequest> all;
    const auto add = [&](const char* path, const json& more, int status) {
      json body = {{"model", "m"}};
      body.update(more);
      all.push_back({"huge bodies", path, body.dump(), status});
    };
    add(kCompletions, {{"prompt", text}}, 400);
    add(kCompletions, {{"prompt", ids}}, 400);
    add(kCompletions, {{"prompt", std::string(3 << 20, ' ')}}, 400);
    add(kCompletions,
        {{"prompt", "x"}, {"stop", std::vector<std::string>(16, text.substr(0, 100'000))}}, 400);
    add(kChats, {{"messages", json::array({message})}}, 400);
    add(kChats, {{"messages", json::array({message, message, message})}}, 413);
    return all;
  }();
  return kAll;
}

const std::vector<PlainRequest>& plain_requests() {
  static const std::vector<PlainRequest> kAll = {
      {"GET", "/metrics", 200, 200},
      {"GET", "/health", 200, 200},
      {"GET", "/version", 200, 200},
      {"GET", "/v1/models", 200, 200},
      {"GET", "/v1/models/", 200, 200},
      {"GET", "/v1/models/m", 200, 200},
      {"GET", "/v1/models/other", 404, 404},
      {"GET", "/perf_metrics", 200, 404},
      {"GET", "/perf_metrics?since=5", 200, 404},
      {"GET", "/perf_metrics?since=x", 400, 404},
      {"GET", "/dashboard", 200, 404},
      {"GET", "/dashboard/data", 200, 404},
      {"GET", "/dashboard/data?since=99999999999999999999", 400, 404},
      {"GET", "/", 200, 200},  // the chat page
      {"GET", "/%00%ff/..%2f", 404, 404},
      {"GET", "http://elsewhere/health", 200, 200},
      {"GET", kCompletions, 405, 405},
      {"PUT", kChats, 405, 405},
      {"PATCH", "/v1/models", 405, 405},
      {"DELETE", "/v1/models", 405, 405},
      {"POST", "/health", 405, 405},
      {"TRACE", "/health", 405, 405},
      {"BREW", "/health", 405, 405},
      {"HEAD", "/health", 200, 200},
      {"HEAD", "/metrics", 200, 200},
      {"HEAD", "/v1/models", 200, 200},
      {"HEAD", "/dashboard", 200, 404},
      {"HEAD", "/nowhere", 404, 404},
      {"OPTIONS", "/v1/models", 204, 204},
      {"OPTIONS", kChats, 204, 204},
      {"OPTIONS", "/nowhere", 404, 404},
      {"OPTIONS", "*", 204, 204},
  };
  return kAll;
}

const std::vector<RequestCase>& http_requests() {
  static const std::vector<RequestCase> kAll = [] {
    std::vector<RequestCase> all;
    const auto add = [&](const auto& table) {
      all.insert(all.end(), std::begin(table), std::end(table));
    };
    add(server::kMessageLines);
    add(server::kRequestLines);
    add(server::kHosts);
    add(server::kFieldLines);
    add(server::kLengths);
    add(server::kTransferCodings);
    add(server::kChunks);
    return all;
  }();
  return kAll;
}

}  // namespace wideep::tests
