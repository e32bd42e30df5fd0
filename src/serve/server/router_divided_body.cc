// SPDX-License-Identifier: Apache-2.0
#include "server/router_divided_body.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "api/shared_prompt_fields.h"
#include "base/random_hex.h"
#include "server/router_json_members.h"

namespace wideep::server {
namespace {

using nlohmann::json;

constexpr std::string_view kParams = kTrtParams;
// About the answer's way only: what computes a prompt answers whole, and stores nothing.
constexpr std::string_view kOfAnswers[] = {"stream", "stream_options", "store", "background"};
// With one of these a request is for one server.
constexpr std::string_view kUndivided[] = {kVllmParams, "prompt_logprobs", "previous_response_id"};

bool is_set(std::string_view value) { return value != "null" && !value.starts_with("false"); }

// A list of texts, or of lists of tokens, of more than one. A list of tokens is one prompt.
bool has_several_prompts(std::string_view prompt) {
  if (!prompt.starts_with('[')) return false;
  const size_t first = prompt.find_first_not_of(" \t\r\n", 1);
  if (first == prompt.npos || (prompt[first] != '"' && prompt[first] != '[')) return false;
  size_t depth = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const char each = prompt[i];
    if (is_in_text) {
      if (each == '\\') ++i;
      is_in_text = each != '"';
    } else if (each == '"') {
      is_in_text = true;
    } else if (each == '[') {
      ++depth;
    } else if (each == ']') {
      --depth;
    } else if (each == ',' && depth == 1) {
      return true;
    }
  }
  return false;
}

// Who computes prompts for others takes one, for one answer.
bool has_several_answers(std::string_view key, std::string_view value) {
  if (key == "n") return value != "1" && value != "null";
  return key == "prompt" && has_several_prompts(value);
}

std::string_view name_of(ScheduleStyle style) {
  return style == ScheduleStyle::kContextFirst ? "context_first" : "generation_first";
}

// The body up to its first member, and the parameters.
std::string begin_of(std::string_view body, size_t begin, std::string_view params) {
  std::string text;
  text.reserve(body.size() + params.size() + kParams.size() + 4);
  text += body.substr(0, begin);
  text += '"';
  text += kParams;
  text += "\":";
  text += params;
  return text;
}

}  // namespace

bool can_divide(std::string_view body) {
  bool echoes = false, has_logprobs = false, has_members = false;
  JsonMembers members(body);
  while (members.next()) {
    has_members = true;
    // Written so that it cannot be compared; or a second one, whatever it says.
    if (members.key().find('\\') != std::string_view::npos) return false;
    if (members.key() == kParams) return false;
    if (std::ranges::find(kUndivided, members.key()) != std::end(kUndivided) &&
        is_set(members.value())) {
      return false;
    }
    if (has_several_answers(members.key(), members.value())) return false;
    echoes = echoes || (members.key() == "echo" && is_set(members.value()));
    has_logprobs = has_logprobs || (members.key() == "logprobs" && is_set(members.value()));
  }
  return members.is_good() && has_members && !(echoes && has_logprobs);
}

// Keys may be written with \u0064 for a letter, and readers of JSON skip a byte order mark.
std::string_view shared_params_in(std::string_view body) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  JsonMembers members(body);
  while (members.next()) {
    if (members.value().starts_with("null")) continue;
    std::string key(members.key());
    if (key.find('\\') != std::string::npos) {
      const json decoded = json::parse('"' + key + '"', nullptr, false);
      if (decoded.is_string()) key = decoded.get<std::string>();
    }
    for (const char* name : {kTrtParams, kVllmParams}) {
      if (key == name) return name;
    }
  }
  return {};
}

uint64_t new_request_id() {
  constexpr uint64_t kMask = (uint64_t{1} << 53) - 1;
  return std::stoull(base::random_hex(8), nullptr, 16) & kMask;
}

std::string context_body(std::string_view body, const ContextParams& params) {
  json object = {{"request_type", "context_only"},
                 {"disagg_request_id", params.request_id},
                 {"schedule_style", name_of(params.style)}};
  if (!params.earlier.empty()) object["encoded_opaque_state"] = params.earlier;
  JsonMembers members(body);
  std::string text = begin_of(body, members.begin(), object.dump());
  while (members.next()) {
    if (std::ranges::find(kOfAnswers, members.key()) != std::end(kOfAnswers)) continue;
    text += ',';
    text += members.member();
  }
  text += '}';
  return text;
}

std::string generation_body(std::string_view body, std::string_view params) {
  const size_t begin = JsonMembers(body).begin();
  std::string text = begin_of(body, begin, params);
  text += ',';
  text += body.substr(begin);
  return text;
}

std::string generation_params(uint64_t request_id, const std::string& state, ScheduleStyle style) {
  return json({{"request_type", "generation_only"},
               {"disagg_request_id", request_id},
               {"ctx_request_id", request_id},
               {"encoded_opaque_state", state},
               {"schedule_style", name_of(style)}})
      .dump();
}

std::optional<std::string> generation_params_of(std::string_view reply) {
  json whole = json::parse(reply, nullptr, false);
  if (!whole.is_object()) return std::nullopt;
  // Of the API's own place for it: a choice, or else the answer itself.
  const auto choices = whole.find("choices");
  const bool has_choice = choices != whole.end() && choices->is_array() && !choices->empty() &&
                          choices->front().is_object();
  json& answer = has_choice ? choices->front() : whole;
  const auto params = answer.find(kParams);
  if (params == answer.end() || !params->is_object()) return std::nullopt;
  (*params)["request_type"] = "generation_only";
  return params->dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace wideep::server
