// SPDX-License-Identifier: Apache-2.0
//
// The options that set how ranks run a model: those of parallel_options.h, threads, batch sizes,
// deadlines, and what is recorded. All commands that run a model share them.
#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.h"
#include "parallel_options.h"
#include "record_options.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::tools {

struct RankRunOptions {
  ParallelOptions parallel;
  int threads_per_rank = 0;
  std::optional<int> max_batch_size;
  std::optional<int> context;   // tokens
  std::string kv_cache_memory;  // as base::parse_byte_size reads it; empty: not given
  std::optional<std::string> scheduler_policy;  // nothing: that of the configuration
  double timeout_seconds = 30.0;
  std::string profile_range;   // empty: nothing is profiled
  std::string profile_output;  // empty: profile.json
  bool perfect_router = false;
  bool random_weights = false;
  std::string packed_cache;
  std::string expert_memory;  // as run::parse_expert_memory reads it; empty: not given
  std::string iteration_log;  // empty: none
  std::optional<int64_t> iteration_log_max_mib;
  RecordOptions record;
  bool streams = false;  // the command heeds stream_interval of the configuration
};

// `options` must outlive the parsing.
void add_rank_run_options(command_line::Command command, RankRunOptions* options);

// --perfect-router; and whether it, or ENABLE_PERFECT_ROUTER, is set. Errors (invalid input): the
// variable is not 0 or 1.
void add_perfect_router_option(command_line::Command command, bool* option);
Result<bool> read_perfect_router(bool option);

// --model, which is required and may also be given as MODEL alone.
// is_required: false where the command can do without.
void add_model_option(command_line::Command command, std::string* model_dir,
                      bool is_required = true);

// --generation-config, of run::read_sampling_defaults.
void add_generation_config_option(command_line::Command command, std::string* from);

// TLLM_BENCHMARK_REQ_QUEUES_SIZE: how many requests shall wait before the first iteration; 0: unset.
// Errors (invalid input): no positive integer.
Result<int> read_start_queue();

// Writes the options into *run. If run->started is set (by mpirun or srun), it gives the number of
// ranks unless --ranks or --config does. log_notes: as in read_parallel_options. Errors (invalid
// input): those of read_parallel_options and read_record_options; an environment variable that is
// not 0 or 1, or has no effect; statistics of a perfect router. alone: the path of expert
// statistics may be given alone.
Status apply_rank_run_options(const RankRunOptions& options, bool log_notes, run::RunOptions* run,
                              PathAlone alone = PathAlone::kRefused);

}  // namespace wideep::tools
