// SPDX-License-Identifier: Apache-2.0
//
// The type is read first, then each type's keys by a function of its own. Keys of another type are
// refused, not ignored, because a value that is set and has no effect is a mistake in the file.
// AUTO becomes what TensorRT-LLM would choose, so that nothing after this knows that type.
#include "parallel/speculative_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "base/printable.h"

namespace wideep::parallel {
namespace {

using formats::IntegerRange;
using formats::YamlMap;

constexpr int64_t kMaxDrafts = 64;  // no drafter is right about so many
constexpr int64_t kMaxRequests = int64_t{1} << 20;
constexpr IntegerRange kDraftLengths{.min = 1, .max = kMaxDrafts};
constexpr std::string_view kType = "decoding_type";
constexpr std::string_view kLength = "max_draft_len";

constexpr std::array kTypes = {"NGram", "SA", "MTP", "AUTO", "auto"};
constexpr std::array kOthers = {"Eagle",  "Eagle3",    "DraftTarget",   "PARD",     "DFlash",
                                "Medusa", "Lookahead", "User_Provided", "SaveState"};

// A type that is read; "" after an error.
std::string take_type(YamlMap& map) {
  const std::string found = map.string_or(kType, "");
  if (std::ranges::find(kTypes, found) != kTypes.end()) return found;
  const std::string types = fmt::format("{}", fmt::join(kTypes, ", "));
  if (found.empty()) {
    map.complain(kType, fmt::format("missing; expected one of {}", types));
  } else if (std::ranges::find(kOthers, found) != kOthers.end()) {
    map.complain(kType, fmt::format("{} is not supported; expected one of {}", found, types));
  } else {
    map.complain(kType,
                 fmt::format("expected one of {}, found '{}'", types, base::printable(found, 60)));
  }
  return "";
}

// TensorRT-LLM: the key 1 is there with max_draft_len, and no value is larger; 0 drafts nothing.
std::map<int64_t, int64_t> take_schedule(YamlMap& map, int64_t max_draft_len) {
  constexpr std::string_view kKey = "draft_len_schedule";
  std::map<int64_t, int64_t> schedule;
  if (!map.has(kKey)) return schedule;
  YamlMap entries = map.map(kKey);
  for (const std::string& key : entries.keys()) {
    int64_t batch = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), batch);
    if (error != std::errc() || end != key.data() + key.size() || batch < 1) {
      entries.complain(key, "expected a batch size, an integer of at least 1, as the key");
      return schedule;
    }
    schedule[batch] = entries.integer(key, {.min = 0, .max = max_draft_len});
  }
  const auto one = schedule.find(1);
  if (one == schedule.end() || one->second != max_draft_len) {
    map.complain(kKey, fmt::format("expected an entry 1: {} ({}) for the smallest batches",
                                   max_draft_len, kLength));
  }
  return schedule;
}

void take_acceptance(YamlMap& map, SpeculativeConfig* config) {
  constexpr std::string_view kWindow = "acceptance_window",
                             kThreshold = "acceptance_length_threshold";
  if (map.has(kWindow)) {
    config->acceptance_window = map.integer(kWindow, {.min = 1, .max = kMaxRequests});
  }
  config->acceptance_length_threshold =
      map.number_or(kThreshold, 0.0, {.min = 0.0, .max = kMaxDrafts + 1.0});
  if (map.has(kWindow) != map.has(kThreshold)) {
    map.complain(map.has(kWindow) ? kWindow : kThreshold,
                 "has no effect alone; set both acceptance_window and acceptance_length_threshold");
  }
}

// Keys that only the n-gram drafter has.
void take_ngram(YamlMap& map, const std::string& type, SpeculativeConfig* config,
                std::vector<std::string>* notes) {
  const bool reads = type == "NGram";
  for (const char* key :
       {"max_matching_ngram_size", "is_keep_all", "is_use_oldest", "is_public_pool"}) {
    if (map.has(key) && !reads && !type.empty()) {
      map.complain(key, fmt::format("expected {} NGram beside it, found {}", kType, type));
    }
  }
  config->max_matching_ngram_size =
      map.integer_or("max_matching_ngram_size", config->max_matching_ngram_size, kDraftLengths);
  if (!map.boolean_or("is_keep_all", true)) {
    notes->push_back(
        "speculative_config.is_keep_all: false has no effect, as in TensorRT-LLM: a longer match "
        "replaces shorter ones either way");
  }
  config->is_use_oldest = map.boolean_or("is_use_oldest", true);
  config->is_public_pool = map.boolean_or("is_public_pool", true);
}

void refuse_beside(YamlMap& map, std::initializer_list<const char*> keys, const char* reason) {
  for (const char* key : keys) {
    if (map.has(key)) map.complain(key, reason);
  }
}

std::optional<RelaxedAcceptance> take_relaxed(YamlMap& map) {
  constexpr const char* kUse = "use_relaxed_acceptance_for_thinking";
  const auto tokens = IntegerRange{.min = 0, .max = std::numeric_limits<int32_t>::max()};
  RelaxedAcceptance relaxed;
  const bool uses = map.boolean_or(kUse, false);
  if (!uses) {
    refuse_beside(
        map,
        {"relaxed_topk", "relaxed_delta", "begin_thinking_phase_token", "end_thinking_phase_token"},
        "has no effect without use_relaxed_acceptance_for_thinking: true");
  }
  relaxed.topk = map.integer_or("relaxed_topk", relaxed.topk, {.min = 1, .max = kMaxRequests});
  relaxed.delta = map.number_or("relaxed_delta", relaxed.delta, {.min = 0.0, .max = 1.0});
  relaxed.begin_token = map.integer_or("begin_thinking_phase_token", relaxed.begin_token, tokens);
  relaxed.end_token = map.integer_or("end_thinking_phase_token", relaxed.end_token, tokens);
  return uses ? std::optional(relaxed) : std::nullopt;
}

// Keys of the prediction layer. The number of drafts is TensorRT-LLM's num_nextn_predict_layers.
void take_mtp(YamlMap& map, SpeculativeConfig* config, std::vector<std::string>* notes) {
  constexpr const char* kLayers = "num_nextn_predict_layers";
  config->type = SpeculativeConfig::Type::kMtp;
  config->max_draft_len = map.integer_or(kLayers, 1, kDraftLengths);
  if (map.has(kLength) && map.integer(kLength, kDraftLengths) != config->max_draft_len) {
    map.complain(kLength, fmt::format("expected {} ({}), the number of drafts of MTP",
                                      config->max_draft_len, kLayers));
  }
  config->use_mtp_vanilla = map.boolean_or("use_mtp_vanilla", false);
  if (!map.boolean_or("mtp_eagle_one_model", true)) {
    notes->push_back(
        "speculative_config.mtp_eagle_one_model: false has no effect: the prediction layer is a "
        "part of the model");
  }
  if (map.boolean_or("use_sa_spec", false)) {
    config->sa_spec_threshold =
        map.integer_or("sa_spec_threshold", 4, {.min = 1, .max = kMaxRequests});
  } else {
    refuse_beside(map, {"sa_spec_threshold", "max_pool_bytes"},
                  "has no effect without use_sa_spec: true");
  }
  config->relaxed = take_relaxed(map);
  if (config->relaxed && config->relaxed->topk == 1) {
    map.complain("relaxed_topk",
                 "expected at least 2 with use_relaxed_acceptance_for_thinking: 1 relaxes nothing");
  }
  if (config->relaxed) {
    notes->push_back(
        "speculative_config.use_relaxed_acceptance_for_thinking changes answers: between the "
        "thinking tokens drafts are kept that the model would not have chosen");
  }
}

// TensorRT-LLM's table (pull request 6232).
bool choose_by_concurrency(std::optional<int64_t> max_batch_size, SpeculativeConfig* config,
                           std::vector<std::string>* notes) {
  if (!max_batch_size || *max_batch_size > 32) {
    notes->push_back(fmt::format(
        "speculative_config: decoding_type AUTO drafts nothing with a max_batch_size of more than "
        "32, found {}",
        max_batch_size ? std::to_string(*max_batch_size) : "the default"));
    return false;
  }
  const bool few = *max_batch_size <= 4;
  config->max_draft_len = few ? 5 : 3;
  config->max_matching_ngram_size = few ? 3 : 5;
  return true;
}

}  // namespace

std::optional<SpeculativeConfig> take_speculative(YamlMap map,
                                                  std::optional<int64_t> max_batch_size,
                                                  std::vector<std::string>* notes) {
  SpeculativeConfig config;
  const std::string type = take_type(map);
  take_ngram(map, type, &config, notes);
  if (type == "SA") config.type = SpeculativeConfig::Type::kSuffix;
  if (type == "auto") config.type = SpeculativeConfig::Type::kAuto;
  bool drafts = true;
  if (type == "AUTO") {
    if (map.has(kLength)) map.complain(kLength, "AUTO chooses it; remove the key");
    drafts = choose_by_concurrency(max_batch_size, &config, notes);
  } else if (type == "MTP") {
    take_mtp(map, &config, notes);
  } else if (type == "auto") {
    config.max_draft_len = map.integer_or(kLength, 8, kDraftLengths);
  } else {
    config.max_draft_len = map.integer(kLength, kDraftLengths);
  }
  if (map.has("max_concurrency")) {
    config.max_concurrency = map.integer("max_concurrency", {.min = 1, .max = kMaxRequests});
  }
  config.draft_len_schedule = take_schedule(map, config.max_draft_len);
  take_acceptance(map, &config);
  config.max_pool_bytes = map.integer_or("max_pool_bytes", config.max_pool_bytes,
                                         {.min = 4096, .max = int64_t{1} << 40});
  if (map.has("allow_advanced_sampling")) {
    map.boolean_or("allow_advanced_sampling", false);
    notes->push_back(
        "speculative_config.allow_advanced_sampling has no effect: drafts change no sampled token");
  }
  map.refuse_unknown_keys();
  return drafts ? std::optional(config) : std::nullopt;
}

}  // namespace wideep::parallel
