// SPDX-License-Identifier: Apache-2.0
//
// A run as one value: who computes what, how much at once, where it lies and how many bytes it
// takes. Everything that follows from model, settings and machine is computed here, once:
//
//   doctor, parallel explain and the lines at the start print it; every rank gets it by reference;
//   ranks that a launcher has started compare theirs before anything is loaded.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "engine/scheduler_limits.h"
#include "model/model_forms.h"
#include "parallel/mapping.h"
#include "recordings/statistics.h"
#include "run/layouts.h"
#include "run/memory_plan.h"
#include "run/online_parts.h"
#include "run/run_inputs.h"
#include "run/thread_plan.h"
#include "transport/node_map.h"

namespace wideep::run {

// Which layers' experts a rank tells of, and where they are written.
struct ExpertRanks {
  int stage_size = 0;  // ranks of a pipeline stage, which are neighbours
  struct Rank {
    std::vector<int> moe_layers;  // ascending; those of IterationRecord::layers
    int file = 0;                 // of its expert statistics
  };
  std::vector<Rank> ranks;
  recordings::StatisticsShape statistics;

  // All MoE layers of a stage, whose ranks have the same.
  const std::vector<int>& layers_of_stage(int stage) const {
    return ranks[static_cast<size_t>(stage * stage_size)].moe_layers;
  }
  int num_stages() const { return static_cast<int>(ranks.size()) / stage_size; }
};

struct RunPlan {
  ModelFacts model;
  parallel::Mapping mapping;
  std::vector<int> ranks_of_nodes = {};  // [nodes] how many ranks each has
  ThreadPlan threads;

  // ---- how much at once ----
  engine::SchedulerLimits limits;  // of a rank's iterations and its cache
  int max_sequence = 0;            // tokens of a prompt and its answer: of model and settings
  Dtype cache = Dtype::kBf16;      // of cached keys and values
  engine::PipelineLayout pipeline;

  // ---- rows between ranks ----
  model::MoeOptions moe;
  ep::DispatchShape dispatch;
  // Buffers of ranks that compute all batches together; that share experts; that share sequences.
  std::optional<model::JointLayout> joint, shards, context;
  SegmentPlan segment;

  // ---- bytes ----
  std::vector<MemoryPlan> memory;  // of each pipeline stage
  std::vector<OnlinePlan> online;  // of each pipeline stage; empty: placements never change

  ExpertRanks experts;

  // Tokens of a prompt and its answer that also fit into a rank's cache.
  int longest_sequence() const;
  // Ranks that have requests of their own; 1: all ranks compute all batches.
  int num_request_owners() const { return joint ? 1 : mapping.sizes().tp; }
  int num_nodes() const { return static_cast<int>(ranks_of_nodes.size()); }
  bool balances_online() const { return !online.empty(); }
  parallel::LayerRange layers_of(int rank) const {
    return mapping.pp_layers(mapping.coordinates(rank).pp_rank, model.config.num_layers);
  }
  // The smallest memory it runs in, of all ranks on one machine: with the cache that the settings
  // ask for, else one page of it per rank.
  uint64_t bytes_needed(std::optional<int64_t> cache_tokens_per_rank) const;
};

// Errors (invalid input): settings that do not fit the model or each other; (failed) there is too
// little memory for a page of the cache.
Result<RunPlan> plan_run(const ModelFacts& model, const RunOptions& options,
                         const base::Machine& machine);

// Tokens that a prompt and its answer may have together by the model and the settings. Errors
// (invalid input): the settings want more than the model was made for.
Result<int> max_sequence(const RunOptions& options, const model::ModelConfig& config);

// What follows from the settings alone; max_pages is 0 where these say nothing of the cache.
engine::SchedulerLimits scheduler_limits(const RunOptions& options);

// The plan by the names that its parts have where people set them, in an order that is always the
// same: what has to be equal on all ranks of a run.
transport::Settings settings_of(const RunPlan& plan);

}  // namespace wideep::run
