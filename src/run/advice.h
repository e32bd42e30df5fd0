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
#include "run/run_plan.h"

namespace wideep::run {

// Two sentences for people, without a full stop at the end.
struct Advice {
  std::string finding;  // what is so, and what follows from it
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
  uint64_t kv_tokens = 0;        // that fit into the memory beside all else, over all ranks
  std::optional<Advice> advice;  // where it does not fit, or barely

  bool fits() const { return bytes_needed <= bytes_usable; }
};

// Whether a model would run on the machine as someone wants to run it, in the smallest memory that
// this takes: with the KV cache asked for, else one page of it per rank. Errors (invalid input): as
// plan_run.
Result<ModelFit> judge_fit(const ModelFacts& model, const RunOptions& options,
                           const base::Machine& machine);

}  // namespace wideep::run
