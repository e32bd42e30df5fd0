// SPDX-License-Identifier: Apache-2.0
//
// A run before its ranks: what they share, made by the parent before it forks them.
//
//   options -> read_run_inputs -> plan_run -> Run::prepare -> Run::load -> RankGroup::start
//
// Everything that can be wrong is found before anything large is allocated. Ranks that a launcher
// has started have no parent: each does all of it for itself, and after every step they agree on
// how it went.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/trace.h"
#include "model/model.h"
#include "run/run_inputs.h"
#include "run/run_plan.h"

namespace wideep::run {

class Run {
 public:
  // Reads, plans, and makes the memory that ranks share. options outlive the run. more: settings
  // beside the plan that started ranks must have alike. Collective of started ranks.
  // Errors: as read_run_inputs and plan_run; no memory for the host pool or the trace; started
  // ranks that differ, by the first setting that does, with both values.
  static Result<std::unique_ptr<Run>> prepare(const RunOptions& options,
                                              const transport::Settings& more = {});
  // The same where the inputs have been read already, or why they could not be.
  static Result<std::unique_ptr<Run>> prepare(const RunOptions& options, Result<RunInputs> inputs,
                                              const transport::Settings& more = {});
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // All weights but the experts, which the ranks load. on_bytes: called with the bytes of tensors
  // read, as they are. Collective of started ranks. Errors: too little memory, with both figures; a
  // file that cannot be read.
  Status load(const std::function<void(uint64_t)>& on_bytes);

  const RunOptions& options() const { return options_; }
  const RunInputs& inputs() const { return inputs_; }
  const RunPlan& plan() const { return plan_; }
  const model::ModelWeights& weights() const { return weights_; }
  std::span<const OnlineParts> online() const { return online_; }  // of each stage, or empty
  const base::TraceBuffer* trace() const { return trace_ ? &*trace_ : nullptr; }
  // REQUIRES: there is one.
  const tokenizer::Tokenizer& tokenizer() const { return inputs_.tokenizer.value(); }
  uint64_t bytes_to_load() const { return run::bytes_to_load(inputs_, plan_.balances_online()); }

  // The file that options.profile asks for, once the ranks have ended. Errors: it cannot be
  // written.
  Status write_trace() const;

 private:
  Run(const RunOptions& options, RunInputs inputs, RunPlan plan)
      : options_(options), inputs_(std::move(inputs)), plan_(std::move(plan)) {}
  Status make_shared_memory();
  Status check_memory() const;

  const RunOptions& options_;
  RunInputs inputs_;
  RunPlan plan_;
  model::ModelWeights weights_;
  std::vector<OnlineParts> online_;
  std::optional<base::TraceBuffer> trace_;
};

// Of started ranks: ok where every one is ok and has the same settings; else, on all of them, what
// is wrong. Of forked ranks: `mine`.
Status agree_on(const RunOptions& options, const Status& mine,
                const transport::Settings& settings = {});

}  // namespace wideep::run
