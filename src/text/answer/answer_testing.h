// SPDX-License-Identifier: Apache-2.0
//
// For tests: a whole answer read at once or in pieces, as one text that can be compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer_reader.h"
#include "answer/call_formats.h"
#include "answer/make_answer_reader.h"

namespace wideep::answer {

struct ReadCall {
  std::string name, id, arguments;
  bool operator==(const ReadCall&) const = default;
};

struct ReadAnswer {
  std::string reasoning, content;
  std::vector<ReadCall> calls;
  bool operator==(const ReadAnswer&) const = default;
};

// Adds what has come, as a client does with the parts of a stream.
inline void collect(AnswerParts& parts, ReadAnswer* answer) {
  answer->reasoning += parts.take_reasoning();
  answer->content += parts.take_content();
  for (CallPart& part : parts.take_calls()) {
    const auto index = static_cast<size_t>(part.index);
    if (part.begins) answer->calls.push_back({std::move(part.name), std::move(part.id), {}});
    answer->calls.at(index).arguments += part.arguments;
  }
}

inline AnswerSettings settings_of(const ReasoningFormat* reasoning, const CallFormat* calls,
                                  const nlohmann::ordered_json& tools) {
  return {.format = {.reasoning = reasoning, .calls = calls},
          .tools = std::make_shared<const ToolList>(tools)};
}

// pieces: the bytes of each piece but the last.
inline ReadAnswer read_answer(const AnswerSettings& settings, std::string_view text,
                              const std::vector<size_t>& pieces = {}, bool is_cut = false) {
  AnswerParts parts(settings.format.holds_space());
  const auto reader = make_answer_reader(settings);
  ReadAnswer answer;
  for (const size_t bytes : pieces) {
    reader->add_text(text.substr(0, bytes), parts);
    text.remove_prefix(std::min(bytes, text.size()));
    collect(parts, &answer);
  }
  reader->add_text(text, parts);
  reader->finish(is_cut, parts);
  collect(parts, &answer);
  return answer;
}

// Whether the arguments of all calls are JSON objects, as those of a format that is not JSON itself
// always are, unless the answer was cut.
// JSON with 0 for each number: nlohmann's reader refuses those that no double holds, which JSON
// does not.
inline std::string without_numbers(std::string_view json) {
  static const std::regex number("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?");
  std::string text;
  bool in_string = false;
  for (size_t at = 0; at < json.size();) {
    const size_t end = std::min(json.find_first_not_of("-+.0123456789eE", at), json.size());
    const bool begins = json[at] == '-' || (json[at] >= '0' && json[at] <= '9');
    if (!in_string && begins) {
      const std::string word(json.substr(at, end - at));
      text += std::regex_match(word, number) ? "0" : word;
      at = end;
      continue;
    }
    if (json[at] == '"') in_string = !in_string;
    if (in_string && json[at] == '\\' && at + 1 < json.size()) text += json[at++];
    text += json[at++];
  }
  return text;
}

inline bool has_json_arguments(const ReadAnswer& answer) {
  return std::all_of(answer.calls.begin(), answer.calls.end(), [](const ReadCall& call) {
    return call.arguments.starts_with('{') &&
           nlohmann::json::accept(without_numbers(call.arguments));
  });
}

template <typename Random>
std::vector<size_t> random_pieces(size_t bytes, Random& random) {
  std::vector<size_t> pieces;
  const size_t max = 1 + random() % 12;
  for (size_t done = 0; done < bytes;) {
    pieces.push_back(1 + random() % max);
    done += pieces.back();
  }
  return pieces;
}

// Three tools, with arguments of all types.
inline const nlohmann::ordered_json& some_tools() {
  static const auto tools = nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
      "a": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"},
      "l": {"type": "array"}, "o": {"$ref": "#/$defs/thing"},
      "n": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
      "$defs": {"thing": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "g"}},
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "number"},
        "places": {"type": "array", "items": {"type": "object", "properties": {
          "zip": {"type": "string"}}}}}}}}])");
  return tools;
}

}  // namespace wideep::answer
