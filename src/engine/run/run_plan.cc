// SPDX-License-Identifier: Apache-2.0
//
// plan_run() computes the plan part by part, each from the parts before it: threads, limits, cache
// → row formats → shared buffers, dispatch → segment → memory of each stage → online balancing.
// Where experts will be absent it may compute it once more, with longer chunks of prompts.
// Nothing is allocated. The functions before it compute one part each.
#include "run/run_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/byte_size.h"
#include "base/content_hash.h"
#include "base/try.h"
#include "model/model_division.h"
#include "model/parts/latent_form.h"
#include "model/state_layout.h"
#include "parallel/initial_placement.h"
#include "parallel/token_shares.h"
#include "plan/regroup.h"
#include "run/cache_memory.h"
#include "schedule/page_pool.h"

namespace wideep::run {
namespace {

using engine::SchedulerLimits;
using parallel::ParallelConfig;

// The largest number of iterations: the configuration has 64-bit numbers, PromptBalance has int.
constexpr int64_t kForever = std::numeric_limits<int>::max();

// How the stages of a pipeline divide the layers is not to be chosen.
Status check_partition(const ParallelConfig& parallel, const model::ModelConfig& config) {
  if (parallel.pp_partition.empty()) return {};
  std::vector<int64_t> ours;
  const int stages = parallel.sizes.pp;
  for (int stage = 0; stage < stages; ++stage) {
    ours.push_back(model::stage_layers(config, stage, stages).count());
  }
  if (parallel.pp_partition == ours) return {};
  return invalid_input(
      fmt::format("{}: pp_partition: expected [{}], as wideep divides the layers among stages, "
                  "found [{}]; remove the key",
                  parallel.name, fmt::join(ours, ", "), fmt::join(parallel.pp_partition, ", ")));
}

// ---- nodes ----

std::vector<int> ranks_of_nodes(const RunOptions& options) {
  const transport::NodeMap* nodes = node_map(options);
  if (nodes == nullptr) return {options.parallel.mapping().world_size()};
  std::vector<int> ranks;
  for (int node = 0; node < nodes->num_nodes(); ++node) {
    ranks.push_back(static_cast<int>(nodes->ranks_of(node).size()));
  }
  return ranks;
}

// Whether the ranks of a stage, between which rows are dispatched, are on several nodes.
bool stages_cross_nodes(const RunOptions& options) {
  const transport::NodeMap* nodes = node_map(options);
  if (nodes == nullptr) return false;
  const parallel::Mapping mapping = options.parallel.mapping();
  for (int rank = 0; rank < nodes->num_ranks(); ++rank) {
    if (nodes->node_of(rank) != nodes->node_of(mapping.stage(rank).front())) return true;
  }
  return false;
}

// The number of nodes of a stage if each holds equally many consecutive ranks of it, else 1. With
// 1, the choice of slots ignores nodes.
int nodes_of_stage(const RunOptions& options) {
  const parallel::ParallelSizes& sizes = options.parallel.sizes;
  if (sizes.cp > 1 || sizes.moe_tp > 1) return 1;
  if (!stages_cross_nodes(options) || !node_map(options)->is_even()) return 1;
  const transport::NodeMap& nodes = *node_map(options);
  const int ranks_of_node = nodes.num_ranks() / nodes.num_nodes();
  const int ranks_of_stage = options.parallel.mapping().stage_size();
  return ranks_of_stage % ranks_of_node == 0 ? ranks_of_stage / ranks_of_node : 1;
}

// ---- the parts ----

// The node keeps prompts in memory that is not taken yet.
Status check_host_cache(const RunOptions& options, const base::Machine& machine) {
  const uint64_t usable = machine.usable_memory_bytes();
  if (options.host_cache_bytes == 0 || options.host_cache_bytes < usable) return {};
  return invalid_input(
      fmt::format("--host-cache-size (kv_cache_config.host_cache_size): expected less than the {} "
                  "that can be used, found {}",
                  base::byte_size(usable), base::byte_size(options.host_cache_bytes)));
}

// What the caches of one rank may use: its part of cache_share of this node's memory beside the
// host cache.
double max_cache_bytes(const RunPlan& plan, const RunOptions& options,
                       const base::Machine& machine) {
  const uint64_t usable = machine.usable_memory_bytes();
  return static_cast<double>(usable - std::min(usable, options.host_cache_bytes)) *
         options.cache_share / plan.ranks_of_nodes[static_cast<size_t>(this_node(options))];
}

// Of a sequence on a rank, in all layers: an upper bound of what a stage's states take.
uint64_t state_bytes(const RunPlan& plan, const ParallelConfig& parallel) {
  const model::ModelConfig& config = plan.model.config;
  const int parts = (parallel.shares_batches() ? parallel.sizes.tp : 1) * parallel.sizes.cp;
  return model::largest_state_part(config, {0, config.num_layers}, parts).bytes();
}

Result<int> state_slots(const RunPlan& plan, const RunOptions& options,
                        const base::Machine& machine) {
  const uint64_t bytes = state_bytes(plan, options.parallel);
  if (bytes == 0) return 0;
  if (options.state_slots) return *options.state_slots;
  const SchedulerLimits& limits = plan.limits;
  const int slots =
      state_slots_in(max_cache_bytes(plan, options, machine), bytes,
                     limits.max_batch_size * limits.micro_batches, limits.reuse_pages);
  if (slots > 0) return slots;
  return failed(fmt::format("memory: {} free is too little for the state of a sequence ({})",
                            base::byte_size(machine.usable_memory_bytes()),
                            base::byte_size(bytes)));
}

// The share of what a token reads on the last stage, which drafts, that all tokens read.
double dense_share(const RunPlan& plan) {
  const MemoryPlan& stage = plan.memory.back();
  const auto dense = static_cast<double>(stage.dense_weights);
  const double experts = static_cast<double>(stage.slots_per_rank) *
                         plan.model.config.routing.top_k /
                         std::max(1, plan.dispatch.slots_per_rank);
  return dense / std::max(dense + experts, 1.0);
}

// Slots for states after drafts: of all requests at once, but at most a quarter of the caches'
// memory.
int draft_slots(const RunPlan& plan, const RunOptions& options, const base::Machine& machine) {
  const SchedulerLimits& limits = plan.limits;
  if (limits.state_slots == 0 || !plan.speculation.is_on()) return 0;
  const double max = max_cache_bytes(plan, options, machine) / 4 /
                     static_cast<double>(state_bytes(plan, options.parallel));
  const int running = std::min(limits.max_batch_size * limits.micro_batches, limits.state_slots);
  return static_cast<int>(
      std::min(max, static_cast<double>(running) * plan.speculation.max_draft_len));
}

// The pages that max_batch_size sequences of full length need, limited by cache_share of the
// memory, of which states take a part.
Result<int> pages_that_fit(const RunPlan& plan, const RunOptions& options,
                           const base::Machine& machine) {
  const ParallelConfig& parallel = options.parallel;
  const SchedulerLimits& limits = plan.limits;
  // All layers: an upper bound of what a stage's pages take.
  const model::KvLayout kv(plan.model.config, plan.cache,
                           parallel.shares_batches() ? parallel.sizes.tp : 1);
  const uint64_t bytes = machine.usable_memory_bytes();
  const double states = static_cast<double>(limits.state_slots + limits.draft_slots) *
                        static_cast<double>(state_bytes(plan, options.parallel));
  const double max =
      (max_cache_bytes(plan, options, machine) - states) / static_cast<double>(kv.page_bytes());
  const int longest = engine::max_pages_of_rank(engine::pages_for(plan.max_sequence),
                                                parallel.sizes.cp, limits.turn_pages);
  const double wanted = static_cast<double>(longest) * limits.max_batch_size * limits.micro_batches;
  // Models without attention have pages without bytes, and then there are as many as are wanted.
  constexpr double kMost = std::numeric_limits<int>::max();
  const int pages = static_cast<int>(std::min({max, wanted, kMost}));
  if (pages > 0) return pages;
  return failed(fmt::format("memory: {} free is too little for a page of the KV cache ({})",
                            base::byte_size(bytes), base::byte_size(kv.page_bytes())));
}

Result<int> cache_pages(const RunPlan& plan, const RunOptions& options,
                        const base::Machine& machine) {
  const ParallelConfig& parallel = options.parallel;
  if (const auto max_tokens = parallel.kv_cache_config.max_tokens) {
    if (plan.limits.max_pages > 0) return plan.limits.max_pages;
    return invalid_input(
        fmt::format("{}: kv_cache_config.max_tokens: expected at least {}, a page, found {}",
                    parallel.name, kernels::kPageTokens, *max_tokens));
  }
  if (options.cache_bytes) {
    // A caller that knows its requests checks them itself.
    const int tokens = options.cache_pages ? 1 : plan.max_sequence;
    const int pages = engine::max_pages_of_rank(engine::pages_for(tokens), parallel.sizes.cp,
                                                plan.limits.turn_pages);
    return pages_in_memory(plan.model, options, pages, tokens);
  }
  if (options.cache_pages) return *options.cache_pages;
  return pages_that_fit(plan, options, machine);
}

bool has_balancer(const ParallelConfig& parallel) {
  return parallel.moe_config.load_balancer || parallel.moe_config.load_balancer_path;
}

// The most tokens of a rank in one layer: several prediction layers compute some of a step again.
int max_layer_tokens(const RunPlan& plan) {
  const int again = std::max(0, plan.model.config.num_prediction_layers - 1);
  return plan.limits.max_num_tokens + again * plan.limits.max_batch_size;
}

// With exact_load. A few loans per rank are enough: each brings one of two ranks to the mean.
constexpr int kBorrowedSlots = 8;

Result<ep::DispatchShape> plan_dispatch(const RunPlan& plan, const RunOptions& options) {
  const ParallelConfig& parallel = options.parallel;
  DispatchOptions wanted = {
      .num_ranks = parallel.sizes.tp,
      .num_slots = plan.model.placement.num_slots,
      .max_num_tokens = parallel::dispatched_tokens(parallel, max_layer_tokens(plan)),
      .moe_max_num_tokens = parallel.moe_config.max_num_tokens,
      .combine = combine_of(parallel),
      .num_slices = parallel.sizes.moe_tp};
  if (!plan.model.config.has_experts()) {
    wanted.moe_max_num_tokens = parallel.sizes.tp;  // nothing is dispatched: the smallest buffers
    wanted.num_slices = 1;
  }
  ep::DispatchShape shape = dispatch_shape(plan.model.config, wanted, plan.moe);
  shape.num_nodes = nodes_of_stage(options);
  if (plan.model.placement.exact_load) {
    if (parallel.sizes.moe_tp > 1) {
      return invalid_input(fmt::format(
          "{}: exact_load: node needs whole experts; remove it or set moe_tensor_parallel_size 1",
          parallel::balancer_name(parallel)));
    }
    shape.borrowed_slots = std::min(kBorrowedSlots, shape.num_experts);
  }
  WIDEEP_TRY_ASSIGN(shape.strategy,
                    dispatch_strategy(parallel, shape.strategy, stages_cross_nodes(options)));
  return shape;
}

// How many ranks may share the LM head of predictions: those of a node, as in TensorRT-LLM. Nodes
// of different sizes would have to agree on it, so they do not share.
int shared_head_ranks(const RunOptions& options) {
  const ParallelConfig& parallel = options.parallel;
  if (!parallel.enable_lm_head_tp_in_adp) return 1;
  const int nodes = nodes_of_stage(options);
  if (nodes == 1 && stages_cross_nodes(options)) return 1;
  return parallel.sizes.tp / nodes;
}

Status check_start_ranks(const RunPlan& plan, const RunOptions& options) {
  const int world = plan.mapping.world_size();
  if (plan.start_ranks == world) return {};
  if (plan.start_ranks < 1 || plan.start_ranks > world) {
    return invalid_input(fmt::format("--start-ranks: expected 1 to {}, the ranks of {}, found {}",
                                     world, options.parallel.name, plan.start_ranks));
  }
  if (options.keeps_ranks && plan.is_elastic()) return {};
  return invalid_input(
      "--start-ranks: needs attention data parallelism with expert parallelism alone, no launcher, "
      "and --on-rank-loss recover");
}

// With fewer ranks, of which each has more slots, a rank may need more room.
size_t dispatch_bytes(const RunPlan& plan, bool keeps_ranks) {
  size_t bytes = ep::BufferLayout(plan.dispatch).segment_bytes();
  if (!keeps_ranks || !plan.is_elastic()) return bytes;
  for (int ranks = 1; ranks < plan.dispatch.ep_size; ++ranks) {
    bytes = std::max(bytes, ep::BufferLayout(plan.dispatch_between(ranks)).segment_bytes());
  }
  const int max_slots = std::max(plan.dispatch.num_experts, plan.dispatch.slots_per_rank);
  return std::max(bytes, holdings_bytes(plan.model.placement.layers.size(),
                                        static_cast<size_t>(plan.dispatch.num_experts),
                                        static_cast<size_t>(max_slots)));
}

SegmentPlan plan_segment(const RunPlan& plan, bool keeps_ranks) {
  SegmentPlan segment{.dispatch = whole_memory_pages(dispatch_bytes(plan, keeps_ranks)),
                      .joint = plan.joint ? plan.joint->bytes() : 0,
                      .shards = plan.shards ? plan.shards->bytes() : 0,
                      .pipeline = whole_memory_pages(plan.pipeline.bytes()),
                      .heads = plan.heads ? plan.heads->bytes() : 0};
  if (!plan.context) return segment;
  segment.logits = plan.context->bytes();
  // Segments of all ranks are equally large, and stages have more or fewer layers with a cache.
  for (int stage = 0; stage < plan.mapping.sizes().pp; ++stage) {
    const model::KvLayout kv(plan.model.config, plan.cache, plan.layers_of_stage(stage),
                             plan.joint ? plan.mapping.sizes().tp : 1);
    segment.cache =
        std::max(segment.cache, kv.page_bytes() * static_cast<size_t>(plan.limits.max_pages));
  }
  return segment;
}

ExpertRanks plan_experts(const RunPlan& plan) {
  const parallel::Mapping& mapping = plan.mapping;
  const model::RoutingConfig& routing = plan.model.config.routing;
  ExpertRanks all{.stage_size = mapping.stage_size(),
                  .ranks = {},
                  .dispatch_ranks = plan.dispatch.ep_size,
                  .num_slices = plan.dispatch.num_slices,
                  .borrowed_slots = plan.dispatch.borrowed_slots,
                  .statistics = {.num_experts = routing.num_experts,
                                 .top_k = routing.top_k,
                                 .ep_size = mapping.stage_size(),
                                 .num_stages = 0}};
  // Only stages with MoE layers have statistics files; these are numbered consecutively.
  for (int stage = 0; stage < mapping.sizes().pp; ++stage) {
    const parallel::LayerRange layers = plan.layers_of_stage(stage);
    std::vector<int> own;
    for (const auto& [layer, placement] : plan.model.placement.layers) {
      if (layers.contains(layer)) own.push_back(layer);
    }
    const int first_file = all.statistics.num_stages * all.stage_size;
    for (int i = 0; i < all.stage_size; ++i) all.ranks.push_back({own, first_file + i});
    if (!own.empty()) ++all.statistics.num_stages;
  }
  return all;
}

weights::ExpertShape expert_shape(const ModelFacts& model, int num_slices) {
  return model::experts_shape(model.config, model.forms, num_slices);
}

// ---- experts that are not in memory ----

// Of layouts: what a rank cannot read must end the same requests on all ranks that compute them,
// and only a rank with requests of its own knows which ones these are.
Status check_layout(const RunPlan& plan) {
  const parallel::ParallelSizes& sizes = plan.mapping.sizes();
  std::string found;
  if (sizes.pp > 1) found = fmt::format("pipeline_parallel_size: {}", sizes.pp);
  if (sizes.cp > 1) found = fmt::format("context_parallel_size: {}", sizes.cp);
  if (sizes.moe_tp > 1) found = fmt::format("moe_tensor_parallel_size: {}", sizes.moe_tp);
  if (plan.joint) found = "enable_attention_dp: false";
  if (plan.balances_online()) found = "moe_config.load_balancer, which moves experts";
  if (found.empty()) return {};
  return invalid_input(
      fmt::format("--expert-memory: not all experts would be in memory: expected one rank, or "
                  "enable_attention_dp: true without a load balancer that moves experts, found {}",
                  found));
}

// Sets RunPlan::memory, has_absent_experts and absent_share, from all other parts of the plan.
Status plan_expert_memory(const RunOptions& options, RunPlan* plan) {
  if (!options.expert_memory || !plan->model.config.has_experts()) return {};
  MemoryPlan& memory = plan->memory.front();
  const uint64_t bytes = options.expert_memory->of(memory.slots_per_rank);
  if (bytes >= memory.slots_per_rank) return {};
  WIDEEP_TRY(check_layout(*plan));
  if (options.packed_cache.empty()) {
    return invalid_input(fmt::format(
        "--expert-memory: {} of the {} that a rank's experts need: the others are read from packed "
        "weights; give their directory, --packed-cache",
        base::byte_size(bytes), base::byte_size(memory.slots_per_rank)));
  }
  plan->absent_share =
      1.0 - static_cast<double>(bytes) / static_cast<double>(memory.slots_per_rank);
  memory.slots_per_rank = bytes;
  // Reading ahead normalises the rows for another router, and has its logits.
  const model::ModelConfig& config = plan->model.config;
  memory.working_memory_per_rank +=
      sizeof(float) * static_cast<uint64_t>(plan->limits.max_num_tokens) *
      static_cast<uint64_t>(config.hidden_size + config.routing.num_experts);
  plan->has_absent_experts = true;
  return {};
}

}  // namespace

Result<int> max_sequence(const RunOptions& options, const model::ModelConfig& config) {
  const ParallelConfig& parallel = options.parallel;
  const int64_t limit = parallel.max_seq_len.value_or(config.max_position_embeddings);
  if (limit <= config.max_position_embeddings) return static_cast<int>(limit);
  const std::string name =
      options.has_context_option ? "--context" : parallel.name + ": max_seq_len";
  return invalid_input(
      fmt::format("{}: expected at most the model's max_position_embeddings {}, found {}", name,
                  config.max_position_embeddings, limit));
}

SchedulerLimits scheduler_limits(const RunOptions& options) {
  const ParallelConfig& parallel = options.parallel;
  SchedulerLimits limits;
  limits.max_num_tokens = static_cast<int>(parallel.max_num_tokens.value_or(kDefaultMaxNumTokens));
  // Every request of a batch needs room for at least its next token.
  limits.max_batch_size = static_cast<int>(std::min<int64_t>(
      parallel.max_batch_size.value_or(kDefaultMaxBatchSize), limits.max_num_tokens));
  limits.prefill_chunk = options.prefill_chunk;
  limits.micro_batches = parallel.micro_batches();
  limits.reuse_pages = options.reuses_pages();
  const std::string& policy = parallel.scheduler_config.capacity_scheduler_policy;
  limits.policy = policy.empty()                ? options.preferred_policy
                  : policy == "MAX_UTILIZATION" ? engine::CapacityPolicy::kMaxUtilization
                                                : engine::CapacityPolicy::kGuaranteedNoEvict;
  if (const auto& balance = parallel.attention_dp_config) {
    limits.balance = {
        .enabled = balance->enable_balance,
        .timeout_iters = static_cast<int>(std::min(balance->timeout_iters, kForever)),
        .batching_wait_iters = static_cast<int>(std::min(balance->batching_wait_iters, kForever))};
  }
  limits.turn_pages =
      parallel::context_turn(parallel, limits.max_num_tokens) / kernels::kPageTokens;
  limits.max_rank_tokens = parallel::tokens_of_rank(parallel, limits.max_num_tokens);
  if (const auto max_tokens = parallel.kv_cache_config.max_tokens) {
    limits.max_pages = static_cast<int>(*max_tokens / kernels::kPageTokens);
  }
  return limits;
}

namespace {

Result<RunPlan> plan_as_set(const ModelFacts& model, const RunOptions& options,
                            const base::Machine& machine) {
  const ParallelConfig& parallel = options.parallel;
  const model::ModelConfig& config = model.config;
  RunPlan plan{.model = model, .mapping = parallel.mapping()};
  plan.ranks_of_nodes = ranks_of_nodes(options);
  if (options.kept_nodes) plan.kept_nodes = options.kept_nodes->place.nodes;
  plan.start_ranks = options.start_ranks > 0 ? options.start_ranks : plan.mapping.world_size();
  WIDEEP_TRY(check_host_cache(options, machine));
  plan.host_cache = options.host_cache_bytes;
  // Plans must be equal on all ranks, so the node with the most ranks determines the threads of
  // all.
  plan.threads =
      plan_threads(machine, std::ranges::max(plan.ranks_of_nodes), options.threads_per_rank);
  WIDEEP_TRY_ASSIGN(plan.max_sequence, max_sequence(options, config));
  plan.limits = scheduler_limits(options);
  plan.limits.roles_differ = model::roles_differ(config);
  plan.cache = cache_dtype(parallel.kv_cache_config.dtype, model.forms.experts.format);
  plan.speculation = speculation_options(parallel);
  if (options.adjust_speculation) options.adjust_speculation(plan.speculation);
  WIDEEP_TRY_ASSIGN(plan.limits.state_slots, state_slots(plan, options, machine));
  plan.limits.draft_slots = draft_slots(plan, options, machine);
  WIDEEP_TRY_ASSIGN(plan.limits.max_pages, cache_pages(plan, options, machine));

  WIDEEP_TRY_ASSIGN(plan.moe, moe_options(parallel, config, model.forms.experts.format));
  plan.moe.perfect_router = options.perfect_router;
  plan.moe.count_slots = (options.slot_counts || options.statistics) && has_balancer(parallel);
  WIDEEP_TRY(model::check_parts(parallel, config));
  WIDEEP_TRY(check_partition(parallel, config));
  WIDEEP_TRY(model::check_slices(parallel, config, plan.moe));
  const int tokens = plan.limits.max_num_tokens, batch = plan.limits.max_batch_size;
  const int drafts = plan.speculation.max_draft_len;
  const bool is_chain = config.num_prediction_layers == 1;
  if (is_chain) plan.limits.draft_ahead = drafts - 1;
  const int logits = std::min(tokens, batch * (1 + drafts));
  WIDEEP_TRY_ASSIGN(plan.joint, joint_layout(parallel, config, max_layer_tokens(plan), logits));
  plan.pipeline = pipeline_layout(parallel, config, tokens, batch, drafts);
  WIDEEP_TRY_ASSIGN(plan.dispatch, plan_dispatch(plan, options));
  plan.shards = shard_layout(config, plan.dispatch, plan.moe.row_dtype);
  if (parallel.sizes.cp > 1) {
    plan.context = model::JointLayout::of_context(config, tokens, logits);
  }
  if (is_chain) plan.shared_head_ranks = shared_head_ranks(options);
  if (plan.shared_head_ranks > 1) {
    plan.heads = model::JointLayout::of_heads(config, parallel.sizes.tp, batch);
  }
  WIDEEP_TRY(check_start_ranks(plan, options));
  plan.segment = plan_segment(plan, options.keeps_ranks);

  plan.memory = plan_stages({.config = config,
                             .shape = plan.dispatch,
                             .forms = model.forms,
                             .cache = plan.cache,
                             .joint = plan.joint,
                             .context = plan.context,
                             .pipeline = plan.pipeline,
                             .num_groups = plan.mapping.sizes().cp,
                             .turn_pages = plan.limits.turn_pages});
  if (plan.heads) plan.memory.back().joint_memory += plan.heads->bytes();
  plan.speculation.step_time.dense_share = dense_share(plan);
  Result<std::vector<OnlinePlan>> online = plan_online(
      expert_shape(model, parallel.sizes.moe_tp), model.placement, plan.mapping, config, machine);
  if (!online.ok()) return online.status().at(parallel::balancer_name(parallel));
  plan.online = std::move(*online);
  plan.experts = plan_experts(plan);
  WIDEEP_TRY(plan_expert_memory(options, &plan));
  return plan;
}

// ---- chunks of prompts ----

// Each chunk of a prompt reads nearly all absent experts. That hides behind computing if an expert
// is read in the time in which so many tokens are computed with it (two operations for a weight):
//
//   tokens per read = bytes of a weight · operations/s ÷ (2 · bytes/s of the disk)
//
// A chunk has chunk · top_k / num_experts tokens for each of all experts, of which the absent share
// is read. 2 cores with AVX-512 and a disk of 1 GB/s have 166 tokens per read in 8 bits; 16 such
// cores in 4 bits 240 with 3 GB/s, 100 with 7.
constexpr double kTokensPerRead = 128.0;
// Requests that generate wait for the chunks of others: at most four times as long as by default.
constexpr int kLongestChunk = 4 * kDefaultMaxNumTokens;
// Of the memory for experts, what buffers for more tokens may take beside it: less than the tenth
// of all memory that stays free if --expert-memory is what doctor says (expert_memory_to_give).
constexpr uint64_t kPartForTokens = 12;

uint64_t bytes_for_tokens(const RunPlan& plan) {
  const MemoryPlan& memory = plan.memory.front();
  return memory.symmetric_memory_per_rank + memory.working_memory_per_rank;
}

// REQUIRES: has_absent_experts.
int tokens_that_hide_reading(const RunPlan& plan) {
  const model::RoutingConfig& routing = plan.model.config.routing;
  const double tokens = kTokensPerRead * plan.absent_share * routing.num_experts / routing.top_k;
  int chunk = kDefaultMaxNumTokens;
  while (chunk < kLongestChunk && chunk < tokens) chunk *= 2;
  return chunk;
}

}  // namespace

Result<RunPlan> plan_run(const ModelFacts& model, const RunOptions& options,
                         const base::Machine& machine) {
  WIDEEP_TRY_ASSIGN(RunPlan plan, plan_as_set(model, options, machine));
  const bool is_chosen = options.parallel.max_num_tokens || options.prefill_chunk > 0;
  if (!plan.has_absent_experts || is_chosen) return plan;
  RunOptions longer = options;
  for (int tokens = tokens_that_hide_reading(plan); tokens > plan.limits.max_num_tokens;
       tokens /= 2) {
    longer.parallel.max_num_tokens = tokens;
    Result<RunPlan> with = plan_as_set(model, longer, machine);
    if (!with.ok()) continue;
    const uint64_t max =
        bytes_for_tokens(plan) + plan.memory.front().slots_per_rank / kPartForTokens;
    if (bytes_for_tokens(*with) <= max) return with;
  }
  return plan;
}

bool RunPlan::is_elastic() const {
  const parallel::ParallelSizes& sizes = mapping.sizes();
  const bool may_change = num_nodes() == 1 || kept_nodes.has_value();
  return !joint && sizes.pp == 1 && sizes.cp == 1 && sizes.moe_tp == 1 && may_change;
}

int RunPlan::slots_per_rank(int num_ranks) const {
  return balance::slots_per_rank_for(num_ranks, dispatch.num_experts, dispatch.slots_per_rank);
}

ep::DispatchShape RunPlan::dispatch_between(std::span<const int> ranks) const {
  ep::DispatchShape shape = dispatch_between(static_cast<int>(ranks.size()));
  if (!kept_nodes) return shape;
  const transport::NodeMap members = kept_nodes->of_members(ranks);
  const size_t each = members.ranks_of(0).size();
  bool is_even = true;
  for (int node = 1; node < members.num_nodes(); ++node) {
    is_even = is_even && members.ranks_of(node).size() == each;
  }
  if (is_even) shape.num_nodes = members.num_nodes();
  return shape;
}

ep::DispatchShape RunPlan::dispatch_between(int num_ranks) const {
  ep::DispatchShape shape = dispatch;
  if (num_ranks != shape.ep_size) shape.num_nodes = 1;
  shape.ep_size = num_ranks;
  shape.slots_per_rank = slots_per_rank(num_ranks);
  const bool in_chunks = shape.max_rows() < int64_t{num_ranks} * shape.max_tokens;
  shape.calls_in_flight = in_chunks ? 2 : 1;
  return shape;
}

int RunPlan::longest_sequence() const {
  // With context parallelism a sequence's first rank may hold one turn more than the others, so the
  // limit is not just max_pages times the number of ranks.
  const auto fits = [&](int tokens) {
    return engine::max_pages_of_rank(engine::pages_for(tokens), mapping.sizes().cp,
                                     limits.turn_pages) <= limits.max_pages;
  };
  int tokens = max_sequence;
  while (tokens > 1 && !fits(tokens)) {
    tokens = (engine::pages_for(tokens) - 1) * kernels::kPageTokens;
  }
  return tokens;
}

uint64_t RunPlan::bytes_needed(std::optional<int64_t> cache_tokens_per_rank) const {
  const auto tokens = static_cast<uint64_t>(cache_tokens_per_rank.value_or(1));
  uint64_t bytes = 0;
  for (const MemoryPlan& stage : memory) {
    bytes += stage.bytes_without_cache() + stage.all_ranks() * stage.kv_bytes(tokens);
  }
  return bytes + fewest_state_bytes(memory) + host_cache;
}

// ---- comparing ----

namespace {

std::string text(int64_t value) { return std::to_string(value); }
std::string text(bool value) { return value ? "true" : "false"; }
std::string text(kernels::RowFormat format) {
  return std::string(kernels::row_format_name(format));
}

std::string online_text(const OnlinePlan& stage) {
  if (!stage.balances()) return "nothing to balance";
  return fmt::format("{} layers in flight, {} spares, policy {}, pool of {} bytes",
                     stage.balancer.layers_in_flight, stage.balancer.num_spares,
                     static_cast<int>(stage.policy.policy), stage.pool_bytes());
}

std::string speculation_text(const engine::SpeculationOptions& options) {
  if (!options.is_on()) return "off";
  std::string schedule;
  for (const auto& [batch, length] : options.draft_len_schedule) {
    schedule += fmt::format(" {}:{}", batch, length);
  }
  return fmt::format(
      "method {}, {} drafts{}, patterns of {}, {} matches, {} pool of {} bytes, at most "
      "{} requests, schedule{}, window {} of {}, rate {} of {}, matches of {} before predictions, "
      "relaxed {}",
      static_cast<int>(options.method), options.max_draft_len,
      options.is_adaptive ? " at most" : "", options.ngram.max_matching_ngram_size,
      options.ngram.is_use_oldest ? "oldest" : "newest",
      options.is_public_pool ? "public" : "private", options.max_pool_bytes,
      options.max_concurrency.value_or(0), schedule, options.acceptance_window.value_or(0),
      options.acceptance_length_threshold, options.acceptance_rate_window.value_or(0),
      options.acceptance_rate_threshold, options.suffix_threshold.value_or(0),
      options.relaxed
          ? fmt::format("{} of {}, {} to {}", options.relaxed->delta, options.relaxed->top_k,
                        options.relaxed->begin_token, options.relaxed->end_token)
          : "off");
}

}  // namespace

std::string content_hash_of(const balance::ModelPlacement& placement) {
  std::string all;
  for (const auto& [layer, each] : placement.layers) {
    all += fmt::format("{} {} {}\n", layer, each.ep_size, fmt::join(each.slot_to_expert, " "));
  }
  return base::content_hash_hex(all);
}

transport::Settings settings_of(const RunPlan& plan) {
  const parallel::ParallelSizes& sizes = plan.mapping.sizes();
  const SchedulerLimits& limits = plan.limits;
  transport::Settings settings = {
      {"--dtype", plan.model.forms.format_names()},
      {"tensor_parallel_size", text(int64_t{sizes.tp})},
      {"pipeline_parallel_size", text(int64_t{sizes.pp})},
      {"context_parallel_size", text(int64_t{sizes.cp})},
      {"moe_tensor_parallel_size", text(int64_t{sizes.moe_tp})},
      {"moe_expert_parallel_size", text(int64_t{sizes.moe_ep})},
      {"enable_attention_dp", text(!plan.joint.has_value())},
      {"enable_lm_head_tp_in_adp", text(int64_t{plan.shared_head_ranks})},
      {"max_batch_size", text(int64_t{limits.max_batch_size})},
      {"max_num_tokens", text(int64_t{limits.max_num_tokens})},
      {"max_seq_len", text(int64_t{plan.max_sequence})},
      {"cp_config.tokens_per_block", text(int64_t{limits.turn_pages} * kernels::kPageTokens)},
      {"pipeline_micro_batches", text(int64_t{limits.micro_batches})},
      {"--prefill-chunk", text(int64_t{limits.prefill_chunk})},
      {"--threads-per-rank", text(int64_t{plan.threads.threads_per_rank})},
      {"kv_cache_config.dtype", std::string(dtype_name(plan.cache))},
      {"kv_cache_config.max_tokens", text(int64_t{limits.max_pages} * kernels::kPageTokens)},
      {"the states of requests that fit", text(int64_t{limits.state_slots})},
      {"the states after drafts that fit", text(int64_t{limits.draft_slots})},
      {"speculative_config", speculation_text(plan.speculation)},
      {"kv_cache_config.enable_block_reuse", text(limits.reuse_pages)},
      {"scheduler_config.capacity_scheduler_policy",
       limits.policy == engine::CapacityPolicy::kMaxUtilization ? "MAX_UTILIZATION"
                                                                : "GUARANTEED_NO_EVICT"},
      {"attention_dp_config.enable_balance", text(limits.balance.enabled)},
      {"attention_dp_config.timeout_iters", text(int64_t{limits.balance.timeout_iters})},
      {"attention_dp_config.batching_wait_iters",
       text(int64_t{limits.balance.batching_wait_iters})},
      {"moe_config.dispatch_dtype", text(plan.moe.dispatch_format())},
      {"moe_config.combine_dtype", text(plan.moe.combine_format())},
      {"--perfect-router", text(plan.moe.perfect_router)},
      {"--expert-memory", text(plan.has_absent_experts)},
      {"--expert-statistic-path (counts of slots)", text(plan.moe.count_slots)},
      {"moe_config.load_balancer (num_slots)", text(int64_t{plan.model.placement.num_slots})},
      {"moe_config.load_balancer (its content)", content_hash_of(plan.model.placement)}};
  for (size_t stage = 0; stage < plan.online.size(); ++stage) {
    settings.emplace_back(fmt::format("online balancing of stage {}", stage),
                          online_text(plan.online[stage]));
  }
  for (const ep::DispatchShape::Field& field : plan.dispatch.fields()) {
    settings.emplace_back(fmt::format("the shape of dispatch ({})", field.name),
                          fmt::format("{}", field.value));
  }
  return settings;
}

}  // namespace wideep::run
