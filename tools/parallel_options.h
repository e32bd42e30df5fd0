// SPDX-License-Identifier: Apache-2.0
//
// The options that set how a model is spread over ranks. All commands that run or check a model
// share them.
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
  // A parallel_config.yaml made from other options (--tp, ...), with the keys of --config, if that
  // is given: it is read instead.
  std::string text;
  std::string load_balancer;
  std::optional<int> max_num_tokens;
  PrecisionOption precision;
  std::string kv_cache_dtype;  // empty: the configuration's

  std::optional<kernels::WeightFormat> format() const { return precision.format(); }
};

// Adds --ranks, --config, --load-balancer, --max-num-tokens, --dtype and --kv-cache-dtype.
// `options` must outlive the parsing.
void add_parallel_options(command_line::Command command, ParallelOptions* options);

// Reads --config, or makes the configuration of --ranks (default: 1), and applies the options that
// override single keys. log_notes: logs a line (log::info) for each key that is accepted without
// effect. Errors (invalid input): those of parallel::read_parallel_config and
// parallel::check_supported; two options that set the same thing.
Result<parallel::ParallelConfig> read_parallel_options(const ParallelOptions& options,
                                                       bool log_notes = true);

// Logs that the value of an option holds instead of another one that the configuration has for the
// same; found: "" where it has none.
void log_override(const char* option, const std::string& value, const char* key,
                  const std::string& found, const std::string& file);
void log_override(const char* option, int64_t value, const char* key, std::optional<int64_t> found,
                  const std::string& file);

// Logs that max_batch_size is more than max_num_tokens allow, which then are the limit: a request
// of a batch has at least one token.
void warn_of_batch_size(const parallel::ParallelConfig& config);

}  // namespace wideep::tools
