// SPDX-License-Identifier: Apache-2.0
//
// Computes the memory that serving a model takes from its sizes and the forms of its matrices,
// before anything is read or allocated.
//
// Forked ranks share the dense weights, which the parent loads before it forks; everything else
// each rank has for itself. Ranks that a launcher has started do not share the dense weights
// either.
//
// Thread safety: plain values; pure functions.
//
//   const ep::DispatchShape shape = dispatch_shape(
//       config, {.num_ranks = 8, .num_slots = num_slots, .max_num_tokens = 512}, format);
//   const MemoryPlan plan = plan_memory(config, shape, forms, cache);
//   const uint64_t bytes = plan.bytes_without_cache() + pages_of_all_ranks * plan.kv_page_bytes;
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/model_forms.h"
#include "run/layouts.h"

namespace wideep::run {

// The memory of one pipeline stage; without pipeline, of the whole model.
struct MemoryPlan {
  int num_ranks = 1;   // ranks that dispatch rows to each other
  int num_groups = 1;  // groups of such ranks; the groups share sequences (context parallelism)
  int turn_pages = 1;  // SchedulerLimits::turn_pages
  // All below in bytes.
  uint64_t dense_weights = 0;   // once per machine
  uint64_t slots_per_rank = 0;  // packed experts of all layers
  // One segment: rows and results of dispatch, rows and tokens of other stages.
  uint64_t symmetric_memory_per_rank = 0;
  uint64_t joint_memory = 0;  // shared by ranks that compute batches together
  uint64_t shard_memory = 0;  // shared by ranks that hold slices of the same experts, all groups
  // Intermediate results of a full iteration; all layers use the same memory. An estimate without
  // small buffers, logits and buffers of single threads.
  uint64_t working_memory_per_rank = 0;
  uint64_t kv_page_bytes = 0;  // kernels::kPageTokens tokens of one sequence, all layers
  uint64_t state_bytes = 0;    // of one sequence on a rank, all layers; 0: they keep none

  uint64_t per_rank() const {
    return slots_per_rank + symmetric_memory_per_rank + working_memory_per_rank;
  }
  // All ranks of the stage on one machine, every buffer at its largest.
  uint64_t bytes_without_cache() const {
    const uint64_t group =
        joint_memory + shard_memory + static_cast<uint64_t>(num_ranks) * per_rank();
    return dense_weights + static_cast<uint64_t>(num_groups) * group;
  }
  // The ranks of the stage that a launcher has started on one of several nodes. Each has the dense
  // weights for itself, and the node holds images of the segments of all ranks of the stage.
  uint64_t bytes_without_cache_on_node(uint64_t ranks_here) const {
    return ranks_here * (dense_weights + slots_per_rank + working_memory_per_rank) +
           all_ranks() * symmetric_memory_per_rank +
           static_cast<uint64_t>(num_groups) * (joint_memory + shard_memory);
  }
  uint64_t all_ranks() const { return static_cast<uint64_t>(num_ranks) * num_groups; }
  // The KV cache of one sequence, on the rank that holds the most of its pages.
  uint64_t kv_bytes_of_rank(uint64_t num_tokens) const;
  // The KV cache of one sequence, if one rank held all of its pages.
  uint64_t kv_bytes(uint64_t num_tokens) const;
};

// A model as it is to run. Refers to what it was made of.
struct PlannedModel {
  const model::ModelConfig& config;
  const ep::DispatchShape& shape;
  const model::ModelForms& forms;
  Dtype cache = Dtype::kBf16;
  // The buffers of ranks that compute all batches together; each then caches a part of the heads.
  std::optional<model::JointLayout> joint = std::nullopt;
  // Those of ranks that share sequences (num_groups).
  std::optional<model::JointLayout> context = std::nullopt;
  engine::PipelineLayout pipeline = {};
  int num_groups = 1;
  int turn_pages = 1;
};

// The plans of all stages of the pipeline. One machine that runs all stages needs the sum.
std::vector<MemoryPlan> plan_stages(const PlannedModel& planned);
// Of a model without pipeline whose ranks compute batches of their own.
MemoryPlan plan_memory(const model::ModelConfig& config, const ep::DispatchShape& shape,
                       const model::ModelForms& forms, Dtype cache);
// The same if all weights have one format.
MemoryPlan plan_memory(const model::ModelConfig& config, const ep::DispatchShape& shape,
                       kernels::WeightFormat format, Dtype cache);
uint64_t bytes_without_cache(std::span<const MemoryPlan> stages);
// The states of one sequence on every rank of all stages: the fewest that a run can have.
uint64_t fewest_state_bytes(std::span<const MemoryPlan> stages);
// One plan for all stages: sums of what exists once, and for what each rank has, the largest value
// of any stage.
MemoryPlan fullest(std::span<const MemoryPlan> stages);

// The slots for states (schedule/state_slots.h) of a rank that runs up to `running` sequences: as
// many snapshots as running sequences if prefixes are reused, in at most half of the bytes that the
// rank may use for its caches. 0: that is too little for one. REQUIRES: state_bytes > 0.
int state_slots_in(double cache_bytes, uint64_t state_bytes, int running, bool reuses_pages);

}  // namespace wideep::run
