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
#include <vector>

#include "model/model_forms.h"
#include "run/layouts.h"

namespace wideep::run {

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
                       const engine::PipelineLayout& pipeline = {});
// Of every stage of the pipeline. The machine needs the sum.
std::vector<MemoryPlan> plan_stages(const model::ModelConfig& config,
                                    const ep::DispatchShape& shape, const model::ModelForms& forms,
                                    Dtype cache, const std::optional<model::JointLayout>& joint,
                                    const engine::PipelineLayout& pipeline, int num_groups = 1,
                                    int turn_pages = 1);
uint64_t bytes_without_cache(std::span<const MemoryPlan> stages);
// All stages in one: what is there once, summed; of what each rank has, the most of any stage.
MemoryPlan fullest(std::span<const MemoryPlan> stages);

// Of weights all in one format.
MemoryPlan plan_memory(const model::ModelConfig& config, const ep::DispatchShape& shape,
                       kernels::WeightFormat format, Dtype cache);

}  // namespace wideep::run
