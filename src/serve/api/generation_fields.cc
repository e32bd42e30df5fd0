// SPDX-License-Identifier: Apache-2.0
//
// Fields that several bodies have are read here, if the body's table has them (knows), so that they
// mean the same in every API. What a body does not say is the model's files' to say, then OpenAI's.
// Variables that the server sets for a template are refused, since they would be overwritten
// without a word.
#include "api/generation_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "api/shared_prompt_fields.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// {"token id": bias}.
std::vector<engine::TokenBias> read_bias(BodyReader& body) {
  constexpr double kMaxBias = 100;  // OpenAI's
  std::vector<engine::TokenBias> biases;
  const ordered_json& value = body.take("logit_bias");
  if (value.is_null()) return biases;
  if (!value.is_object()) body.complain("logit_bias", "expected an object");
  for (const auto& [name, bias] : value.items()) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    const bool is_id = error == std::errc() && end == name.data() + name.size() && token >= 0;
    if (!is_id || !bias.is_number() || std::abs(bias.get<double>()) > kMaxBias) {
      body.complain(
          "logit_bias",
          fmt::format("expected token ids with numbers from {} to {}, found {}: {}", -kMaxBias,
                      kMaxBias, BodyReader::shown(ordered_json(name)), BodyReader::shown(bias)));
      return {};
    }
    biases.push_back({.token = token, .bias = bias.get<float>()});
  }
  return biases;
}

// "off" or false; "on", true or nothing: as the server does.
bool read_speculates(BodyReader& body) {
  const ordered_json& value = body.take("speculative");
  if (value.is_null() || value == true || value == "on") return true;
  if (value != false && value != "off") {
    body.complain("speculative", "expected \"on\" or \"off\"");
  }
  return false;
}

// vLLM refuses an empty one, too: a client that has lost its salt would share pages with everybody.
std::string read_cache_salt(BodyReader& body) {
  constexpr const char* kName = "cache_salt";
  std::string salt = body.string(kName);
  const bool is_given = body.take(kName).is_string();
  if (is_given && (salt.empty() || salt.size() > kMaxSaltBytes)) {
    body.complain(kName,
                  fmt::format("expected a text of 1 to {} bytes, found {} bytes; shorten it, "
                              "or leave it out to share pages with all that have none",
                              kMaxSaltBytes, salt.size()));
  }
  return salt;
}

}  // namespace

engine::SamplingParams sampling_without(const run::SamplingDefaults& defaults) {
  engine::SamplingParams sampling;
  sampling.temperature = 1.0f;  // OpenAI's
  defaults.apply(&sampling);
  return sampling;
}

void read_sampling(BodyReader& body, const run::SamplingDefaults& defaults,
                   GenerationOptions& options) {
  using engine::SamplingParams;
  constexpr std::pair<const char*, float SamplingParams::*> kNumbers[] = {
      {"temperature", &SamplingParams::temperature},
      {"top_p", &SamplingParams::top_p},
      {"min_p", &SamplingParams::min_p},
      {"presence_penalty", &SamplingParams::presence_penalty},
      {"frequency_penalty", &SamplingParams::frequency_penalty},
      {"repetition_penalty", &SamplingParams::repetition_penalty},
  };
  SamplingParams& sampling = options.engine_request.sampling;
  sampling = sampling_without(defaults);
  for (const auto& [name, value] : kNumbers) {
    if (!body.knows(name)) continue;
    if (const auto number = body.number(name)) sampling.*value = static_cast<float>(*number);
  }
  if (body.knows("logit_bias")) options.engine_request.bias = read_bias(body);
  // −1, as other servers have it: all tokens.
  if (const auto top_k = body.integer("top_k")) {
    sampling.top_k = static_cast<int>(std::max<int64_t>(0, *top_k));
  }
  if (!body.knows("seed")) return;
  if (const auto seed = body.integer("seed")) {
    options.has_seed = true;
    sampling.seed = static_cast<uint64_t>(*seed);
  }
}

void read_max_tokens(BodyReader& body, const char* name, GenerationOptions& options) {
  const auto max = body.integer(name);
  if (!max) return;
  options.max_tokens_name = name;
  options.max_tokens.reset();
  options.fills_context = *max == -1;
  if (*max == 0 && !options.echo) {
    body.complain(name, "expected 1 or more tokens, or -1 for all that the context has, found 0");
  }
  if (*max >= 0) options.max_tokens = static_cast<int>(*max);
}

void read_engine_fields(BodyReader& body, GenerationOptions& options) {
  engine::Request& request = options.engine_request;
  if (body.knows("ignore_eos")) request.ignore_eos = body.flag("ignore_eos");
  if (body.knows("speculative")) request.speculates = read_speculates(body);
  if (body.knows("cache_salt")) request.salt = read_cache_salt(body);
  if (body.knows(kTrtParams)) read_shared_prompt(body, options);
}

// What a template is given anyway would be taken no notice of.
ordered_json read_variables(BodyReader& body) {
  ordered_json variables = body.take("chat_template_kwargs");
  if (!variables.is_null() && !variables.is_object()) {
    body.complain("chat_template_kwargs", "expected an object");
  }
  if (!variables.is_object()) return {};
  if (variables.value("add_generation_prompt", ordered_json()) == true) {
    variables.erase("add_generation_prompt");  // as it is without
  }
  for (const char* name : {"add_generation_prompt", "messages", "tools", "documents", "bos_token",
                           "eos_token", "strftime_now"}) {
    if (variables.contains(name)) {
      body.complain(fmt::format("chat_template_kwargs.{}", name),
                    "is the server's to set; leave it out");
    }
  }
  return variables;
}

std::string read_effort(BodyReader& body, const std::string& param, const ordered_json& effort) {
  constexpr const char* kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (effort.is_null()) return "";
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) != std::end(kEfforts)) {
    return effort;
  }
  body.complain(param, fmt::format("expected {}, found {}", fmt::join(kEfforts, ", "),
                                   BodyReader::shown(effort)));
  return "";
}

}  // namespace wideep::server
