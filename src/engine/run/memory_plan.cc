// SPDX-License-Identifier: Apache-2.0
//
// Sizes are asked of what allocates later, layouts and packed shapes, not computed a second time;
// only working memory is an estimate, which memory_plan_test.cc holds against the heap. States get
// at most half of the cache, since a sequence needs pages as well. fullest() is no stage that
// exists: it is what every rank of every stage fits into.
#include "run/memory_plan.h"

#include <algorithm>

#include "model/kv_layout.h"
#include "model/model_cost.h"
#include "model/model_division.h"
#include "model/state_layout.h"
#include "run/layouts.h"
#include "schedule/page_pool.h"

namespace wideep::run {

using kernels::WeightFormat;
using model::ModelConfig;
using model::ModelForms;
using parallel::LayerRange;

uint64_t MemoryPlan::kv_bytes(uint64_t num_tokens) const {
  return (num_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens * kv_page_bytes;
}

uint64_t MemoryPlan::kv_bytes_of_rank(uint64_t num_tokens) const {
  const uint64_t pages = (num_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens;
  return static_cast<uint64_t>(
             engine::max_pages_of_rank(static_cast<int>(pages), num_groups, turn_pages)) *
         kv_page_bytes;
}

namespace {

MemoryPlan plan_stage(const PlannedModel& planned, LayerRange layers) {
  const ModelConfig& config = planned.config;
  const ep::DispatchShape& shape = planned.shape;
  const std::optional<model::JointLayout>& joint = planned.joint;
  const auto moe =
      std::count_if(config.layers.begin() + layers.first, config.layers.begin() + layers.last,
                    [](const model::LayerConfig& layer) { return layer.is_moe; });
  const uint64_t slots = uint64_t(shape.slots_per_rank) * static_cast<uint64_t>(moe);
  const auto shards = shard_layout(config, shape, planned.forms.row_dtype);
  const model::KvLayout kv(config, planned.cache, layers, joint ? shape.ep_size : 1);
  // Which one of the ranks that share sequences has for all of them.
  const uint64_t context =
      planned.context && config.has_state() ? planned.context->bytes() / planned.num_groups : 0;
  const int parts = (joint ? shape.ep_size : 1) * planned.num_groups;  // of a state
  return {.num_ranks = shape.ep_size,
          .num_groups = planned.num_groups,
          .turn_pages = planned.turn_pages,
          .dense_weights = model::dense_weight_bytes(config, planned.forms, layers),
          .slots_per_rank =
              slots * model::experts_shape(config, planned.forms, shape.num_slices).record_bytes(),
          .symmetric_memory_per_rank =
              ep::BufferLayout(shape).segment_bytes() + planned.pipeline.bytes() + context,
          .joint_memory = joint ? joint->bytes() : 0,
          .shard_memory = shards ? uint64_t(shape.num_owners()) * shards->bytes() : 0,
          .working_memory_per_rank =
              static_cast<uint64_t>(joint ? joint->max_tokens : shape.max_tokens) *
              model::working_row_bytes(config, planned.forms, shape, layers, planned.num_groups),
          .kv_page_bytes = kv.page_bytes(),
          .state_bytes = largest_state_part(config, layers, parts).bytes()};
}

}  // namespace

std::vector<MemoryPlan> plan_stages(const PlannedModel& planned) {
  const int count = planned.pipeline.num_stages;
  std::vector<MemoryPlan> stages;
  for (int stage = 0; stage < count; ++stage) {
    stages.push_back(plan_stage(planned, model::stage_layers(planned.config, stage, count)));
  }
  return stages;
}

MemoryPlan plan_memory(const ModelConfig& config, const ep::DispatchShape& shape,
                       const ModelForms& forms, Dtype cache) {
  return plan_stage({.config = config, .shape = shape, .forms = forms, .cache = cache},
                    {0, config.num_all_layers()});
}

MemoryPlan plan_memory(const ModelConfig& config, const ep::DispatchShape& shape,
                       WeightFormat format, Dtype cache) {
  return plan_memory(config, shape, model::uniform_forms(config, format), cache);
}

uint64_t bytes_without_cache(std::span<const MemoryPlan> stages) {
  uint64_t bytes = 0;
  for (const MemoryPlan& stage : stages) bytes += stage.bytes_without_cache();
  return bytes;
}

uint64_t fewest_state_bytes(std::span<const MemoryPlan> stages) {
  uint64_t bytes = 0;
  for (const MemoryPlan& stage : stages) bytes += stage.all_ranks() * stage.state_bytes;
  return bytes;
}

int state_slots_in(double cache_bytes, uint64_t state_bytes, int running, bool reuses_pages) {
  const double max = cache_bytes / 2 / static_cast<double>(state_bytes);
  const double wanted = static_cast<double>(running) * (reuses_pages ? 2 : 1);
  return static_cast<int>(std::min(max, wanted));
}

MemoryPlan fullest(std::span<const MemoryPlan> stages) {
  MemoryPlan all{.num_ranks = 0};
  for (const MemoryPlan& stage : stages) {
    all.num_ranks += stage.num_ranks;
    all.num_groups = stage.num_groups;
    all.turn_pages = stage.turn_pages;
    all.dense_weights += stage.dense_weights;
    all.joint_memory += stage.joint_memory;
    all.shard_memory += stage.shard_memory;
    all.slots_per_rank = std::max(all.slots_per_rank, stage.slots_per_rank);
    all.symmetric_memory_per_rank =
        std::max(all.symmetric_memory_per_rank, stage.symmetric_memory_per_rank);
    all.working_memory_per_rank =
        std::max(all.working_memory_per_rank, stage.working_memory_per_rank);
    all.kv_page_bytes = std::max(all.kv_page_bytes, stage.kv_page_bytes);
    all.state_bytes = std::max(all.state_bytes, stage.state_bytes);
  }
  return all;
}

}  // namespace wideep::run
