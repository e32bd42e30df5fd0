// SPDX-License-Identifier: Apache-2.0
//
// The options that say how ranks run a model, shared by the commands that run one: those of
// parallel_options.h, threads, the size of batches, deadlines.
#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.h"
#include "parallel_options.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::tools {

struct RankRunOptions {
  ParallelOptions parallel;
  int threads_per_rank = 0;
  std::optional<int> max_batch_size;
  std::optional<std::string> scheduler_policy;  // nothing: as the configuration says
  double timeout_seconds = 30.0;
  std::string profile_range;   // empty: nothing is profiled
  std::string profile_output;  // empty: profile.json
  bool perfect_router = false;
  bool random_weights = false;
  std::string iteration_log;  // empty: none
};

// `options` must outlive the parsing.
void add_rank_run_options(command_line::Command command, RankRunOptions* options);

// Fills in what they say; run.started may be set before, and then says how many ranks there are
// where nothing else does. Errors (invalid input): as read_parallel_options.
Status apply_rank_run_options(const RankRunOptions& options, bool tell_notes, run::RunOptions* run);

}  // namespace wideep::tools
