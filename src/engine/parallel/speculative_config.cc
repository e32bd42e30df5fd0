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
#include "parallel/config_keys.h"

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
constexpr std::array kOthers = {"Eagle",     "Eagle3",       "DraftTarget", "PARD",
                                "DFlash",    "Medusa",       "Lookahead",   "User_Provided",
                                "SaveState", "Draft_Target", "DSpark"};

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

// The file's entries, batch size → drafts. TensorRT-LLM: the smallest size has max_draft_len, and no
// value is larger; 0 drafts nothing.
std::map<int64_t, int64_t> take_entries(YamlMap& map, std::string_view key, int64_t max_draft_len) {
  std::map<int64_t, int64_t> schedule;
  YamlMap entries = map.map(key);
  for (const std::string& size : entries.keys()) {
    int64_t batch = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), batch);
    if (error != std::errc() || end != size.data() + size.size() || batch < 1 ||
        batch > kMaxRequests) {
      entries.complain(size, "expected a batch size, an integer of at least 1, as the key");
      return {};
    }
    schedule[batch] = entries.integer(size, {.min = 0, .max = max_draft_len});
  }
  if (schedule.empty() || schedule.begin()->second != max_draft_len) {
    map.complain(
        key, fmt::format("expected an entry {}: {} ({}) for the smallest batches",
                         schedule.empty() ? 1 : schedule.begin()->first, max_draft_len, kLength));
  }
  return schedule;
}

// TensorRT-LLM has had two meanings. In the older one, which needs an entry 1, an entry holds from
// its batch size on. In the newer one it holds up to its size, and above the largest nothing is
// drafted; that becomes the older form.
std::map<int64_t, int64_t> take_schedule(YamlMap& map, int64_t max_draft_len) {
  constexpr std::string_view kKey = "draft_len_schedule";
  if (!map.has(kKey)) return {};
  const std::map<int64_t, int64_t> entries = take_entries(map, kKey, max_draft_len);
  if (entries.empty() || entries.contains(1)) return entries;
  std::map<int64_t, int64_t> schedule;
  int64_t first = 1;
  for (const auto& [last, length] : entries) {
    schedule[first] = length;
    first = last + 1;
  }
  schedule[first] = 0;
  return schedule;
}

// Two limits below which nothing is drafted any more: of drafts per step, over completed requests
// (TensorRT-LLM's older keys), and of the share of drafts that are right, over steps.
void take_acceptance(YamlMap& map, SpeculativeConfig* config) {
  constexpr std::string_view kWindow = "acceptance_window",
                             kThreshold = "acceptance_length_threshold",
                             kSteps = "acceptance_rate_window_size",
                             kRate = "acceptance_rate_threshold";
  if (map.has(kWindow)) {
    config->acceptance_window = map.integer(kWindow, {.min = 1, .max = kMaxRequests});
  }
  config->acceptance_length_threshold =
      map.number_or(kThreshold, 0.0, {.min = 0.0, .max = kMaxDrafts + 1.0});
  if (map.has(kWindow) != map.has(kThreshold)) {
    map.complain(map.has(kWindow) ? kWindow : kThreshold,
                 "has no effect alone; set both acceptance_window and acceptance_length_threshold");
  }
  const int64_t steps = map.integer_or(kSteps, 0, {.min = 0, .max = kMaxRequests});
  if (steps > 0) config->acceptance_rate_window = steps;  // 0: off
  config->acceptance_rate_threshold = map.number_or(kRate, 0.0, {.min = 0.0, .max = 1.0});
  if ((steps > 0) != (config->acceptance_rate_threshold > 0.0) &&
      map.has(kSteps) != map.has(kRate)) {
    map.complain(
        map.has(kSteps) ? kSteps : kRate,
        "has no effect alone; set both acceptance_rate_window_size and acceptance_rate_threshold");
  }
}

void take_global_pool(YamlMap& map, const char* where, std::vector<std::string>* notes) {
  constexpr const char* kGlobal = "enable_global_pool";
  if (map.has(kGlobal) && !map.boolean_or(kGlobal, false)) {
    notes->push_back(fmt::format(
        "{}.{}: false has no effect: the longest match may also be in an earlier request's text",
        where, kGlobal));
  }
  if (map.has("global_pool_size")) {
    map.integer("global_pool_size", {.min = 1, .max = kMaxRequests});
    notes->push_back(fmt::format(
        "{}.global_pool_size has no effect: max_pool_bytes is the limit of the texts", where));
  }
}

// Keys of the suffix automaton: its match is always the longest one.
void take_suffix(YamlMap& map, std::vector<std::string>* notes) {
  constexpr const char* kSize = "max_matching_ngram_size";
  if (const int64_t size = map.integer_or(kSize, -1); size != -1) {
    map.complain(kSize,
                 fmt::format("expected -1 (the longest match) with {} SA, found {}; {} NGram "
                             "has patterns of a fixed size",
                             kType, size, kType));
  }
  take_global_pool(map, "speculative_config", notes);
}

// Keys that only the n-gram drafter has.
void take_ngram(YamlMap& map, const std::string& type, SpeculativeConfig* config,
                std::vector<std::string>* notes) {
  const bool reads = type == "NGram";
  if (type == "SA") take_suffix(map, notes);
  for (const char* key : {"is_keep_all", "is_use_oldest", "is_public_pool"}) {
    if (map.has(key) && !reads && !type.empty()) {
      map.complain(key, fmt::format("expected {} NGram beside it, found {}", kType, type));
    }
  }
  if (type == "SA") return;
  if (map.has("max_matching_ngram_size") && !reads && !type.empty()) {
    map.complain("max_matching_ngram_size",
                 fmt::format("expected {} NGram or SA beside it, found {}", kType, type));
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

// Values that relax nothing are TensorRT-LLM's defaults, and leave the acceptance strict.
std::optional<RelaxedAcceptance> take_relaxed(YamlMap& map, std::vector<std::string>* notes) {
  constexpr const char* kUse = "use_relaxed_acceptance_for_thinking";
  const auto tokens = IntegerRange{.min = 0, .max = std::numeric_limits<int32_t>::max()};
  const RelaxedAcceptance strict;
  RelaxedAcceptance relaxed;
  relaxed.topk = map.integer_or("relaxed_topk", relaxed.topk, {.min = 1, .max = kMaxRequests});
  relaxed.delta = map.number_or("relaxed_delta", relaxed.delta, {.min = 0.0, .max = 1.0});
  relaxed.begin_token = map.integer_or("begin_thinking_phase_token", relaxed.begin_token, tokens);
  relaxed.end_token = map.integer_or("end_thinking_phase_token", relaxed.end_token, tokens);
  if (!map.boolean_or(kUse, false)) {
    const std::pair<const char*, bool> set[] = {
        {"relaxed_topk", relaxed.topk != strict.topk},
        {"relaxed_delta", relaxed.delta != strict.delta},
        {"begin_thinking_phase_token", relaxed.begin_token != strict.begin_token},
        {"end_thinking_phase_token", relaxed.end_token != strict.end_token}};
    for (const auto& [key, differs] : set) {
      if (differs) map.complain(key, fmt::format("has no effect without {}: true", kUse));
    }
    return std::nullopt;
  }
  if (relaxed.topk == 1) {
    notes->push_back(fmt::format(
        "speculative_config.{} has no effect with relaxed_topk 1, which keeps only the likeliest "
        "token",
        kUse));
    return std::nullopt;
  }
  notes->push_back(
      fmt::format("speculative_config.{} changes answers: between the thinking tokens drafts are "
                  "kept that the model would not have chosen",
                  kUse));
  return relaxed;
}

// Drafts of the suffix automaton beside those of the prediction layer: sa_config, or the older
// use_sa_spec with sa_spec_threshold.
void take_suffix_beside(YamlMap& map, SpeculativeConfig* config, std::vector<std::string>* notes) {
  constexpr const char *kConfig = "sa_config", *kUse = "use_sa_spec", *kOld = "sa_spec_threshold";
  const IntegerRange lengths{.min = 1, .max = kMaxRequests};
  const bool uses = map.boolean_or(kUse, false);
  if (map.has(kConfig)) {
    refuse_beside(map, {kUse, kOld}, "an older name; sa_config beside it says the same");
    YamlMap inner = map.map(kConfig);
    config->sa_spec_threshold = inner.integer_or("threshold", 4, lengths);
    take_global_pool(inner, "speculative_config.sa_config", notes);
    inner.refuse_unknown_keys();
  } else if (uses) {
    config->sa_spec_threshold = map.integer_or(kOld, 4, lengths);
  } else {
    refuse_beside(map, {kOld, "max_pool_bytes"}, "has no effect without sa_config");
  }
}

// Keys of the prediction layer. The number of drafts is max_draft_len; TensorRT-LLM's older name of
// it is num_nextn_predict_layers.
void take_mtp(YamlMap& map, SpeculativeConfig* config, std::vector<std::string>* notes) {
  constexpr const char* kLayers = "num_nextn_predict_layers";
  config->type = SpeculativeConfig::Type::kMtp;
  const int64_t layers = map.integer_or(kLayers, 1, kDraftLengths);
  config->max_draft_len = map.integer_or(kLength, layers, kDraftLengths);
  if (map.has(kLayers) && config->max_draft_len != layers) {
    map.complain(kLength, fmt::format("{} contradicts {} {}, the older name of the same; remove "
                                      "one of the two",
                                      config->max_draft_len, kLayers, layers));
  }
  config->use_mtp_vanilla = map.boolean_or("use_mtp_vanilla", false);
  if (!map.boolean_or("mtp_eagle_one_model", true)) {
    notes->push_back(
        "speculative_config.mtp_eagle_one_model: false has no effect: the prediction layer is a "
        "part of the model");
  }
  take_suffix_beside(map, config, notes);
  config->relaxed = take_relaxed(map, notes);
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
  if (map.has("max_total_draft_tokens") &&
      map.integer("max_total_draft_tokens", kDraftLengths) != config.max_draft_len) {
    map.complain("max_total_draft_tokens",
                 fmt::format("expected {} ({}): drafts are a chain, not a tree",
                             config.max_draft_len, kLength));
  }
  take_listed_keys(map, "speculative_config", notes);
  map.refuse_unknown_keys();
  return drafts ? std::optional(config) : std::nullopt;
}

}  // namespace wideep::parallel
