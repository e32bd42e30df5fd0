// SPDX-License-Identifier: Apache-2.0
//
// Everything that the ranks of a run share. The parent makes it before it forks the ranks.
//
//   options → Run::prepare (read_run_inputs, plan_run) → Run::load → RankGroup::start
//
// Input is checked before anything large is allocated. If a launcher has started the ranks, there
// is no parent: each rank does all of this itself, and after every step the ranks exchange their
// status (agree_on).
//
// Thread safety: prepare() and load() on one thread; afterwards constant.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/shared_bytes.h"
#include "base/trace.h"
#include "formats/new_directories.h"
#include "model/model.h"
#include "run/packed_weights.h"
#include "run/run_inputs.h"
#include "run/run_plan.h"

namespace wideep::grammar {
class Vocabulary;
}

namespace wideep::run {

class Run {
 public:
  // Reads, plans, and creates the memory that ranks share. options outlive the run. more: further
  // settings that all ranks must have in common. Collective if a launcher has started the ranks.
  // Errors: as read_run_inputs, plan_run and check_prompt_places; a directory for expert statistics
  // that cannot be written or has some; no memory for the host pool, the host cache or the trace; a
  // setting that differs between ranks, with both values.
  static Result<std::unique_ptr<Run>> prepare(const RunOptions& options,
                                              const transport::Settings& more = {});
  // The same if the caller has read the inputs, or failed to.
  static Result<std::unique_ptr<Run>> prepare(const RunOptions& options, Result<RunInputs> inputs,
                                              const transport::Settings& more = {});
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Loads all weights except the experts, which the ranks load. on_bytes: called with the bytes of
  // each tensor read, from any thread. Collective if a launcher has started the ranks. Errors: too
  // little memory, with both figures; a file that cannot be read.
  Status load(const std::function<void(uint64_t)>& on_bytes);

  const RunOptions& options() const { return options_; }
  const RunInputs& inputs() const { return inputs_; }
  const RunPlan& plan() const { return plan_; }
  const model::ModelWeights& weights() const { return weights_; }
  // With RunOptions::takes_grammars, once loaded; else null.
  const grammar::Vocabulary* vocabulary() const { return vocabulary_.get(); }
  std::span<const OnlineParts> online() const { return online_; }  // of each stage, or empty
  // Of this node, with RunOptions::host_cache_bytes; else null.
  const base::SharedBytes* host_tier_memory() const { return host_tier_ ? &*host_tier_ : nullptr; }
  // Of what is kept by name (run/page_geometry.h); "": pages have no names.
  const std::string& record_class() const { return record_class_; }
  // Whether requests are looked for before they are submitted: in places, or at peers where pages
  // can have the form that they have in common (run/page_geometry.h).
  bool looks_for_prompts() const { return looks_for_prompts_; }
  const base::TraceBuffer* trace() const { return trace_ ? &*trace_ : nullptr; }
  // What all ranks must have in common, as prepare() found it: a node keeps its weights while it
  // connects again, whatever its files are by then. Empty without a launcher and other nodes.
  const transport::Settings& settings() const { return settings_; }
  // REQUIRES: RunOptions::needs_tokenizer, or the model has one.
  const tokenizer::Tokenizer& tokenizer() const { return inputs_.tokenizer.value(); }
  // By all processes of load() and of the ranks.
  uint64_t bytes_to_load() const;
  // From which weights are taken, once load() has begun; null: from the checkpoint.
  const packed::PackedFile* packed() const { return packed_ ? &*packed_ : nullptr; }

  // Whether the file of RunOptions::routing_log is of this run, not of an earlier one.
  bool has_written_routing_log() const;

  // Writes the trace that options.profile asks for, if any. REQUIRES: the ranks have ended.
  // Errors: the file cannot be written.
  Status write_trace() const;

 private:
  Run(const RunOptions& options, RunInputs inputs, RunPlan plan)
      : options_(options), inputs_(std::move(inputs)), plan_(std::move(plan)) {}
  Status prepare_places();
  Status make_shared_memory();
  Status prepare_recording();
  Status check_memory() const;
  Status prepare_packed();
  Status write_packed(base::ThreadPool& threads, const std::function<void(uint64_t)>& on_bytes);
  model::PackOrder pack_order(base::ThreadPool* threads) const;

  const RunOptions& options_;
  RunInputs inputs_;
  RunPlan plan_;
  transport::Settings settings_;
  std::optional<PackedPlace> packed_place_;
  std::optional<packed::PackedFile> packed_;
  model::ModelWeights weights_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  std::vector<OnlineParts> online_;
  std::optional<base::SharedBytes> host_tier_;
  std::string record_class_;
  bool looks_for_prompts_ = false;
  std::optional<base::TraceBuffer> trace_;
  // Of the expert statistics; removed after the run if nothing was recorded.
  std::optional<formats::NewDirectories> statistics_directory_;
  std::optional<std::filesystem::file_time_type> earlier_routing_log_;
};

// With a launcher, collective: ok if every rank passes ok and equal settings, else the same error
// on all ranks. Without a launcher: returns `mine`.
Status agree_on(const RunOptions& options, const Status& mine,
                const transport::Settings& settings = {});

}  // namespace wideep::run
