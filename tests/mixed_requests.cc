// SPDX-License-Identifier: Apache-2.0
//
// A right answer has to be the only one: requests are greedy or have a seed, and Anthropic's, which
// know no seed, are greedy. Kinds follow each other by index, streams and lengths have other
// periods, so that kinds repeat in different forms. Many are bound to a format or have penalties,
// whose state must survive with the tokens when another process goes on. What counts as the same
// leaves out how much was cached.
#include "mixed_requests.h"

#include <array>
#include <random>
#include <set>
#include <string_view>

namespace wideep::tests {
namespace {

using nlohmann::json;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChats = "/v1/chat/completions";
constexpr const char* kResponses = "/v1/responses";
constexpr const char* kMessages = "/v1/messages";

constexpr std::array<std::string_view, 16> kWords = {
    "the", "sea", "and",  "wind", "went",  "over",  "hills", "where",
    "an",  "old", "king", "had",  "built", "house", "of",    "stone"};

std::string words(std::mt19937& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += text.empty() ? "" : " ";
    text += kWords[random() % kWords.size()];
  }
  return text;
}

json person() {
  return {
      {"type", "object"},
      {"properties",
       {{"name", {{"type", "string"}, {"maxLength", 12}}},
        {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 120}}},
        {"tags",
         {{"type", "array"}, {"items", {{"type", "string"}, {"maxLength", 5}}}, {"maxItems", 3}}}}},
      {"required", {"name", "age", "tags"}},
      {"additionalProperties", false}};
}

json sum() {
  return {{"type", "object"},
          {"properties", {{"a", {{"type", "integer"}}}, {"b", {{"type", "integer"}}}}},
          {"required", {"a", "b"}}};
}

json user(const std::string& text) { return json::array({{{"role", "user"}, {"content", text}}}); }

}  // namespace

const char* const kMixedTemplate =
    "{%- if tools %}{{ tools | tojson }}{% endif -%}"
    "{%- for m in messages -%}[{{ m.role }}]{{ m.content }}{%- endfor -%}[assistant]";

MixedRequest mixed_request(int index, int max_tokens, bool with_routed_experts) {
  std::mt19937 random(static_cast<uint32_t>(index));
  const std::string text = words(random, 3 + static_cast<int>(random() % 12));
  const std::string prefix = words(random, 3);
  const int tokens = max_tokens - index % 9;
  json body = {{"model", "m"},
               {"temperature", index / kMixedKinds % 2 == 0 ? 0.9 : 0.0},
               {"seed", 1000 + index},
               {"stream", index % 4 != 3}};
  const auto make = [&](const char* kind, const char* path, json more) {
    body["max_tokens"] = tokens;
    body.update(more);
    return MixedRequest{.kind = kind, .path = path, .body = body};
  };
  const auto of_responses = [&](const char* kind, json more) {
    more.update({{"input", text}, {"max_output_tokens", tokens}});
    body.update(more);
    return MixedRequest{.kind = kind, .path = kResponses, .body = body};
  };
  switch (index % kMixedKinds) {
    case 0:
      return make("plain", kCompletions, {{"prompt", text}, {"ignore_eos", true}});
    case 1:
      return make("several answers", kCompletions, {{"prompt", text}, {"n", 3}, {"top_p", 0.9}});
    case 2:
      return make("log probabilities", kCompletions,
                  {{"prompt", text}, {"logprobs", 3}, {"frequency_penalty", 0.5}});
    case 3:
      return make("regex", kCompletions,
                  {{"prompt", text}, {"guided_regex", "[A-Z][a-z]+( [a-z]+){3,30}\\."}});
    case 4:
      return make("schema", kCompletions, {{"prompt", text}, {"guided_json", person()}});
    case 5:
      return make("choice", kCompletions,
                  {{"prompt", text}, {"guided_choice", {"LEFT", "RIGHT", "STRAIGHT ON"}}});
    case 6:
      return make("chat", kChats,
                  {{"messages", user(text)}, {"logprobs", true}, {"top_logprobs", 4}});
    case 7:
      return make(
          "tools", kChats,
          {{"messages", user(text)},
           {"tools", json::array({{{"type", "function"},
                                   {"function", {{"name", "add"}, {"parameters", sum()}}}}})},
           {"tool_choice", "required"}});
    case 8:
      return make("chat with a schema", kChats,
                  {{"messages", user(text)},
                   {"n", 2},
                   {"response_format",
                    {{"type", "json_schema"},
                     {"json_schema", {{"name", "person"}, {"schema", person()}}}}}});
    case 9:
      return of_responses("response", {{"store", false}});
    case 10: {
      MixedRequest request = of_responses(
          "stored response",
          {{"store", true},
           {"text",
            {{"format", {{"type", "json_schema"}, {"name", "person"}, {"schema", person()}}}}}});
      request.is_stored = true;
      return request;
    }
    case 11:
      body.erase("seed");
      body["temperature"] = 0.0;
      return make("message", kMessages, {{"messages", user(text)}});
    case 12:
      body.erase("seed");
      body["temperature"] = 0.0;
      return make("message with a tool", kMessages,
                  {{"messages", user(text)},
                   {"tools", json::array({{{"name", "add"}, {"input_schema", sum()}}})},
                   {"tool_choice", {{"type", "any"}}}});
    case 13:
      return make("several prompts", kCompletions,
                  {{"prompt", {text, prefix, text + " " + prefix}},
                   {"repetition_penalty", 1.2},
                   {"logit_bias", {{"100", 3}}}});
    case 14:
      return make("long prompt", kCompletions,
                  {{"prompt", words(random, 60)}, {"stop", {"zzzq"}}, {"min_tokens", 8}});
    case 15:
      return make("presence penalty", kCompletions,
                  {{"prompt", prefix + " " + text},
                   {"presence_penalty", 0.7},
                   {"allowed_token_ids", {32, 97, 98, 101, 104, 110, 111, 114, 115, 116}}});
    default: {
      json more = {{"prompt", text}, {"return_token_ids", true}, {"ignore_eos", true}};
      if (with_routed_experts) more.update({{"routed_experts_prompt_start", 0}, {"stream", false}});
      return make(with_routed_experts ? "routed experts" : "token ids", kCompletions, more);
    }
  }
}

MixedRequest with_words_before(MixedRequest request, int index, int num_words) {
  std::mt19937 random(static_cast<uint32_t>(index) + 1'000'000);
  const auto lengthen = [&](json& text) {
    text = words(random, num_words) + " " + text.get<std::string>();
  };
  json& body = request.body;
  if (body.contains("messages")) {
    lengthen(body["messages"].at(0)["content"]);
  } else if (body.contains("input")) {
    lengthen(body["input"]);
  } else if (body["prompt"].is_string()) {
    lengthen(body["prompt"]);
  } else {
    for (json& each : body["prompt"]) lengthen(each);
  }
  return request;
}

json lasting(const json& value) {
  static const std::set<std::string, std::less<>> kDiffer = {
      "id", "created", "created_at", "completed_at", "item_id", "call_id", "request_id",
      "response_id", "signature",
      // How much of a prompt a rank had cached depends on who computed what before; Anthropic's
      // input_tokens are those that were not.
      "prompt_tokens_details", "input_tokens_details", "cached_tokens", "cache_read_input_tokens",
      "cache_creation_input_tokens", "input_tokens"};
  if (value.is_array()) {
    json list = json::array();
    for (const json& each : value) list.push_back(lasting(each));
    return list;
  }
  if (!value.is_object()) return value;
  json object = json::object();
  for (const auto& [name, each] : value.items()) {
    if (!kDiffer.contains(name)) object[name] = lasting(each);
  }
  return object;
}

}  // namespace wideep::tests
