// SPDX-License-Identifier: Apache-2.0
//
// The YAML file that configures how a model is divided among ranks, with TRT's keys:
//
//   tensor_parallel_size: 8
//   enable_attention_dp: true         # each rank serves its own requests; experts are shared
//   moe_expert_parallel_size: 8
//   moe_config:
//     load_balancer: ./moe_load_balancer.yaml     # or the file's keys inline
//     dispatch_dtype: fp8                         # dtype of dispatched rows
//     use_low_precision_moe_combine: true         # results come back in nvfp4
//   max_num_tokens: 2048
//
// Reading is strict: an unknown key, a wrong type, sizes whose products contradict each other and
// settings that could have no effect are errors of one line (file, key, expected, found). What
// becomes of TensorRT-LLM's other keys is in config_keys.h; a key that is accepted but has no effect
// leaves a line in `notes` for the caller to print. check_supported refuses valid settings that
// wideep does not support yet, by name.
//
// A file of several workers, as those of TensorRT-LLM's disaggregated serving, is read by the part
// that is one worker's: config.yaml:worker_config.gen, config.yaml:context_servers. With the latter
// kind, keys beside the servers are those of all servers, as there, and must not contradict theirs.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/disagg_cluster.h"
#include "parallel/mapping.h"
#include "parallel/speculative_config.h"
#include "recordings/balancer_yaml.h"
#include "wideep/status.h"

namespace wideep::parallel {

struct AttentionDpConfig {
  bool enable_balance = false;
  int64_t timeout_iters = 50;
  int64_t batching_wait_iters = 10;
};

struct CpConfig {
  std::optional<int64_t> tokens_per_block;
};

struct MoeConfig {
  // Tokens of all ranks together in one dispatch, at least moe_expert_parallel_size; more are
  // dispatched in chunks.
  std::optional<int64_t> max_num_tokens;
  // The dtypes of dispatched rows and of result rows: AUTO, as the experts take and return them;
  // BF16; FP8; NVFP4. use_low_precision_moe_combine alone makes combine_dtype NVFP4.
  std::string dispatch_dtype = "AUTO";
  std::string combine_dtype = "AUTO";
  bool use_low_precision_moe_combine = false;
  // EXACT: combine returns a row for each expert. REDUCED: one row for each rank, the sum of its
  // experts.
  std::string combine = "EXACT";
  // How rows reach the ranks of their slots; wideep's own. AUTO: the one of the other two that
  // moves fewer bytes. PUSH: the source writes them to each of these ranks. ALL_GATHER: it
  // publishes them once, and all ranks read them in place.
  std::string dispatch_strategy = "AUTO";
  // At most one of the two: the path as written (relative to the working directory, as in TRT), or
  // the inline form. Neither with an inline num_slots: 0.
  std::optional<std::string> load_balancer_path;
  std::optional<recordings::BalancerSettings> load_balancer;
};

struct KvCacheConfig {
  std::string dtype = "AUTO";         // AUTO, as dispatched rows; BF16; FP8 (e4m3, scale 1)
  std::optional<int64_t> max_tokens;  // of a rank's cache
  std::optional<bool> enable_block_reuse;
  // Bytes of a node's memory in which pages stay that leave the caches of its ranks; 0: none.
  std::optional<int64_t> host_cache_size;
  // Whether requests with a common prefix share pages: by default they do.
  bool reuses_blocks() const { return enable_block_reuse.value_or(true); }
  uint64_t host_cache_bytes() const { return static_cast<uint64_t>(host_cache_size.value_or(0)); }
};

struct SchedulerConfig {
  // GUARANTEED_NO_EVICT or MAX_UTILIZATION; "": what the command prefers
  std::string capacity_scheduler_policy;
};

// A server with it shares the pages of its prompts with others (server/page_sharing.h).
struct CacheTransceiverConfig {
  // Tokens whose pages the node keeps for others, unless kv_cache_config.host_cache_size says how
  // many bytes.
  std::optional<int64_t> max_tokens_in_buffer;
};

struct ParallelConfig {
  std::string name;  // the file or option that begins messages
  ParallelSizes sizes{.tp = 1, .pp = 1, .cp = 1, .moe_tp = 1, .moe_ep = 1, .moe_cluster = 1};
  bool enable_attention_dp = false;
  bool enable_lm_head_tp_in_adp = false;
  std::optional<AttentionDpConfig> attention_dp_config;
  std::optional<CpConfig> cp_config;
  MoeConfig moe_config;
  KvCacheConfig kv_cache_config;
  SchedulerConfig scheduler_config;
  std::optional<CacheTransceiverConfig> cache_transceiver_config;  // nullopt: none with a backend
  std::optional<SpeculativeConfig> speculative_config;
  // pipeline_micro_batches, wideep's own: micro-batches in flight, at least the number of stages,
  // which is the default.
  std::optional<int64_t> pipeline_micro_batches;
  std::optional<int64_t> max_batch_size;  // requests of a rank in one iteration
  std::optional<int64_t> max_num_tokens;  // tokens of a rank in one iteration
  std::optional<int64_t> max_seq_len;     // prompt and output of one request
  // Iterations of a request between the parts of its streamed answer.
  std::optional<int64_t> stream_interval;
  bool print_iter_log = false;        // a line for each iteration
  std::vector<int64_t> pp_partition;  // layers of each stage; empty: as wideep divides them
  std::optional<DisaggCluster> disagg_cluster;  // where a server says that it is there
  // Environment variables that are set before anything else reads them.
  std::vector<std::pair<std::string, std::string>> env_overrides;
  std::vector<std::string> notes;  // one line for each key that has no effect

  // REQUIRES: the sizes are valid, as in every config that a function below returns.
  Mapping mapping() const;

  // Whether the model's prediction layer drafts.
  bool predicts() const {
    return speculative_config && speculative_config->type == SpeculativeConfig::Type::kMtp;
  }

  int micro_batches() const { return static_cast<int>(pipeline_micro_batches.value_or(sizes.pp)); }

  // True if the tp ranks compute every batch together, each a part of heads and columns. False:
  // each rank has its own batches.
  bool shares_batches() const { return sizes.tp > 1 && !enable_attention_dp; }
};

// Keys of a file of context_servers and generation_servers that are not inherited by them: those of
// the proxy (disaggregated/disagg_config.h).
std::span<const std::string_view> proxy_keys();

// file: a path, or PATH:PART for a part of the file, as "config.yaml:worker_config.gen" (a file of
// that whole name comes first). Errors (invalid input): as above.
Result<ParallelConfig> read_parallel_config(const std::string& file);
// The two of PATH:PART; the second is "" without a part.
std::pair<std::string, std::string> split_part(const std::string& file);
// part: the dotted path of the map to read; "": the whole text.
Result<ParallelConfig> parse_parallel_config(const std::string& text, const std::string& name,
                                             const std::string& part = "");

// The configuration of `--ranks N` without a file: attention data parallel, experts divided among
// all N ranks. Errors (invalid input): num_ranks outside 1 ... 65536.
Result<ParallelConfig> parallel_config_for_ranks(int num_ranks);

// Refuses, by name, valid settings that wideep does not support yet. Supported:
// tensor_parallel_size = moe_tensor_parallel_size × moe_expert_parallel_size, with or without
// enable_attention_dp, any pipeline_parallel_size and any context_parallel_size.
Status check_supported(const ParallelConfig& config);

}  // namespace wideep::parallel
