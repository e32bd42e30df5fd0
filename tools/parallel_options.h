// SPDX-License-Identifier: Apache-2.0
//
// The options that say how a model is spread over ranks, shared by the commands that run or judge
// one.
#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.h"
#include "parallel/parallel_config.h"
#include "precision_option.h"
#include "wideep/status.h"

namespace wideep::tools {

struct ParallelOptions {
  std::optional<int> ranks;
  std::string config;
  std::string text;  // of a configuration that other options stand for; instead of both
  std::string load_balancer;
  std::optional<int> max_num_tokens;
  PrecisionOption precision;
  std::string kv_cache_dtype;  // empty: the configuration's

  std::optional<kernels::WeightFormat> format() const { return precision.format(); }
};

// Adds --ranks, --config, --load-balancer, --max-num-tokens, --dtype and --kv-cache-dtype.
// `options` must outlive the parsing.
void add_parallel_options(command_line::Command command, ParallelOptions* options);

// The configuration file, or what --ranks means (default: 1), with the options that override single
// keys. Tells of keys without effect (log::info), if asked to.
// Errors (invalid input): as parallel::read_parallel_config and parallel::check_supported; two
// options that say the same.
Result<parallel::ParallelConfig> read_parallel_options(const ParallelOptions& options,
                                                       bool tell_notes = true);

}  // namespace wideep::tools
