// SPDX-License-Identifier: Apache-2.0
//
// What stands in the way on this machine, and what to do about it: the judgement of `wideep
// doctor`, from facts alone.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "engine/memory_plan.h"

namespace wideep::engine {

// Two sentences for people, without a full stop at the end.
struct Advice {
  std::string finding;  // what is so, and what follows from it
  std::string remedy;   // what to do
};

// Warnings about processors, memory settings and limits, for num_ranks ranks on the machine.
// isa: the kernels chosen; best_isa: those that would be chosen without WIDEEP_ISA.
std::vector<Advice> machine_advice(const base::Machine& machine, int num_ranks,
                                   std::string_view isa, std::string_view best_isa);

// A model as someone wants to run it.
struct ModelRun {
  model::ModelConfig config;
  int num_ranks = 1;                          // of a pipeline stage
  int num_slots = 0;                          // of a layer, on all ranks
  int num_slices = 1;                         // into which each expert is cut
  int num_groups = 1;                         // of as many ranks, that share sequences
  int turn_pages = 1;                         // see MemoryPlan
  int max_num_tokens = kDefaultMaxNumTokens;  // that a rank dispatches
  std::optional<int64_t> moe_max_num_tokens;  // of all ranks in one dispatch
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  // Of the checkpoint's matrices, where they are read as they are stored; else all are in `format`.
  std::optional<model::ModelForms> stored_forms;
  std::optional<kernels::RowFormat> dispatch, combine;  // as model::MoeOptions
  ep::Combine combine_rows = ep::Combine::kExact;
  std::string kv_cache_dtype = "AUTO";         // kv_cache_config.dtype
  std::optional<uint64_t> kv_tokens_per_rank;  // of the KV cache, where the configuration says
  std::optional<model::JointLayout> joint;     // of ranks that share every batch
  PipelineLayout pipeline;

  ep::DispatchShape dispatch_shape() const;

  std::string format_names() const;
  std::vector<MemoryPlan> stages() const;  // of the pipeline
  // The smallest memory it runs in: with the KV cache asked for, else one page of it per rank.
  uint64_t bytes_needed() const;
};

struct ModelFit {
  MemoryPlan plan;  // as fullest() has it
  uint64_t bytes_needed = 0;
  uint64_t bytes_usable = 0;
  uint64_t kv_tokens = 0;        // that fit into the memory beside all else, over all ranks
  std::optional<Advice> advice;  // where it does not fit, or barely

  bool fits() const { return bytes_needed <= bytes_usable; }
};

ModelFit judge_fit(const ModelRun& run, const base::Machine& machine);

}  // namespace wideep::engine
