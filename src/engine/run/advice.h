// SPDX-License-Identifier: Apache-2.0
//
// The findings of `wideep doctor`: what prevents or slows a run on this machine, and the remedy.
// Computed from facts that the caller has read.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "run/run_plan.h"

namespace wideep::run {

// Two sentences for people, without a full stop at the end.
struct Advice {
  std::string finding;  // the fact and its consequence
  std::string remedy;   // what to do
};

// Warnings about processors, memory settings and limits, for num_ranks ranks on the machine.
// isa: the kernels chosen; best_isa: those that would be chosen without WIDEEP_ISA.
std::vector<Advice> machine_advice(const base::Machine& machine, int num_ranks,
                                   std::string_view isa, std::string_view best_isa);

struct ModelFit {
  RunPlan plan;
  MemoryPlan memory;  // of plan, as fullest() has it
  uint64_t bytes_needed = 0;
  uint64_t bytes_usable = 0;
  uint64_t kv_tokens = 0;        // cached tokens that fit beside everything else, over all ranks
  std::optional<Advice> advice;  // if the model does not fit, or barely fits

  bool fits() const { return bytes_needed <= bytes_usable; }
  uint64_t bytes_of_experts() const;  // of bytes_needed, the slots of all ranks
};

// Memory of each rank for experts (run/expert_memory.h) with which the model fits with some room,
// if the others are read from packed weights. 0: what is not experts does not fit, or the layout
// needs all of them in memory.
uint64_t expert_memory_to_give(const ModelFit& fit);

// Whether the model runs on the machine with these options, in the smallest possible memory: with
// the KV cache of kv_cache_config.max_tokens, or if that is not set one page per rank. Errors
// (invalid input): as plan_run.
Result<ModelFit> judge_fit(const ModelFacts& model, const RunOptions& options,
                           const base::Machine& machine);

}  // namespace wideep::run
