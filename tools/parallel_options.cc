// SPDX-License-Identifier: Apache-2.0
#include "parallel_options.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/try.h"
#include "run/layouts.h"

namespace wideep::tools {
namespace {

Result<parallel::ParallelConfig> read_config(const ParallelOptions& options) {
  if (!options.text.empty()) {
    return parallel::parse_parallel_config(options.text,
                                           options.config.empty() ? "options" : options.config);
  }
  if (!options.config.empty()) return parallel::read_parallel_config(options.config);
  return parallel::parallel_config_for_ranks(options.ranks.value_or(1));
}

}  // namespace

void add_parallel_options(command_line::Command command, ParallelOptions* options) {
  command
      .add_option(
          "--ranks", options->ranks,
          "Rank processes to start on this machine (under mpirun or srun: as many as it starts)")
      .range(1, 4096);
  command
      .add_option("--config", options->config,
                  "A parallel_config.yaml; instead of --ranks. FILE:PART reads one "
                  "worker's part of a file of several, as config.yaml:worker_config.gen")
      .path();
  command
      .add_option("--load-balancer", options->load_balancer,
                  "A moe_load_balancer.yaml: where the experts are placed, and how they are "
                  "balanced online")
      .path();
  command
      .add_option("--max-num-tokens", options->max_num_tokens,
                  "Most tokens that a rank computes in one iteration")
      .range(1, 1 << 20);
  add_precision_option(command, &options->precision);
  command
      .add_option("--kv-cache-dtype", options->kv_cache_dtype,
                  "Precision of cached keys and values (kv_cache_config.dtype); auto: that of "
                  "dispatched rows")
      .one_of({"auto", "bf16", "fp8"});
}

Result<parallel::ParallelConfig> read_parallel_options(const ParallelOptions& options,
                                                       bool log_notes) {
  if (!options.config.empty() && options.ranks) {
    return invalid_input("--ranks and --config both set the number of ranks: give one of them");
  }
  WIDEEP_TRY_ASSIGN(parallel::ParallelConfig config, read_config(options));
  if (!options.load_balancer.empty()) {
    if (config.moe_config.load_balancer || config.moe_config.load_balancer_path) {
      return invalid_input(
          fmt::format("--load-balancer: {} already sets moe_config.load_balancer: give one of them",
                      options.config));
    }
    config.moe_config.load_balancer_path = options.load_balancer;
  }
  if (!options.kv_cache_dtype.empty()) {
    const std::string dtype = options.kv_cache_dtype == "auto"   ? "AUTO"
                              : options.kv_cache_dtype == "bf16" ? "BF16"
                                                                 : "FP8";
    std::string& set = config.kv_cache_config.dtype;
    if (log_notes) {
      log_override("--kv-cache-dtype", dtype, "kv_cache_config.dtype", set == "AUTO" ? "" : set,
                   config.name);
    }
    set = dtype;
  }
  if (options.max_num_tokens) {
    if (log_notes) {
      log_override("--max-num-tokens", *options.max_num_tokens, "max_num_tokens",
                   config.max_num_tokens, config.name);
    }
    config.max_num_tokens = *options.max_num_tokens;
  }
  WIDEEP_TRY(parallel::check_supported(config));
  for (const std::string& note : config.notes) {
    if (log_notes) log::info("{}", note);
  }
  return config;
}

void log_override(const char* option, const std::string& value, const char* key,
                  const std::string& found, const std::string& file) {
  if (found.empty() || found == value) return;
  log::info("{} {} holds, not {} {} of {}", option, value, key, found, file);
}

void log_override(const char* option, int64_t value, const char* key, std::optional<int64_t> found,
                  const std::string& file) {
  log_override(option, std::to_string(value), key, found ? std::to_string(*found) : "", file);
}

void warn_of_batch_size(const parallel::ParallelConfig& config) {
  const int64_t tokens = config.max_num_tokens.value_or(run::kDefaultMaxNumTokens);
  if (config.max_batch_size.value_or(0) <= tokens) return;
  log::warn(
      "max_batch_size {} is more than max_num_tokens {}: an iteration has at most {} requests",
      *config.max_batch_size, tokens, tokens);
}

}  // namespace wideep::tools
