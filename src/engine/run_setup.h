// SPDX-License-Identifier: Apache-2.0
//
// From options to all that ranks start from. Everything that can be wrong is found before anything
// large is allocated:
//
//   options → read_run_files → run_shapes → Run::make → Run::load → ranks (engine/rank_run.h)
//
// Ranks that a launcher has started each do the same, and agree on how it went.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/memory_plan.h"
#include "engine/online_parts.h"
#include "engine/profile.h"
#include "engine/rank_engine.h"
#include "engine/statistics_recorder.h"
#include "kernels/weight_format.h"
#include "parallel/parallel_config.h"
#include "tokenizer/tokenizer.h"
#include "transport/started_ranks.h"
#include "weights/checkpoint.h"
#include "wideep/status.h"

namespace wideep::engine {

struct RunOptions {
  std::string model_dir;
  // Made-up weights from this seed, for measuring speed: of the directory only config.json and
  // tokenizer.json are read, or model_dir is a config.json itself.
  std::optional<uint64_t> random_weights;
  bool needs_tokenizer = true;        // else the model need not have one: requests are token ids
  parallel::ParallelConfig parallel;  // has passed parallel::check_supported
  int threads_per_rank = 0;           // 0: cores / ranks, at least 1
  // Of matrices; nothing: as they are stored, floats in bf16.
  std::optional<kernels::WeightFormat> format;
  int prefill_chunk = 0;  // 0: max_num_tokens
  bool logits_digest = false;
  std::optional<StatisticsRequest> statistics;
  std::optional<ProfileRequest> profile;
  bool routing_log = false;
  double cache_share = 0.3;     // of the free memory, that a server's KV cache may grow to
  std::string iteration_log;    // file (engine/iteration_log.h); empty: none
  bool perfect_router = false;  // see model::MoeOptions; the texts mean nothing
  // For tests: called for each pipeline stage before the ranks start.
  std::function<void(OnlineParts&)> adjust_online;
  std::chrono::milliseconds timeout{30'000};  // of any wait of a rank for another
  // The ranks that a launcher has started, this process among them; null: they are forked here.
  transport::StartedRanks* started = nullptr;

  // Whether requests that begin alike share pages of the cache. A routing log wants the experts of
  // every token, of those too that would not be computed again.
  bool reuses_pages() const { return parallel.kv_cache_config.enable_block_reuse && !routing_log; }
  Dtype cache_dtype() const {
    return engine::cache_dtype(parallel.kv_cache_config.dtype,
                               format.value_or(kernels::WeightFormat::kBf16));
  }
};

struct RunFiles {
  const kernels::Kernels* kernels = nullptr;
  model::ModelConfig config;
  balance::ModelPlacement placement;
  std::optional<tokenizer::Tokenizer> tokenizer;  // nothing: none was needed, and none is there
  std::unique_ptr<weights::TensorSource> tensors;
  const weights::Checkpoint* checkpoint = nullptr;  // the same; null: they are made up
  int max_sequence = 0;                             // tokens of a prompt and its answer together
};
// Errors (invalid input): files that are missing or wrong, and settings that do not fit them.
Result<RunFiles> read_run_files(const RunOptions& options);

// As the configuration says; max_pages is 0 where it says nothing.
SchedulerLimits scheduler_limits(const RunOptions& options);

// Sizes and forms that follow from options, files and limits.
struct RunShapes {
  SchedulerLimits limits;
  model::ModelForms forms;
  model::MoeOptions moe;
  std::optional<model::JointLayout> joint;
  PipelineLayout pipeline;
};
// Errors (invalid input): sizes that do not divide.
Result<RunShapes> run_shapes(const RunOptions& options, const RunFiles& files,
                             const SchedulerLimits& limits);

// Everything the ranks have in common: made by the parent before it forks, or alike by each rank.
struct RunSetup {
  const RunOptions& options;
  const model::ModelConfig& config;
  const weights::TensorSource& tensors;
  const weights::Checkpoint* checkpoint;  // the same; null: they are made up
  const model::ModelForms& forms;
  const balance::ModelPlacement& placement;  // of all layers
  const kernels::Kernels& kernels;
  const model::ModelWeights& weights;  // all but the experts: loaded before the fork, then shared
  std::vector<Request> requests;
  ep::DispatchShape dispatch;
  model::MoeOptions moe;
  SchedulerLimits limits;
  parallel::Mapping mapping;
  std::optional<model::JointLayout> joint;  // as RankSetup has it
  PipelineLayout pipeline;
  ThreadPlan threads;
  std::span<const OnlineParts> online;       // as RankSetup has it
  const base::TraceBuffer* trace = nullptr;  // where options.profile goes
  // Where each rank reads requests that come while it runs (engine/request_feed.h); empty: all are
  // there.
  std::vector<int> feeds = {};
};

// Owns what a RunSetup refers to.
class Run {
 public:
  // options outlive it. Errors: no memory for the host pool or the trace.
  static Result<std::unique_ptr<Run>> make(const RunOptions& options, RunFiles files,
                                           RunShapes shapes, std::vector<Request> requests);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const RunSetup& setup() const { return *setup_; }
  void set_feeds(std::vector<int> feeds) { setup_->feeds = std::move(feeds); }
  int max_sequence() const { return files_.max_sequence; }
  bool has_tokenizer() const { return files_.tokenizer.has_value(); }
  // REQUIRES: there is one.
  const tokenizer::Tokenizer& tokenizer() const { return files_.tokenizer.value(); }

  // All weights but the experts. on_bytes: told the bytes read, as they are. Errors: too little
  // memory, with both figures; a file that cannot be read.
  Status load(const std::function<void(uint64_t)>& on_bytes);

 private:
  Run(RunFiles files, RunShapes shapes) : files_(std::move(files)), shapes_(std::move(shapes)) {}
  Status make_online(const RunOptions& options);

  RunFiles files_;
  RunShapes shapes_;
  model::ModelWeights weights_;
  std::vector<OnlineParts> online_;
  std::optional<base::TraceBuffer> trace_;
  std::optional<RunSetup> setup_;
};

// Of started ranks: ok where every one is, and all have the same settings. Others: `mine`.
Status agree_on(const RunOptions& options, const Status& mine,
                const transport::Settings& settings = {});

std::vector<MemoryPlan> memory_of_stages(const RunSetup& setup);
// Ascending.
std::vector<std::vector<int>> moe_layers_of_stages(const RunSetup& setup);

}  // namespace wideep::engine
