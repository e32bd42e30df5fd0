// SPDX-License-Identifier: Apache-2.0
//
// Computes from the settings the shapes and layouts of a run's parts: how rows travel between
// ranks, and where everything lies in a rank's segment of symmetric memory. plan_run
// (run/run_plan.h) combines them; tests and benchmarks use single functions.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/pipeline.h"
#include "engine/speculation/speculation.h"
#include "ep/buffer_layout.h"
#include "kernels/weight_format.h"
#include "model/parts/moe_options.h"
#include "model/parts/tensor_group.h"
#include "parallel/parallel_config.h"
#include "wideep/status.h"

namespace wideep::run {

// Defaults of max_num_tokens and max_batch_size, per rank and iteration.
inline constexpr int kDefaultMaxNumTokens = 512;
inline constexpr int kDefaultMaxBatchSize = 64;

// ---- rows ----

// The formats in which rows travel if the experts are stored in format `experts`.
// Errors (invalid input): the hidden size does not divide into the groups of a format.
Result<model::MoeOptions> moe_options(const parallel::ParallelConfig& settings,
                                      const model::ModelConfig& config,
                                      kernels::WeightFormat experts);

// moe_config.combine as a value.
ep::Combine combine_of(const parallel::ParallelConfig& settings);

// moe_config.dispatch_strategy as a value. cheaper: the one that moves fewer bytes on one node.
// crosses_nodes: ranks that share experts are on several nodes, between which rows are pushed.
// Errors (invalid input): ALL_GATHER, and crosses_nodes.
Result<ep::Strategy> dispatch_strategy(const parallel::ParallelConfig& settings,
                                       ep::Strategy cheaper, bool crosses_nodes);

// What a dispatch has beside the model and the formats of its rows.
struct DispatchOptions {
  int num_ranks = 1;
  int num_slots = 0;       // over all ranks, a multiple of num_ranks / num_slices
  int max_num_tokens = 0;  // of a rank
  // Most tokens of all ranks in one dispatch; nullopt: unbounded.
  std::optional<int64_t> moe_max_num_tokens;
  ep::Combine combine = ep::Combine::kExact;
  int num_slices = 1;  // parts of each expert (moe_tensor_parallel_size)
};

// Of the strategies of dispatch it takes the one that moves fewer bytes (ep/strategy.h).
ep::DispatchShape dispatch_shape(const model::ModelConfig& config, const DispatchOptions& options,
                                 const model::MoeOptions& moe);
// The same for rows that travel in the format's row_dtype.
ep::DispatchShape dispatch_shape(const model::ModelConfig& config, const DispatchOptions& options,
                                 kernels::WeightFormat format);

// The dtype of cached keys and values: kv_cache_config.dtype, whose AUTO is row_dtype(format).
Dtype cache_dtype(std::string_view setting, kernels::WeightFormat format);

// ---- buffers that ranks share ----

// The buffers of the ranks that compute all batches together (tensor_parallel_size without
// enable_attention_dp); nullopt: every rank has batches of its own.
// Errors (invalid input): tensor_parallel_size does not divide the attention heads, or neither it
// nor the number of key-value heads divides the other.
Result<std::optional<model::JointLayout>> joint_layout(const parallel::ParallelConfig& settings,
                                                       const model::ModelConfig& config,
                                                       int max_num_tokens, int max_logit_rows);

// The buffers of the ranks that hold slices of the same experts (moe_tensor_parallel_size);
// nullopt: experts are whole.
std::optional<model::JointLayout> shard_layout(const model::ModelConfig& config,
                                               const ep::DispatchShape& shape, Dtype row_dtype);

// The buffers between the stages of pipeline_parallel_size, which model::check_parts allows. The
// number of micro-batches in flight is pipeline_micro_batches, by default the number of stages.
engine::PipelineLayout pipeline_layout(const parallel::ParallelConfig& settings,
                                       const model::ModelConfig& config, int max_num_tokens,
                                       int max_batch_size, int max_draft_len = 0);

// What is drafted, if anything (speculative_config).
engine::SpeculationOptions speculation_options(const parallel::ParallelConfig& settings);

// Bytes of the parts of a rank's segment, in this order: buffers of dispatch and combine; buffers
// of ranks that compute batches together; buffers of ranks that hold slices of the same experts;
// rows and tokens from other pipeline stages; buffers of ranks that share the LM head; and with
// context parallelism the logits and the KV cache, which the other ranks of a sequence read in
// place.
struct SegmentPlan {
  size_t dispatch = 0, joint = 0, shards = 0, pipeline = 0, heads = 0, logits = 0, cache = 0;

  size_t joint_offset() const { return dispatch; }
  size_t shards_offset() const { return dispatch + joint; }
  size_t pipeline_offset() const { return dispatch + joint + shards; }
  size_t heads_offset() const { return pipeline_offset() + pipeline; }
  size_t logits_offset() const { return heads_offset() + heads; }
  size_t cache_offset() const { return logits_offset() + logits; }
  size_t bytes() const { return cache_offset() + cache; }
};

// What a rank of an elastic run tells the others of a new group in its segment (run/holdings.h):
// this, then the load of each expert (double), then the expert of each slot (int32).
struct HoldingsHeader {
  int64_t iteration = 0;
  int64_t slots_per_rank = 0;
};
size_t holdings_bytes(size_t num_layers, size_t num_experts, size_t slots_per_rank);

// `bytes`, rounded up to whole pages of memory.
size_t whole_memory_pages(size_t bytes);

}  // namespace wideep::run
