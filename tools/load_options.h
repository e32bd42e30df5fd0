// SPDX-License-Identifier: Apache-2.0
//
// The options of `wideep bench throughput`, `latency` and `compare-routing` that select the model,
// the dataset and the load: those of trtllm-bench, and those of every command that runs ranks.
#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.h"
#include "foreign_options.h"
#include "measure/serving/throughput_run.h"
#include "run_options.h"
#include "wideep/status.h"

namespace wideep::tools {

struct LoadOptions {
  RankRunOptions ranks;
  measure::ThroughputOptions bench;
  ForeignOptions foreign;  // of trtllm-bench
  std::string model;       // a directory, or a name beside model_path
  std::string model_path;
  std::string dataset;
  std::string extra_config;  // --extra-llm-api-options
  std::string sampler_options;
  std::optional<int> tp, pp, ep, max_seq_len;
  std::optional<double> cache_share;  // of the free memory
  int num_requests = 0;               // 0: all
  int concurrency = -1;
  int eos_id = -1;
  bool ignore_eos = false;
  bool block_reuse = false;
};

// --model, or the directory where that is not given.
std::string name_of_model(const LoadOptions& options);

// Check of --request-rate, for Option::check(): "" if `text` is more than 0 or inf, else the
// message. (Option::positive() would refuse inf.)
std::string check_request_rate(const std::string& text);

// `options` must outlive the parsing.
void add_load_options(command_line::Command command, LoadOptions* options);

// From the options to the input of measure::run_throughput, with the dataset read. Errors (invalid
// input): options that contradict each other or are refused; a configuration or a dataset that
// cannot be read.
Result<measure::ThroughputOptions> read_load_options(const LoadOptions& options);

// Runs with a progress line if stderr is a terminal. Errors: those of measure::run_throughput.
Result<measure::ThroughputRun> run_with_progress(const measure::ThroughputOptions& options);

}  // namespace wideep::tools
