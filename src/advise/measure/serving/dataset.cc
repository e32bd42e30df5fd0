// SPDX-License-Identifier: Apache-2.0
//
// Lengths and tokens are drawn from one generator, request by request: a seed stands for one
// dataset. Numbers of a file are checked before they become narrower, since JSON has integers of
// any size; whether the model has a token is known only with the model. An error gets its file and
// line in one place, for_each_record().
#include "measure/serving/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::measure {
namespace {

using nlohmann::json;
using Random = std::mt19937_64;

constexpr int kMaxTokens = 1 << 24;

int draw(const Length& length, Random& rng) {
  if (const auto* uniform = std::get_if<UniformLength>(&length)) {
    return std::uniform_int_distribution<int>(uniform->min, uniform->max)(rng);
  }
  const auto& [mean, stdev] = std::get<NormalLength>(length);
  const double value = stdev > 0 ? std::normal_distribution<double>(mean, stdev)(rng) : mean;
  return static_cast<int>(std::clamp(std::ceil(value), 1.0, double{kMaxTokens}));
}

// What trtllm-bench writes for models that wideep does not have. Leaving it out would measure
// something else.
Status refuse_foreign(const json& line) {
  constexpr std::pair<const char*, const char*> kForeign[] = {
      {"lora_request", "there are no LoRA adapters"},
      {"media_paths", "only text is supported"},
      {"turns", "only single turns are supported"}};
  for (const auto& [key, why] : kForeign) {
    if (!line.contains(key) || line[key].is_null()) continue;
    return invalid_input(fmt::format("{}: {}; leave the key out", key, why));
  }
  return {};
}

Result<DatasetRequest> request_of(const json& line) {
  WIDEEP_TRY(refuse_foreign(line));
  DatasetRequest request;
  const json ids = line.value("input_ids", json()), prompt = line.value("prompt", json());
  if (ids.is_array() && !ids.empty()) {
    std::vector<int32_t> tokens;
    for (const json& id : ids) {
      if (!id.is_number_integer()) return invalid_input("input_ids: expected integers");
      constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
      const bool fits = id.is_number_unsigned() && id.get<uint64_t>() <= uint64_t{kMaxId};
      if (!fits) {
        return invalid_input(
            fmt::format("input_ids[{}]: expected a token id from 0 to {}, found {}", tokens.size(),
                        kMaxId, formats::json_text(id)));
      }
      tokens.push_back(id.get<int32_t>());
    }
    request.prompt = std::move(tokens);
  } else if (prompt.is_string()) {
    request.prompt = prompt.get<std::string>();
  } else {
    return invalid_input("expected \"prompt\" (a string) or \"input_ids\" (a list)");
  }
  const json count =
      line.contains("output_tokens") ? line["output_tokens"] : line.value("output_length", json());
  const bool fits = count.is_number_unsigned() && count.get<uint64_t>() >= 1 &&
                    count.get<uint64_t>() <= uint64_t{kMaxTokens};
  if (!fits) {
    return invalid_input(fmt::format("output_tokens: expected an integer from 1 to {}, found {}",
                                     kMaxTokens, formats::describe(count)));
  }
  request.output_tokens = count.get<int>();
  return request;
}

}  // namespace

Result<std::vector<DatasetRequest>> read_dataset(const std::string& path) {
  std::vector<DatasetRequest> requests;
  WIDEEP_TRY(for_each_record(path, [&](const json& line) -> Result<bool> {
               WIDEEP_TRY_ASSIGN(DatasetRequest request, request_of(line));
               requests.push_back(std::move(request));
               return true;
             }).status());
  if (requests.empty()) return invalid_input(path + ": has no request");
  return requests;
}

std::string dataset_text(const std::vector<DatasetRequest>& requests) {
  std::string text;
  for (size_t i = 0; i < requests.size(); ++i) {
    nlohmann::ordered_json line = {{"task_id", i}};
    const bool is_text = std::holds_alternative<std::string>(requests[i].prompt);
    std::visit([&](const auto& prompt) { line[is_text ? "prompt" : "input_ids"] = prompt; },
               requests[i].prompt);
    line["output_tokens"] = requests[i].output_tokens;
    text += formats::json_text(line) + "\n";
  }
  return text;
}

Status write_dataset(const std::string& path, const std::vector<DatasetRequest>& requests) {
  return formats::write_file(path, dataset_text(requests));
}

std::vector<DatasetRequest> random_dataset(const RandomDataset& options) {
  Random rng(options.seed);
  std::vector<DatasetRequest> requests;
  for (int i = 0; i < options.count; ++i) {
    std::vector<int32_t> ids(static_cast<size_t>(draw(options.input, rng)));
    for (int32_t& id : ids) {
      id = options.min_id + static_cast<int32_t>(rng() % static_cast<uint64_t>(options.num_ids));
    }
    requests.push_back({std::move(ids), draw(options.output, rng)});
  }
  return requests;
}

namespace {

Result<std::string> text_under(const json& record, const std::string& key) {
  const json text = record.value(key, json());
  if (text.is_string()) return text.get<std::string>();
  return invalid_input(
      fmt::format("expected a string under the key \"{}\"{}", key,
                  text.is_array() ? ", found a list (several turns are not supported)" : ""));
}

// The text of a request, with what stands before it.
Result<std::string> input_of(const RealDataset& options, const json& record) {
  WIDEEP_TRY_ASSIGN(std::string text, text_under(record, options.key));
  std::string before = options.prompt;
  if (!options.prompt_key.empty()) {
    WIDEEP_TRY_ASSIGN(before, text_under(record, options.prompt_key));
  }
  return before.empty() ? text : before + " " + text;
}

}  // namespace

Result<std::vector<DatasetRequest>> real_dataset(const RealDataset& options,
                                                 const tokenizer::Tokenizer& tokenizer) {
  Random rng(options.seed);
  std::vector<DatasetRequest> requests;
  bool has_texts = false;
  const auto take = [&](const json& record) -> Result<bool> {
    WIDEEP_TRY_ASSIGN(const std::string text, input_of(options, record));
    std::vector<int32_t> ids = tokenizer.encode(text);
    has_texts = has_texts || !ids.empty();
    const bool fits = options.max_input == 0 || static_cast<int>(ids.size()) <= options.max_input;
    if (fits && !ids.empty()) {
      int output = 0;
      if (options.output_key.empty()) {
        output = draw(options.output, rng);
      } else {
        WIDEEP_TRY_ASSIGN(const std::string golden, text_under(record, options.output_key));
        output = std::max(1, static_cast<int>(tokenizer.encode(golden).size()));
      }
      requests.push_back({std::move(ids), output});
    }
    return options.count == 0 || static_cast<int>(requests.size()) < options.count;
  };
  WIDEEP_TRY_ASSIGN(const std::vector<std::string> files, record_files(options.source));
  for (const std::string& file : files) {
    WIDEEP_TRY_ASSIGN(const bool more, for_each_record(file, take));
    if (!more) break;
  }
  if (!requests.empty()) return requests;
  if (!has_texts) {
    return invalid_input(
        fmt::format("{}: expected lines with a text under the key \"{}\", found none or empty ones",
                    options.source.path, options.key));
  }
  return invalid_input(
      fmt::format("{}: no text of at most {} tokens", options.source.path, options.max_input));
}

}  // namespace wideep::measure
