// SPDX-License-Identifier: Apache-2.0
//
// The settings of a run: which model, distributed how, and what is recorded.
//
// Thread safety: a plain value.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/speculation/speculation.h"
#include "group/kept_seat.h"
#include "group/started_ranks.h"
#include "kernels/weight_format.h"
#include "parallel/parallel_config.h"
#include "run/expert_memory.h"
#include "run/online_parts.h"
#include "run/profile.h"
#include "run/record_request.h"
#include "schedule/scheduler_limits.h"

namespace wideep::run {

// Of a service over several nodes, each with a keeper of its own (group/keeper.h).
struct KeptNodes {
  transport::NodePlace place;
  // What each node can have of some things → the least of all nodes. Collective over the nodes.
  std::function<Result<std::vector<uint64_t>>(const std::vector<uint64_t>&)> agree_on;
};

struct RunOptions {
  std::string model_dir;
  // Random weights from this seed instead of a checkpoint, to measure speed. Only config.json and
  // tokenizer.json of the directory are read; model_dir may also be a config.json itself.
  std::optional<uint64_t> random_weights;
  bool needs_tokenizer = true;        // false: requests are token ids, the tokenizer may be missing
  bool takes_grammars = false;        // engine::Request::grammar; needs the tokenizer
  parallel::ParallelConfig parallel;  // has passed parallel::check_supported
  int threads_per_rank = 0;           // 0: cores / ranks, at least 1
  // Of matrices in memory; nullopt: as they are stored, floats in bf16.
  std::optional<kernels::WeightFormat> format;
  // Directory for packed files (run/packed_weights.h), from which weights are taken; one that is
  // missing there is written at the start. "": none.
  std::string packed_cache;
  // Of each rank for its experts; nullopt: all are in memory. Less needs packed_cache.
  std::optional<ExpertMemory> expert_memory;
  int prefill_chunk = 0;  // tokens; 0: max_num_tokens
  // Pages of a rank's KV cache if kv_cache_config.max_tokens is not set: what the caller's requests
  // need. nullopt: what max_batch_size sequences of full length need, but at most cache_share of
  // the free memory.
  std::optional<int> cache_pages;
  // Instead: bytes of a rank's pages (run/cache_memory.h). Not beside kv_cache_config.max_tokens.
  std::optional<uint64_t> cache_bytes;
  // Whether --context has set parallel.max_seq_len, for messages.
  bool has_context_option = false;
  // Slots of a rank for the states of sequences; nullopt: as run::state_slots_in. Models without
  // states have none.
  std::optional<int> state_slots;
  double cache_share = 0.3;
  // ---- where prompts are kept beyond a rank's cache (run/prompt_places.h) ----
  // The memory of the node, kv_cache_config.host_cache_size; 0: none.
  uint64_t host_cache_bytes = 0;
  std::string prompt_cache_dir;             // "": none
  uint64_t prompt_cache_bytes = 0;          // of the directory, of all that share it
  std::string prompt_cache_redis;           // address (store/redis_address.h); "": none
  std::string prompt_cache_redis_password;  // where the address has none
  int prompt_cache_ttl = 0;  // seconds that a record stays there that nobody uses; 0: 7 days
  // Pages of a request's prompt may come from a peer that computes it (engine::Request::peer).
  bool takes_from_peers = false;
  bool tells_pages = false;  // events PagesChanged
  // Without scheduler_config.capacity_scheduler_policy.
  engine::CapacityPolicy preferred_policy = engine::CapacityPolicy::kGuaranteedNoEvict;
  bool perfect_router = false;  // see model::MoeOptions; the texts mean nothing
  // The limit of every wait of a rank for another rank.
  std::chrono::milliseconds timeout{30'000};
  // Ranks are forked by a keeper that starts again those that die, while the others go on.
  bool keeps_ranks = false;
  // Of an elastic run with a keeper: the ranks with which it starts; 0: all. The others can be
  // added while it runs (RankGroup::want).
  int start_ranks = 0;
  // With keeps_ranks; nullopt: all ranks are on this node.
  std::optional<KeptNodes> kept_nodes;
  // The ranks that mpirun or srun has started, including this process; null: ranks are forked.
  transport::StartedRanks* started = nullptr;

  // ---- what is recorded ----
  bool logits_digest = false;  // SHA-256 of each request's logits
  std::optional<RoutingLogRequest> routing_log;
  // Events RoutedExperts, for requests that want them.
  bool routed_experts = false;
  bool expert_load = false;         // events ExpertLoad and RankMemory
  bool records_on_request = false;  // expert statistics, RequestWriter::record_experts()
  std::optional<StatisticsRequest> statistics;
  // Iteration records also count slots, if there is a load balancer: for statistics, and for those
  // that RequestWriter::record_experts starts.
  bool slot_counts = false;
  std::optional<ProfileRequest> profile;
  std::string iteration_log;             // file (run/iteration_log.h); empty: none
  uint64_t iteration_log_max_bytes = 0;  // 0: no bound
  // Of parallel.print_iter_log: whose lines; nullopt: those of all.
  std::optional<std::vector<int>> printing_ranks = std::vector<int>{0};

  // A background thread of online balancing that has not run for so long is reported.
  std::chrono::milliseconds background_limit{10'000};

  // For tests: called for each pipeline stage that balances, before the ranks start.
  std::function<void(OnlineParts&)> adjust_online;
  // For tests: called while the run is planned.
  std::function<void(engine::SpeculationOptions&)> adjust_speculation;

  // Whether requests with the same prefix share pages of the KV cache. A routing log and routed
  // experts need the experts of every token, also of those that sharing would not compute again.
  bool reuses_pages() const {
    return parallel.kv_cache_config.reuses_blocks() && !routing_log && !routed_experts;
  }
  bool names_places() const {
    return host_cache_bytes > 0 || !prompt_cache_dir.empty() || !prompt_cache_redis.empty();
  }
  // Whether pages are looked for, and kept, in any place.
  bool keeps_prompts() const { return names_places() && reuses_pages(); }
  // Whether pages have names (run/page_geometry.h), to be kept, told or taken.
  bool names_pages() const {
    return (names_places() || tells_pages || takes_from_peers) && reuses_pages();
  }
};

// Null: all ranks are on this node.
inline const transport::NodeMap* node_map(const RunOptions& options) {
  if (options.started != nullptr) return &options.started->nodes();
  return options.kept_nodes ? &options.kept_nodes->place.nodes : nullptr;
}
inline int this_node(const RunOptions& options) {
  if (options.started != nullptr) return options.started->node();
  return options.kept_nodes ? options.kept_nodes->place.node : 0;
}

// Whether this process receives the ranks' events: it is the parent of forked ranks, or rank 0 of
// ranks that a launcher has started.
inline bool receives_events(const RunOptions& options) {
  return options.started == nullptr || options.started->rank() == 0;
}

}  // namespace wideep::run
