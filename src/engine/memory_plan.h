// SPDX-License-Identifier: Apache-2.0
//
// How much memory serving a model takes, from its sizes and the forms of its matrices: before
// anything is read or allocated.
//
// The ranks of one machine are forked after the dense weights are loaded and share them; all else
// each rank has for itself. Ranks that a launcher has started share none of it.
//
// Thread safety: plain values; pure functions.
//
//   const MemoryPlan plan =
//       plan_memory(config, dispatch_shape(config, 8, num_slots, 512, format), forms, cache);
//   const uint64_t bytes = plan.bytes_without_cache() + pages_of_all_ranks * plan.kv_page_bytes;
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/pipeline.h"
#include "ep/buffer_layout.h"
#include "kernels/weight_format.h"
#include "model/model_forms.h"
#include "model/moe_options.h"
#include "model/tensor_group.h"
#include "parallel/parallel_config.h"
#include "wideep/status.h"

namespace wideep::engine {

// Of a rank and iteration, where neither the configuration nor the command line says.
inline constexpr int kDefaultMaxNumTokens = 512;
inline constexpr int kDefaultMaxBatchSize = 64;

// Indices of the layers that have experts, ascending.
std::vector<int> moe_layers(const model::ModelConfig& config);

// How rows travel beside experts of this format.
// Errors (invalid input): a hidden size that does not divide into the groups of a dtype.
Result<model::MoeOptions> moe_options(const parallel::ParallelConfig& settings,
                                      const model::ModelConfig& config,
                                      kernels::WeightFormat experts);

// By moe_config.combine.
ep::Combine combine_of(const parallel::ParallelConfig& settings);

// The ranks of tensor parallelism, tensor_parallel_size without enable_attention_dp; nothing: every
// rank has batches of its own.
// Errors (invalid input): tensor_parallel_size does not divide the heads; neither it nor the number
// of keys' and values' heads divides the other.
Result<std::optional<model::JointLayout>> joint_layout(const parallel::ParallelConfig& settings,
                                                       const model::ModelConfig& config,
                                                       int max_num_tokens, int max_batch_size);

// The ranks of moe_tensor_parallel_size, which share experts; nothing: every rank has whole ones.
std::optional<model::JointLayout> shard_layout(const model::ModelConfig& config,
                                               const ep::DispatchShape& shape, Dtype row_dtype);

// Errors (invalid input): moe_tensor_parallel_size cannot cut the model's experts, or what is to
// come back of them.
Status check_slices(const parallel::ParallelConfig& settings, const model::ModelConfig& config,
                    const model::MoeOptions& moe);

// Bytes of a rank's segment: of dispatch and combine, behind it what ranks share that compute
// batches or experts together, what other stages of a pipeline send, and of ranks that share
// sequences (context parallelism) the logits and the KV cache, which the others read in place.
struct SegmentPlan {
  size_t dispatch = 0, joint = 0, shards = 0, pipeline = 0, logits = 0, cache = 0;

  SegmentPlan(const ep::DispatchShape& shape, const std::optional<model::JointLayout>& joint_rows,
              const std::optional<model::JointLayout>& shard_rows, const PipelineLayout& stages);
  size_t joint_offset() const { return dispatch; }
  size_t shards_offset() const { return dispatch + joint; }
  size_t pipeline_offset() const { return dispatch + joint + shards; }
  size_t logits_offset() const { return pipeline_offset() + pipeline; }
  size_t cache_offset() const { return logits_offset() + logits; }
  size_t bytes() const { return cache_offset() + cache; }
};

// Tokens of a sequence that one of context_parallel_size ranks has before the next one's: what
// cp_config.tokens_per_block says; else a share of max_num_tokens, at most 256. Of latent attention
// a turn is what shares a page's expansion; longer ones make ranks uneven.
int context_turn(const parallel::ParallelConfig& settings, int max_num_tokens);

// Most tokens of an iteration that one rank computes: its share of max_num_tokens in whole turns,
// where context_parallel_size ranks have them.
int tokens_of_rank(const parallel::ParallelConfig& settings, int max_num_tokens);

// Most tokens that a rank brings to a dispatch, of an iteration's.
int dispatched_tokens(const parallel::ParallelConfig& settings, int max_num_tokens);

// num_slots: of all ranks, a multiple of num_ranks / num_slices. num_slices: into which experts are
// cut, moe_tensor_parallel_size. moe_max_num_tokens: of all ranks in one
// dispatch; nothing: unbounded. The strategy of dispatch is the one that moves fewer bytes
// (ep/strategy.h).
ep::DispatchShape dispatch_shape(const model::ModelConfig& config, int num_ranks, int num_slots,
                                 int max_num_tokens, const model::MoeOptions& moe,
                                 std::optional<int64_t> moe_max_num_tokens = {},
                                 ep::Combine combine = ep::Combine::kExact, int num_slices = 1);
// Of rows that travel in the format's row_dtype.
ep::DispatchShape dispatch_shape(const model::ModelConfig& config, int num_ranks, int num_slots,
                                 int max_num_tokens, kernels::WeightFormat format,
                                 std::optional<int64_t> moe_max_num_tokens = {});

// What kv_cache_config.dtype means beside weights of this format: AUTO is row_dtype(format).
Dtype cache_dtype(std::string_view setting, kernels::WeightFormat format);

// Of one pipeline stage: without pipeline, of all.
struct MemoryPlan {
  int num_ranks = 1;            // that dispatch rows to each other
  int num_groups = 1;           // of such ranks, which share sequences (context parallelism)
  int turn_pages = 1;           // of a sequence that each of them has before the next one's
  uint64_t dense_weights = 0;   // bytes, like all below; once per machine
  uint64_t slots_per_rank = 0;  // packed experts of all layers
  // One segment: messages and results of dispatch, rows and tokens of other stages.
  uint64_t symmetric_memory_per_rank = 0;
  uint64_t joint_memory = 0;  // of ranks that compute batches together: once
  uint64_t shard_memory = 0;  // of ranks that share experts: once for each such group
  // Intermediate results of a full iteration, whose memory all layers share. An estimate: small
  // things, logits and those of single threads are left out.
  uint64_t working_memory_per_rank = 0;
  uint64_t kv_page_bytes = 0;  // kernels::kPageTokens tokens of one sequence, all layers

  uint64_t per_rank() const {
    return slots_per_rank + symmetric_memory_per_rank + working_memory_per_rank;
  }
  // Of the stage on one machine, when every buffer is as full as it can get.
  uint64_t bytes_without_cache() const {
    const uint64_t group =
        joint_memory + shard_memory + static_cast<uint64_t>(num_ranks) * per_rank();
    return dense_weights + static_cast<uint64_t>(num_groups) * group;
  }
  // Of the stage on one of several nodes, with the ranks that a launcher has started there: each
  // has the dense weights for itself, and the node has images of everybody's segments.
  uint64_t bytes_without_cache_on_node(uint64_t ranks_here) const {
    return ranks_here * (dense_weights + slots_per_rank + working_memory_per_rank) +
           all_ranks() * symmetric_memory_per_rank +
           static_cast<uint64_t>(num_groups) * (joint_memory + shard_memory);
  }
  uint64_t all_ranks() const { return static_cast<uint64_t>(num_ranks) * num_groups; }
  // Of one sequence, on the rank that has the most of its pages.
  uint64_t kv_bytes_of_rank(uint64_t num_tokens) const;
  uint64_t kv_bytes(uint64_t num_tokens) const;  // of one sequence
};

// joint: of ranks that compute all batches together; they share the heads of the cache, too.
// layers: of the stage; nothing: all.
MemoryPlan plan_memory(const model::ModelConfig& config, const ep::DispatchShape& shape,
                       const model::ModelForms& forms, Dtype cache,
                       const std::optional<model::JointLayout>& joint = {},
                       std::optional<parallel::LayerRange> layers = {},
                       const PipelineLayout& pipeline = {});
// Of every stage of the pipeline. The machine needs the sum.
std::vector<MemoryPlan> plan_stages(const model::ModelConfig& config,
                                    const ep::DispatchShape& shape, const model::ModelForms& forms,
                                    Dtype cache, const std::optional<model::JointLayout>& joint,
                                    const PipelineLayout& pipeline, int num_groups = 1,
                                    int turn_pages = 1);
uint64_t bytes_without_cache(std::span<const MemoryPlan> stages);
// All stages in one: what is there once, summed; of what each rank has, the most of any stage.
MemoryPlan fullest(std::span<const MemoryPlan> stages);

// By pipeline_parallel_size. Micro-batches under way at once: one for each stage.
// Errors (invalid input): more stages than layers.
Result<PipelineLayout> pipeline_layout(const parallel::ParallelConfig& settings,
                                       const model::ModelConfig& config, int max_num_tokens,
                                       int max_batch_size);

// Of weights all in one format.
MemoryPlan plan_memory(const model::ModelConfig& config, const ep::DispatchShape& shape,
                       kernels::WeightFormat format, Dtype cache);

}  // namespace wideep::engine
