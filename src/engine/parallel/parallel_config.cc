// SPDX-License-Identifier: Apache-2.0
//
// take_*() read one map each and record errors in the document, so that one message names the first
// wrong key; check_consistent() comes after them and after the unset sizes are filled in, and
// compares settings with each other. Every map ends with refuse_unknown_keys().
//
// Keys of TensorRT-LLM that have no counterpart here are read, checked and noted by the table of
// config_keys.h, so that its files can be used as they are. A combination of settings without effect
// is an error: whoever wrote it expects something.
#include "parallel/parallel_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/yaml.h"
#include "parallel/config_keys.h"

namespace wideep::parallel {
namespace {

using formats::IntegerRange;
using formats::YamlMap;

constexpr int64_t kMaxTokens = int64_t{1} << 32;
constexpr int64_t kMaxIterationTokens = int64_t{1} << 20;  // the buffers have a row per token
constexpr int64_t kMaxPositions = (int64_t{1} << 31) - 1;  // as in config.json
constexpr IntegerRange kAtLeastOne{.min = 1, .max = kMaxTokens};
constexpr IntegerRange kAtLeastZero{.min = 0, .max = kMaxTokens};

constexpr std::array kCacheDtypes = {"AUTO", "BF16", "BFLOAT16", "FP8"};
constexpr std::array kCapacityPolicies = {"GUARANTEED_NO_EVICT", "MAX_UTILIZATION"};
constexpr std::array kRowDtypes = {"AUTO", "BF16", "FP8", "NVFP4"};
constexpr std::array kCombines = {"EXACT", "REDUCED"};
constexpr std::array kDispatchStrategies = {"AUTO", "PUSH", "ALL_GATHER"};
// Of a file for disaggregated serving: keys of the proxy beside those of all workers.
// disagg_cluster is of both.
constexpr auto kProxyKeys = std::to_array<std::string_view>(
    {"hostname", "port", "model", "max_retries", "return_perf_metrics", "perf_metrics_max_requests",
     "perf_metrics_output_dir", "context_servers", "generation_servers",
     "conditional_disagg_config", "otlp_config", "node_id", "schedule_style",
     "allow_request_chat_template", "gen_strip_message_history", "gen_tokids_ctxbytes",
     "num_workers", "disagg_coordinator_url"});

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// Reads one of the words, in upper or lower case. Returns the first word if the key is absent or
// wrong.
template <size_t N>
std::string take_word(YamlMap& map, const char* key, const std::array<const char*, N>& words) {
  const std::string found = map.string_or(key, words[0]);
  std::string word = upper(found);
  if (std::find(words.begin(), words.end(), word) != words.end()) return word;
  map.complain(key, fmt::format("expected one of {}, found '{}'", fmt::join(words, ", "),
                                base::printable(found, 60)));
  return words[0];
}

std::optional<int64_t> take_integer(YamlMap& map, const char* key, IntegerRange range) {
  if (!map.has(key)) return {};
  return map.integer(key, range);
}

int take_size(YamlMap& map, const char* key) {
  return static_cast<int>(map.integer_or(key, 1, {.min = 1, .max = kMaxRanks}));
}

// Reads a size that may be unset: absent or −1.
int take_moe_size(YamlMap& map, const char* key) {
  const int64_t size = map.integer_or(key, -1, {.min = -1, .max = kMaxRanks});
  if (size == 0) map.complain(key, "expected at least 1, or -1 for the automatic size, found 0");
  return static_cast<int>(size);
}

ParallelSizes take_sizes(YamlMap& root) {
  return {.tp = take_size(root, "tensor_parallel_size"),
          .pp = take_size(root, "pipeline_parallel_size"),
          .cp = take_size(root, "context_parallel_size"),
          .moe_tp = take_moe_size(root, "moe_tensor_parallel_size"),
          .moe_ep = take_moe_size(root, "moe_expert_parallel_size"),
          .moe_cluster = take_moe_size(root, "moe_cluster_parallel_size")};
}

AttentionDpConfig take_attention_dp(YamlMap map, std::vector<std::string>* notes) {
  AttentionDpConfig config;
  config.enable_balance = map.boolean_or("enable_balance", config.enable_balance);
  config.timeout_iters = map.integer_or("timeout_iters", config.timeout_iters, kAtLeastZero);
  config.batching_wait_iters =
      map.integer_or("batching_wait_iters", config.batching_wait_iters, kAtLeastZero);
  take_listed_keys(map, "attention_dp_config", notes);
  map.refuse_unknown_keys();
  if (!config.enable_balance) {
    notes->push_back("attention_dp_config has no effect while its enable_balance is false");
  }
  return config;
}

CpConfig take_cp(YamlMap map, std::vector<std::string>* notes) {
  CpConfig config;
  config.tokens_per_block = take_integer(map, "tokens_per_block", {.min = 1, .max = 1 << 16});
  take_listed_keys(map, "cp_config", notes);
  map.refuse_unknown_keys();
  return config;
}

// num_slots: 0 in place stands for no balancer, as in the published files; a file with it is refused
// by resolve_placement, because whoever names one wants what is in it.
void take_load_balancer(YamlMap& moe, MoeConfig* config) {
  constexpr const char* kKey = "load_balancer";
  if (!moe.has(kKey)) return;
  if (moe.is_map(kKey)) {
    YamlMap inline_settings = moe.map(kKey);
    const auto settings = recordings::take_balancer_settings(inline_settings);
    if (settings.num_slots != 0) {
      config->load_balancer = settings;
    } else if (settings.initial_global_assignments) {
      inline_settings.complain("num_slots",
                               "0 (no load balancer) contradicts the placement "
                               "initial_global_assignments; remove one of the two");
    }
    return;
  }
  config->load_balancer_path = moe.string_or(kKey, "");
  if (config->load_balancer_path->empty()) {
    moe.complain(kKey, "expected a path or a map, found an empty string");
  }
}

// The formats of rows. TRT's use_low_precision_moe_combine and combine_dtype set the same thing, so
// they must not contradict each other.
void take_row_formats(YamlMap& moe, MoeConfig* config) {
  constexpr const char* kLow = "use_low_precision_moe_combine";
  config->dispatch_dtype = take_word(moe, "dispatch_dtype", kRowDtypes);
  config->combine_dtype = take_word(moe, "combine_dtype", kRowDtypes);
  config->combine = take_word(moe, "combine", kCombines);
  config->use_low_precision_moe_combine = moe.boolean_or(kLow, false);
  const bool low = config->combine_dtype == "FP8" || config->combine_dtype == "NVFP4";
  if (config->combine_dtype == "AUTO") {
    if (config->use_low_precision_moe_combine) config->combine_dtype = "NVFP4";
  } else if (moe.has(kLow) && low != config->use_low_precision_moe_combine) {
    moe.complain("combine_dtype",
                 fmt::format("{} contradicts {}: {}; remove one of the two", config->combine_dtype,
                             kLow, config->use_low_precision_moe_combine));
  }
}

MoeConfig take_moe(YamlMap map, std::vector<std::string>* notes) {
  MoeConfig config;
  config.max_num_tokens = take_integer(map, "max_num_tokens", kAtLeastOne);
  take_row_formats(map, &config);
  config.dispatch_strategy = take_word(map, "dispatch_strategy", kDispatchStrategies);
  take_load_balancer(map, &config);
  take_listed_keys(map, "moe_config", notes);
  map.refuse_unknown_keys();
  return config;
}

KvCacheConfig take_kv_cache(YamlMap map, std::vector<std::string>* notes) {
  KvCacheConfig config;
  config.dtype = take_word(map, "dtype", kCacheDtypes);
  if (config.dtype == "BFLOAT16") config.dtype = "BF16";
  config.max_tokens = take_integer(map, "max_tokens", kAtLeastOne);
  if (map.has("enable_block_reuse")) {
    config.enable_block_reuse = map.boolean_or("enable_block_reuse", true);
  }
  config.host_cache_size = take_integer(map, "host_cache_size", {.min = 0});
  take_listed_keys(map, "kv_cache_config", notes);
  map.refuse_unknown_keys();
  return config;
}

SchedulerConfig take_scheduler(YamlMap map, std::vector<std::string>* notes) {
  SchedulerConfig config;
  config.capacity_scheduler_policy = take_word(map, "capacity_scheduler_policy", kCapacityPolicies);
  take_listed_keys(map, "scheduler_config", notes);
  map.refuse_unknown_keys();
  return config;
}

// As in TensorRT-LLM there is no transceiver without a backend.
std::optional<CacheTransceiverConfig> take_transceiver(YamlMap map,
                                                       std::vector<std::string>* notes) {
  constexpr std::array kTimeouts = {"kv_transfer_timeout_ms",
                                    "kv_transfer_sender_future_timeout_ms"};
  const bool has_backend = map.has("backend");
  CacheTransceiverConfig config;
  config.max_tokens_in_buffer = take_integer(map, "max_tokens_in_buffer", kAtLeastOne);
  for (const char* key : kTimeouts) {
    if (!take_integer(map, key, kAtLeastOne)) continue;
    notes->push_back(fmt::format(
        "cache_transceiver_config.{} has no effect: pages are waited for as long as that "
        "is likely to be faster than to compute them",
        key));
  }
  take_listed_keys(map, "cache_transceiver_config", notes);
  map.refuse_unknown_keys();
  if (has_backend) return config;
  notes->push_back(
      "cache_transceiver_config has no effect without backend: DEFAULT: no pages are shared with "
      "other servers");
  return std::nullopt;
}

void take_limits(YamlMap& root, ParallelConfig* config) {
  const IntegerRange iteration{.min = 1, .max = kMaxIterationTokens};
  config->max_batch_size = take_integer(root, "max_batch_size", iteration);
  config->max_num_tokens = take_integer(root, "max_num_tokens", iteration);
  config->max_seq_len = take_integer(root, "max_seq_len", {.min = 1, .max = kMaxPositions});
  config->stream_interval = take_integer(root, "stream_interval", {.min = 1, .max = 1 << 20});
}

std::vector<std::pair<std::string, std::string>> take_variables(YamlMap map) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const std::string& name : map.keys()) {
    if (name.empty() || name.find('=') != name.npos) {
      map.complain(name, "expected the name of an environment variable");
    }
    variables.emplace_back(name, map.string_or(name, ""));
  }
  return variables;
}

ParallelConfig take_config(YamlMap& root) {
  ParallelConfig config;
  config.sizes = take_sizes(root);
  config.enable_attention_dp = root.boolean_or("enable_attention_dp", false);
  config.enable_lm_head_tp_in_adp = root.boolean_or("enable_lm_head_tp_in_adp", false);
  if (root.has("attention_dp_config")) {
    config.attention_dp_config = take_attention_dp(root.map("attention_dp_config"), &config.notes);
  }
  if (root.has("cp_config")) config.cp_config = take_cp(root.map("cp_config"), &config.notes);
  if (root.has("moe_config")) {
    config.moe_config = take_moe(root.map("moe_config"), &config.notes);
  }
  if (root.has("kv_cache_config")) {
    config.kv_cache_config = take_kv_cache(root.map("kv_cache_config"), &config.notes);
  }
  if (root.has("scheduler_config")) {
    config.scheduler_config = take_scheduler(root.map("scheduler_config"), &config.notes);
  }
  config.pipeline_micro_batches =
      take_integer(root, "pipeline_micro_batches", {.min = 1, .max = 1024});
  if (root.has("pp_partition")) config.pp_partition = root.integers("pp_partition", kAtLeastOne);
  take_limits(root, &config);
  config.print_iter_log = root.boolean_or("print_iter_log", false);
  if (root.has("env_overrides")) config.env_overrides = take_variables(root.map("env_overrides"));
  if (root.has("disagg_cluster")) {
    config.disagg_cluster = take_disagg_cluster(root.map("disagg_cluster"));
  }
  if (root.has("speculative_config")) {
    config.speculative_config =
        take_speculative(root.map("speculative_config"), config.max_batch_size, &config.notes);
  }
  if (config.enable_lm_head_tp_in_adp && !config.predicts()) {
    config.notes.push_back(
        "enable_lm_head_tp_in_adp has no effect without speculative_config: decoding_type MTP, "
        "whose drafts use it");
  }
  take_listed_keys(root, "", &config.notes);
  if (root.has("cache_transceiver_config")) {
    config.cache_transceiver_config =
        take_transceiver(root.map("cache_transceiver_config"), &config.notes);
  }
  root.refuse_unknown_keys();
  return config;
}

// Refuses settings that contradict each other, and settings that others leave without effect.
Status check_consistent(const ParallelConfig& config) {
  const ParallelSizes& sizes = config.sizes;
  if (config.enable_lm_head_tp_in_adp && !config.enable_attention_dp) {
    return invalid_input(
        "enable_lm_head_tp_in_adp: true has no effect without enable_attention_dp: true; set both "
        "or neither");
  }
  if (config.attention_dp_config && config.attention_dp_config->enable_balance &&
      !config.enable_attention_dp) {
    return invalid_input(
        "attention_dp_config: has no effect without enable_attention_dp: true; set it or remove "
        "attention_dp_config");
  }
  if (config.cp_config && sizes.cp == 1) {
    return invalid_input(
        "cp_config: has no effect with context_parallel_size 1; raise it or remove cp_config");
  }
  if (const auto micro_batches = config.pipeline_micro_batches;
      micro_batches && (sizes.pp == 1 || *micro_batches < sizes.pp)) {
    return invalid_input(fmt::format(
        "pipeline_micro_batches: expected several stages (pipeline_parallel_size) and at least as "
        "many as those, found {} with {}",
        *micro_batches, sizes.pp));
  }
  if (const size_t stages = config.pp_partition.size();
      stages > 0 && stages != static_cast<size_t>(sizes.pp)) {
    return invalid_input(fmt::format(
        "pp_partition: expected the layers of each of {} stages (pipeline_parallel_size), found {} "
        "numbers",
        sizes.pp, stages));
  }
  const std::optional<int64_t>& dispatched = config.moe_config.max_num_tokens;
  if (dispatched && *dispatched < sizes.moe_ep) {
    return invalid_input(
        fmt::format("moe_config.max_num_tokens: expected at least {}, a token of each rank "
                    "(moe_expert_parallel_size), found {}; raise it or remove it",
                    sizes.moe_ep, *dispatched));
  }
  const bool balanced = config.moe_config.load_balancer || config.moe_config.load_balancer_path;
  if (balanced && sizes.moe_cluster > 1) {
    return invalid_input(
        fmt::format("moe_config.load_balancer: expected moe_cluster_parallel_size 1, found {}; "
                    "clusters hold no replicas to balance",
                    sizes.moe_cluster));
  }
  return {};
}

}  // namespace

Mapping ParallelConfig::mapping() const {
  Result<Mapping> mapping = Mapping::create(sizes);
  WIDEEP_CHECK(mapping.ok());
  return *std::move(mapping);
}

Result<ParallelConfig> parse_parallel_config(const std::string& text, const std::string& name,
                                             const std::string& part) {
  WIDEEP_TRY_ASSIGN(formats::YamlDocument document, formats::YamlDocument::parse(text, name));
  if (!part.empty()) WIDEEP_TRY(document.enter(part));
  if (part == "context_servers" || part == "generation_servers") document.inherit(kProxyKeys);
  YamlMap root = document.root();
  ParallelConfig config = take_config(root);
  WIDEEP_TRY(document.status());
  config.name = part.empty() ? name : fmt::format("{}:{}", name, part);
  // Fills the unset sizes: check_consistent() compares other settings with them.
  const Result<Mapping> mapping = Mapping::create(config.sizes);
  if (!mapping.ok()) return mapping.status().at(config.name);
  config.sizes = mapping->sizes();
  // After document.status(): errors in single keys come first.
  if (const Status status = check_consistent(config); !status.ok()) return status.at(config.name);
  return config;
}

std::span<const std::string_view> proxy_keys() { return kProxyKeys; }

std::pair<std::string, std::string> split_part(const std::string& file) {
  const size_t colon = file.rfind(':');
  std::error_code error;
  const bool has_part = colon != file.npos && colon > 0 && colon + 1 < file.size() &&
                        !std::filesystem::exists(file, error);
  if (!has_part) return {file, ""};
  return {file.substr(0, colon), file.substr(colon + 1)};
}

Result<ParallelConfig> read_parallel_config(const std::string& file) {
  const auto [path, part] = split_part(file);
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return parse_parallel_config(text, path, part);
}

Result<ParallelConfig> parallel_config_for_ranks(int num_ranks) {
  if (num_ranks < 1 || num_ranks > kMaxRanks) {
    return invalid_input(fmt::format("--ranks: expected 1 to {}, found {}", kMaxRanks, num_ranks));
  }
  ParallelConfig config;
  config.name = "--ranks";
  config.sizes.tp = config.sizes.moe_ep = num_ranks;
  config.enable_attention_dp = true;
  return config;
}

}  // namespace wideep::parallel
