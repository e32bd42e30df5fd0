// SPDX-License-Identifier: Apache-2.0
#include "api/token_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/generation_fields.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxStopTokens = 128;
constexpr BodyReader::TextLimits kWords{.max = 1024, .max_bytes = 256};

std::vector<int32_t> read_ids(BodyReader& body, const char* name, size_t max) {
  const ordered_json& list = body.take(name);
  std::vector<int32_t> ids;
  if (list.is_null()) return ids;
  const auto is_id = [](const ordered_json& each) {
    return each.is_number_unsigned() && each.get<uint64_t>() <= INT32_MAX;
  };
  if (!list.is_array() || list.size() > max || !std::ranges::all_of(list, is_id)) {
    body.complain(name, fmt::format("expected a list of at most {} token ids, found {}", max,
                                    BodyReader::shown(list)));
    return ids;
  }
  for (const ordered_json& each : list) ids.push_back(each.get<int32_t>());
  return ids;
}

// As many tokens as the vocabulary has may be allowed; a list may repeat them a million times.
void read_allowed(BodyReader& body, GenerationOptions& options) {
  constexpr const char* kName = "allowed_token_ids";
  std::vector<int32_t>& allowed = options.rules.allowed;
  allowed = read_ids(body, kName, kMaxTokens);
  std::ranges::sort(allowed);
  allowed.erase(std::ranges::unique(allowed).begin(), allowed.end());
  if (allowed.empty() && body.take(kName).is_array()) {
    body.complain(kName, "expected some token ids, found none");
  }
  if (!allowed.empty() && options.format) {
    body.complain(kName, fmt::format("beside {}: expected one of them", options.format->place));
  }
}

void read_prompt_logprobs(BodyReader& body, GenerationOptions& options) {
  constexpr const char* kName = "prompt_logprobs";
  const auto count = body.integer(kName);
  if (!count) return;
  options.prompt_logprobs = static_cast<int>(*count);
  if (options.stream) {
    body.complain(kName, "a stream has none: expected stream: false, or leave it out");
  }
  if (options.format) {
    body.complain(kName, fmt::format("beside {}: expected one of them", options.format->place));
  }
}

}  // namespace

void read_token_fields(BodyReader& body, GenerationOptions& options) {
  constexpr const char* kMin = "min_tokens";
  options.rules.min_tokens = static_cast<int>(body.integer(kMin).value_or(0));
  if (options.max_tokens && options.rules.min_tokens > *options.max_tokens) {
    body.complain(kMin,
                  fmt::format("expected at most {}, as {} has it, found {}", *options.max_tokens,
                              options.max_tokens_name, options.rules.min_tokens));
  }
  options.rules.stop_tokens = read_ids(body, "stop_token_ids", kMaxStopTokens);
  read_allowed(body, options);
  options.bad_words = body.texts("bad_words", kWords);
  options.includes_stop = body.flag("include_stop_str_in_output");
  options.skips_special_tokens = body.flag("skip_special_tokens", true);
  options.returns_token_ids = body.flag("return_token_ids");
  read_prompt_logprobs(body, options);
}

void read_thought_limit(BodyReader& body, const std::string& param, const ordered_json& value,
                        GenerationOptions& options) {
  if (value.is_null()) return;
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxTokens) {
    return body.complain(param, fmt::format("expected a number of tokens up to {}, found {}",
                                            kMaxTokens, BodyReader::shown(value)));
  }
  options.rules.thought.max_tokens = value.get<int>();
  options.thought_name = param;
}

}  // namespace wideep::server
