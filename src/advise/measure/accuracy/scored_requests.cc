// SPDX-License-Identifier: Apache-2.0
#include "measure/accuracy/scored_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json_parse.h"

namespace wideep::measure {
namespace {

using nlohmann::json;

constexpr const char* kFile = "the result of lm_eval's client";

Status wrong_file(const std::string& where, const char* expected) {
  return failed(fmt::format("{}: {}: expected {}", kFile, where, expected));
}

Result<ScoredRequest> parse_request(const json& from, const std::string& where) {
  ScoredRequest request;
  if (!from.is_object() || !from.contains("prompt") || !from.value("text", json()).is_string()) {
    return wrong_file(where, "an object with prompt and text");
  }
  request.prompt = from["prompt"];
  request.text = from["text"];
  const json logprobs = from.value("token_logprobs", json::array());
  const json tops = from.value("top_logprobs", json::array());
  if (!logprobs.is_array() || !tops.is_array() || logprobs.size() != tops.size()) {
    return wrong_file(where, "as many token_logprobs as top_logprobs");
  }
  for (const json& each : logprobs) {
    if (!each.is_null() && !each.is_number()) {
      return wrong_file(where + ".token_logprobs", "numbers");
    }
    request.logprobs.push_back(each.is_null() ? std::nullopt : std::optional(each.get<double>()));
  }
  for (const json& each : tops) {
    auto& likely = request.top_logprobs.emplace_back();
    if (each.is_null()) continue;
    if (!each.is_object()) return wrong_file(where + ".top_logprobs", "objects");
    for (const auto& [token, logprob] : each.items()) {
      if (!logprob.is_number()) return wrong_file(where + ".top_logprobs", "numbers");
      likely.emplace_back(token, logprob.get<double>());
    }
  }
  return request;
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}
bool same_bits(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || same_bits(*a, *b));
}
bool same_bits(const std::vector<std::pair<std::string, double>>& a,
               const std::vector<std::pair<std::string, double>>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && same_bits(x.second, y.second);
  });
}

// With all the digits that tell two values apart.
std::string text_of(const std::optional<double>& logprob) {
  return logprob ? fmt::format("{}", *logprob) : "none";
}
std::string text_of(const std::vector<std::pair<std::string, double>>& likely) {
  std::string text;
  for (const auto& [token, logprob] : likely) {
    text +=
        fmt::format("{}\"{}\" {}", text.empty() ? "" : ", ", base::printable(token, 20), logprob);
  }
  return text.empty() ? "none" : text;
}

// "request 3 of 96 (17 tokens, "The old man …")"
std::string name_of(const Evaluation& evaluation, size_t index) {
  const ScoredRequest& request = evaluation.requests[index];
  const size_t length = request.prompt.size();
  return fmt::format("request {} of {} ({}\"{}\")", index, evaluation.requests.size(),
                     request.prompt.is_array() ? fmt::format("{} tokens, ", length) : "",
                     base::printable(request.text, 60));
}

}  // namespace

int64_t Evaluation::num_logprobs() const {
  int64_t number = 0;
  for (const ScoredRequest& request : requests) {
    number +=
        std::ranges::count_if(request.logprobs, [](const auto& each) { return each.has_value(); });
  }
  return number;
}

Result<Evaluation> parse_evaluation(const std::string& text) {
  WIDEEP_TRY_ASSIGN(const json file, formats::parse_json(text, kFile));
  if (!file.is_object() || !file.value("requests", json()).is_array() ||
      !file.value("table", json()).is_string() || !file.value("version", json()).is_string() ||
      !file.value("results", json()).is_object()) {
    return wrong_file("it", "an object with version, table, results and requests");
  }
  Evaluation evaluation{.version = file["version"],
                        .table = file["table"],
                        .results = file["results"],
                        .requests = {}};
  for (size_t i = 0; i < file["requests"].size(); ++i) {
    WIDEEP_TRY_ASSIGN(ScoredRequest request,
                      parse_request(file["requests"][i], fmt::format("requests[{}]", i)));
    evaluation.requests.push_back(std::move(request));
  }
  return evaluation;
}

Status check_same_bits(const NamedEvaluation& first, const NamedEvaluation& other) {
  const auto& expected = first.evaluation.requests;
  const auto& found = other.evaluation.requests;
  if (expected.size() != found.size()) {
    return failed(fmt::format("{}: expected {} requests as with {}, found {}", other.layout,
                              expected.size(), first.layout, found.size()));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const ScoredRequest &a = expected[i], &b = found[i];
    const auto differs = [&](const std::string& what, const std::string& as,
                             const std::string& is) {
      return failed(fmt::format("{}: {}: expected {} {} as with {}, found {} with {}",
                                name_of(first.evaluation, i), what,
                                what.starts_with("token") ? "the log-probability" : "the same,", as,
                                first.layout, is, other.layout));
    };
    if (a.prompt != b.prompt) return differs("its prompt", a.prompt.dump(), b.prompt.dump());
    if (a.logprobs.size() != b.logprobs.size()) {
      return differs("its number of log-probabilities", std::to_string(a.logprobs.size()),
                     std::to_string(b.logprobs.size()));
    }
    for (size_t t = 0; t < a.logprobs.size(); ++t) {
      if (!same_bits(a.logprobs[t], b.logprobs[t])) {
        return differs(fmt::format("token {}", t), text_of(a.logprobs[t]), text_of(b.logprobs[t]));
      }
      if (!same_bits(a.top_logprobs[t], b.top_logprobs[t])) {
        return differs(fmt::format("token {}, likely tokens", t), text_of(a.top_logprobs[t]),
                       text_of(b.top_logprobs[t]));
      }
    }
    if (a.text != b.text) {
      return differs("its text", base::printable(a.text, 200), base::printable(b.text, 200));
    }
  }
  return {};
}

}  // namespace wideep::measure
