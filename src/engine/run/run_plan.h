// SPDX-License-Identifier: Apache-2.0
//
// A run as one value: which rank computes what, in which amounts, in which memory. Everything that
// follows from model, settings and machine is computed here once. `doctor`, `parallel explain` and
// the lines at the start print it, every rank uses it, and ranks that a launcher has started
// compare theirs before anything is loaded.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine.h"
#include "model/model_division.h"
#include "model/model_forms.h"
#include "model/state_layout.h"
#include "parallel/mapping.h"
#include "recordings/statistics_writer.h"
#include "run/layouts.h"
#include "run/memory_plan.h"
#include "run/online_parts.h"
#include "run/run_inputs.h"
#include "run/thread_plan.h"
#include "schedule/scheduler_limits.h"
#include "transport/node_map.h"

namespace wideep::run {

// The MoE layers that each rank reports, and the files of their expert statistics.
struct ExpertRanks {
  int stage_size = 0;  // ranks per pipeline stage; a stage is a range of ranks
  struct Rank {
    std::vector<int> moe_layers;  // ascending, as in IterationRecord::layers
    int file = 0;                 // number of its statistics file
  };
  std::vector<Rank> ranks;
  int dispatch_ranks = 1;  // of a stage: groups of so many dispatch to each other, in order
  int num_slices = 1;      // of each expert; see ep::DispatchShape
  int borrowed_slots = 0;  // the last ones of each rank
  recordings::StatisticsShape statistics;

  // The MoE layers of a stage; all its ranks have the same.
  const std::vector<int>& layers_of_stage(int stage) const {
    return ranks[static_cast<size_t>(stage * stage_size)].moe_layers;
  }
  int num_stages() const { return static_cast<int>(ranks.size()) / stage_size; }
};

struct RunPlan {
  ModelFacts model;
  parallel::Mapping mapping;
  std::vector<int> ranks_of_nodes = {};  // [nodes] number of ranks
  // The nodes of a run with keepers on several of them.
  std::optional<transport::NodeMap> kept_nodes = {};
  int start_ranks = 0;  // with which the run starts
  ThreadPlan threads;

  // ---- requests ----
  engine::SchedulerLimits limits;  // of a rank's iterations and its cache
  engine::SpeculationOptions speculation;
  int max_sequence = 0;        // most tokens of a prompt and its answer, by model and settings
  Dtype cache = Dtype::kBf16;  // of cached keys and values
  engine::PipelineLayout pipeline;

  // ---- rows between ranks ----
  model::MoeOptions moe;
  ep::DispatchShape dispatch;
  // Buffers that ranks share: those that compute all batches together; those that hold slices of
  // the same experts; those that share sequences; those that share the LM head of predictions, in
  // groups of at most shared_head_ranks.
  std::optional<model::JointLayout> joint, shards, context, heads;
  int shared_head_ranks = 1;
  SegmentPlan segment;

  // ---- bytes ----
  std::vector<MemoryPlan> memory;  // [pipeline stages]
  // Not all of a rank's experts are in memory: only slots_per_rank bytes.
  bool has_absent_experts = false;
  double absent_share = 0.0;       // of a rank's experts
  std::vector<OnlinePlan> online;  // [pipeline stages]; empty: placements never change
  uint64_t host_cache = 0;         // of a node, for prompts of all its ranks

  ExpertRanks experts;

  // Most tokens of a prompt and its answer: max_sequence, or less if the cache is smaller.
  int longest_sequence() const;
  // The number of ranks that have requests of their own; 1: all ranks compute all batches.
  int num_request_owners() const { return joint ? 1 : mapping.sizes().tp; }
  // The most requests that can run at the same time, over all ranks.
  int64_t max_running() const {
    return int64_t{limits.max_batch_size} * limits.micro_batches * num_request_owners();
  }
  int num_nodes() const { return static_cast<int>(ranks_of_nodes.size()); }
  bool balances_online() const { return !online.empty(); }
  // Whether any number of ranks can go on with the requests of the others: every rank computes its
  // own requests whole, and only the experts are shared out.
  bool is_elastic() const;
  // The dispatch between these ranks of an elastic run, or between so many on any nodes, and the
  // slots that each then has.
  ep::DispatchShape dispatch_between(std::span<const int> ranks) const;
  ep::DispatchShape dispatch_between(int num_ranks) const;
  int slots_per_rank(int num_ranks) const;
  parallel::LayerRange layers_of_stage(int stage) const {
    return model::stage_layers(model.config, stage, mapping.sizes().pp);
  }
  parallel::LayerRange layers_of(int rank) const {
    return layers_of_stage(mapping.coordinates(rank).pp_rank);
  }
  // The part of every state that a rank keeps.
  model::StatePart state_part_of(int rank) const {
    const parallel::Coordinates at = mapping.coordinates(rank);
    const parallel::ParallelSizes& sizes = mapping.sizes();
    return joint ? model::StatePart::of_rank(at.tp_rank, sizes.tp, at.cp_rank, sizes.cp)
                 : model::StatePart::of_rank(0, 1, at.cp_rank, sizes.cp);
  }
  // The smallest memory in bytes that all ranks need on one machine: with this cache per rank, or
  // for nullopt with one page per rank; with the state of one sequence per rank, and the host cache.
  uint64_t bytes_needed(std::optional<int64_t> cache_tokens_per_rank) const;
};

// Errors (invalid input): settings that do not fit the model or each other; (failed) there is too
// little memory for a page of the cache.
Result<RunPlan> plan_run(const ModelFacts& model, const RunOptions& options,
                         const base::Machine& machine);

// Tokens that a prompt and its answer may have together by the model and the settings. Errors
// (invalid input): the settings want more than the model was made for.
Result<int> max_sequence(const RunOptions& options, const model::ModelConfig& config);

// The limits that follow from the settings alone; max_pages is 0 if kv_cache_config.max_tokens is
// not set.
engine::SchedulerLimits scheduler_limits(const RunOptions& options);

// Of which slots have which experts: 16 hexadecimal digits.
std::string content_hash_of(const balance::ModelPlacement& placement);

// What must be equal on all ranks of a run: names, as users set them, and values, in a fixed order.
transport::Settings settings_of(const RunPlan& plan);

}  // namespace wideep::run
