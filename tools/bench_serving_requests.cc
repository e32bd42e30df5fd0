// SPDX-License-Identifier: Apache-2.0
//
// ShareGPT's conversations are chosen as benchmark_serving does: the first two turns, of 4 tokens at
// least, prompts of at most 1024 and 2048 together. They are taken in the file's order, so that a
// run can be repeated without its random generator.
#include "bench_serving_requests.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/try.h"
#include "measure/serving/text_records.h"
#include "tokenizer/tokenizer.h"

namespace wideep::tools {
namespace {

using measure::DatasetRequest;
using nlohmann::json;
using Requests = std::vector<DatasetRequest>;

class Maker {
 public:
  Maker(const ServingRequestOptions& options, std::optional<tokenizer::Tokenizer> tokenizer)
      : options_(options), tokenizer_(std::move(tokenizer)) {}

  Result<Requests> make() {
    Requests requests;
    if (options_.kind == "random") {
      requests = random();
    } else if (options_.path.empty()) {
      return invalid_input(
          fmt::format("--dataset-path: expected the file of the data set {}, found none "
                      "(nothing is downloaded)",
                      options_.kind));
    } else if (options_.kind == "wideep") {
      WIDEEP_TRY_ASSIGN(requests, measure::read_dataset(options_.path));
      if (static_cast<size_t>(options_.num_prompts) < requests.size()) {
        requests.resize(static_cast<size_t>(options_.num_prompts));
      }
    } else {
      WIDEEP_TRY_ASSIGN(requests, from_file());
    }
    WIDEEP_TRY(convert(&requests));
    return requests;
  }

 private:
  Requests random() const {
    const auto around = [&](int length) {
      return measure::UniformLength{
          .min = std::max(1, static_cast<int>(length * (1.0 - options_.range_ratio))),
          .max = std::max(1, static_cast<int>(length * (1.0 + options_.range_ratio)))};
    };
    measure::RandomDataset random{.count = options_.num_prompts,
                                  .input = around(options_.input_tokens),
                                  .output = around(options_.output_tokens),
                                  .min_id = options_.min_id,
                                  .num_ids = options_.num_ids,
                                  .seed = options_.seed};
    if (options_.range_ratio == 0.0) {
      random.input = measure::NormalLength{static_cast<double>(options_.input_tokens), 0};
      random.output = measure::NormalLength{static_cast<double>(options_.output_tokens), 0};
    }
    Requests requests = measure::random_dataset(random);
    if (options_.prefix_tokens == 0) return requests;
    random.count = 1;
    random.input = measure::NormalLength{static_cast<double>(options_.prefix_tokens), 0};
    random.seed = ~options_.seed;  // not the beginning of the first prompt
    const auto prefix = std::get<std::vector<int32_t>>(measure::random_dataset(random)[0].prompt);
    for (DatasetRequest& request : requests) {
      auto& ids = std::get<std::vector<int32_t>>(request.prompt);
      ids.insert(ids.begin(), prefix.begin(), prefix.end());
    }
    return requests;
  }

  Result<Requests> from_file() {
    if (options_.kind == "sharegpt" && !tokenizer_) {
      return invalid_input(
          "--tokenizer: expected a model directory, whose tokenizer counts the tokens of "
          "conversations, found none");
    }
    Requests requests;
    WIDEEP_TRY(measure::for_each_record(options_.path, [&](const json& record) -> Result<bool> {
                 WIDEEP_TRY_ASSIGN(
                     std::optional<DatasetRequest> request,
                     options_.kind == "sharegpt" ? of_sharegpt(record) : of_custom(record));
                 if (request) requests.push_back(std::move(*request));
                 return requests.size() < static_cast<size_t>(options_.num_prompts);
               }).status());
    if (!requests.empty()) return requests;
    return invalid_input(
        fmt::format("{}: has no request of the data set {}", options_.path, options_.kind));
  }

  // {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}
  Result<std::optional<DatasetRequest>> of_sharegpt(const json& record) const {
    const json turns = record.value("conversations", json());
    if (!turns.is_array()) return invalid_input("conversations: expected a list");
    if (turns.size() < 2) return std::optional<DatasetRequest>();
    std::string texts[2];
    for (size_t i = 0; i < 2; ++i) {
      const json text = turns[i].is_object() ? turns[i].value("value", json()) : json();
      if (!text.is_string()) {
        return invalid_input(fmt::format("conversations[{}].value: expected a string", i));
      }
      texts[i] = text.get<std::string>();
    }
    const auto prompt = static_cast<int>(tokenizer_->encode(texts[0]).size());
    const auto answer = static_cast<int>(tokenizer_->encode(texts[1]).size());
    const int wanted = options_.sharegpt_output_tokens;
    const int output = wanted > 0 ? wanted : answer;
    const bool fits =
        prompt >= 4 && (wanted > 0 || answer >= 4) && prompt <= 1024 && prompt + output <= 2048;
    if (!fits) return std::optional<DatasetRequest>();
    return std::optional(DatasetRequest{.prompt = std::move(texts[0]), .output_tokens = output});
  }

  // {"input": {"messages": [{"role": "user", "content": "…"}], "max_tokens": 5}}
  static Result<std::optional<DatasetRequest>> of_custom(const json& record) {
    const json input = record.value("input", json());
    const json messages = input.is_object() ? input.value("messages", json()) : json();
    if (!messages.is_array() || messages.empty()) {
      return invalid_input("input.messages: expected a list of messages");
    }
    std::string text;
    for (const json& message : messages) {
      const json content = message.is_object() ? message.value("content", json()) : json();
      if (!content.is_string()) return invalid_input("input.messages: expected texts as content");
      const std::string part = content.get<std::string>();
      if (!text.empty() && !part.empty()) text += "\n\n";
      text += part;
    }
    const json tokens = input.value("max_tokens", json());
    if (!tokens.is_number_unsigned() || tokens.get<uint64_t>() < 1 ||
        tokens.get<uint64_t>() > (1u << 24)) {
      return invalid_input("input.max_tokens: expected an integer from 1 to 16777216");
    }
    if (text.empty()) return invalid_input("input.messages: have no text");
    return std::optional(
        DatasetRequest{.prompt = std::move(text), .output_tokens = tokens.get<int>()});
  }

  Status convert(Requests* requests) const {
    for (DatasetRequest& request : *requests) {
      auto* text = std::get_if<std::string>(&request.prompt);
      const bool changes = text != nullptr ? options_.as_ids : options_.as_texts;
      if (!changes) continue;
      if (!tokenizer_) {
        return invalid_input(fmt::format(
            "--tokenizer: expected a model directory, {}, found none",
            text != nullptr ? "as --tokenize-on-client makes ids of texts"
                            : "as --backend openai-chat sends texts, and these prompts are ids"));
      }
      if (text != nullptr) {
        request.prompt = tokenizer_->encode(*text);
      } else {
        request.prompt = tokenizer_->decode(std::get<std::vector<int32_t>>(request.prompt));
      }
    }
    return {};
  }

  const ServingRequestOptions& options_;
  std::optional<tokenizer::Tokenizer> tokenizer_;
};

}  // namespace

Result<std::vector<DatasetRequest>> serving_requests(const ServingRequestOptions& options) {
  std::optional<tokenizer::Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) {
    WIDEEP_TRY_ASSIGN(tokenizer, tokenizer::Tokenizer::read(options.tokenizer));
  }
  return Maker(options, std::move(tokenizer)).make();
}

}  // namespace wideep::tools
