// SPDX-License-Identifier: Apache-2.0
//
// trtllm-bench's options under their names, so that its command lines work. Those without a meaning
// here are hidden: harmless ones are accepted with a line, the others refused. --tp, --pp and --ep
// become the text of a configuration file, so that there is one way to set sizes.
#include "load_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/progress.h"
#include "base/try.h"
#include "generate_output.h"

namespace wideep::tools {
namespace {

Status check_foreign(const ForeignOptions& foreign) {
  if (!foreign.engine_dir.empty()) {
    return invalid_input(
        "--engine-dir: wideep builds no engines, it runs --model DIR; leave --engine-dir out");
  }
  if (!foreign.modality.empty()) {
    return invalid_input(
        fmt::format("--modality {}: only text is supported; leave it out", foreign.modality));
  }
  if (foreign.beam_width != 1) {
    return invalid_input(fmt::format("--beam-width: expected 1 (there is no beam search), found {}",
                                     foreign.beam_width));
  }
  if (foreign.cluster_size != 1) {
    return invalid_input(
        fmt::format("--cluster-size: expected 1 (moe_cluster_parallel_size is not built), found {}",
                    foreign.cluster_size));
  }
  return {};
}

void log_foreign(const ForeignOptions& foreign) {
  const auto note = [](bool given, const char* option, const char* why) {
    if (given) log::info("{}: accepted, no effect: {}", option, why);
  };
  note(!foreign.backend.empty(), "--backend", "wideep has only one");
  note(foreign.max_input_len > 0, "--max-input-len", "lengths come from the dataset");
  note(foreign.target_input_len > 0, "--target-input-len", "wideep tunes nothing by it");
  note(foreign.target_output_len > 0, "--target-output-len", "wideep tunes nothing by it");
  note(foreign.chunked_context, "--enable-chunked-context",
       "prompts are always computed in chunks");
}

// --tp, --pp and --ep as the configuration that they stand for.
Status add_sizes(const LoadOptions& options, ParallelOptions* parallel) {
  if (!options.extra_config.empty()) {
    if (!parallel->config.empty()) {
      return invalid_input(
          "--config and --extra-llm-api-options name the same file: give one of them");
    }
    parallel->config = options.extra_config;
  }
  if (!options.tp && !options.pp && !options.ep) return {};
  if (parallel->ranks || !parallel->config.empty()) {
    return invalid_input(
        "--tp, --pp and --ep set the parallel sizes, as --ranks and --config do: give one of them");
  }
  const int tp = options.tp.value_or(1);
  parallel->text = fmt::format(
      "tensor_parallel_size: {}\npipeline_parallel_size: {}\n"
      "moe_expert_parallel_size: {}\n",
      tp, options.pp.value_or(1), options.ep.value_or(tp));
  return {};
}

void add_what_options(command_line::Command command, LoadOptions& options) {
  command
      .add_option(
          "--model,--model-path", options.bench.run.model_dir,
          "Model directory (Hugging Face layout); with --random-weights also just a config.json")
      .required();
  command
      .add_option("--dataset", options.dataset,
                  "JSON lines with \"prompt\" or \"input_ids\", and \"output_tokens\"")
      .required();
  command
      .add_option("--num-requests", options.num_requests,
                  "Use only this many requests, from the start of the dataset; 0: all")
      .range(0, 1 << 24);
  command
      .add_option(
          "--eos-id", options.eos_id,
          "Id of the token that ends an answer; -1: every answer has its output_tokens tokens")
      .show_default();
}

void add_arrival_options(command_line::Command command, LoadOptions& options) {
  command
      .add_option("--concurrency", options.concurrency,
                  "Most requests in the engine at the same time; -1: no limit")
      .range(-1, 1 << 24)
      .show_default();
  command
      .add_option("--request-rate", options.bench.arrivals.request_rate,
                  "Requests per second, which arrive as a Poisson process; inf: all at once")
      .check(check_request_rate)
      .show_default();
  command.add_option("--seed", options.bench.arrivals.seed, "Seed of the arrival times")
      .range(uint64_t{0}, uint64_t{1} << 62);
  command.add_option("--warmup", options.bench.warmup, "Requests that run before the measurement")
      .range(0, 1 << 20)
      .show_default();
}

void add_engine_options(command_line::Command command, LoadOptions& options) {
  add_rank_run_options(command, &options.ranks);
  command.add_option("--extra-llm-api-options", options.extra_config, "The same as --config");
  command.add_flag(
      "--enable-block-reuse", options.block_reuse,
      "Let requests with the same prefix share pages of the KV cache, including those of the "
      "warm-up; without this option none do, even if the configuration enables it");
  for (const auto& [name, value] : {std::pair{"--tp", &options.tp}, std::pair{"--pp", &options.pp},
                                    std::pair{"--ep", &options.ep}}) {
    command
        .add_option(name, *value,
                    "Tensor (--tp), pipeline (--pp) or expert (--ep) parallel size, without "
                    "attention DP; instead of --ranks")
        .range(1, 4096);
  }
  command
      .add_option("--max-seq-len", options.max_seq_len,
                  "Most tokens of a prompt and its answer together")
      .range(1, 1 << 24);
  command
      .add_option("--kv-cache-free-gpu-mem-fraction", options.bench.run.cache_share,
                  "Share of the free memory that the KV cache may grow to")
      .range(0.001, 1.0)
      .show_default();
}

void add_foreign_options(command_line::Command command, ForeignOptions& foreign) {
  const auto hidden = [&](const std::string& name, auto& value) {
    command.add_option(name, value).hide();
  };
  hidden("--backend", foreign.backend);
  hidden("--engine-dir", foreign.engine_dir);
  hidden("--modality", foreign.modality);
  hidden("--beam-width", foreign.beam_width);
  hidden("--cluster-size", foreign.cluster_size);
  hidden("--max-input-len", foreign.max_input_len);
  hidden("--target-input-len", foreign.target_input_len);
  hidden("--target-output-len", foreign.target_output_len);
  command.add_flag("--enable-chunked-context", foreign.chunked_context).hide();
}

}  // namespace

std::string check_request_rate(const std::string& text) {
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (*end == '\0' && rate > 0.0) return "";
  return fmt::format("expected requests per second, more than 0, or inf, found {}", text);
}

void add_load_options(command_line::Command command, LoadOptions* options) {
  add_what_options(command, *options);
  add_arrival_options(command, *options);
  add_engine_options(command, *options);
  add_foreign_options(command, options->foreign);
}

Result<measure::ThroughputOptions> read_load_options(const LoadOptions& options) {
  measure::ThroughputOptions result = options.bench;
  WIDEEP_TRY(check_foreign(options.foreign));
  log_foreign(options.foreign);
  RankRunOptions ranks = options.ranks;
  WIDEEP_TRY(add_sizes(options, &ranks.parallel));
  WIDEEP_TRY(apply_rank_run_options(ranks, true, &result.run));
  if (options.max_seq_len) result.run.parallel.max_seq_len = *options.max_seq_len;
  result.run.parallel.kv_cache_config.enable_block_reuse = options.block_reuse;
  if (options.eos_id >= 0) result.eos_token = options.eos_id;
  result.concurrency = std::max(options.concurrency, 0);
  WIDEEP_TRY_ASSIGN(result.requests, measure::read_dataset(options.dataset));
  const auto max = static_cast<size_t>(options.num_requests);
  if (max > result.requests.size()) {
    return invalid_input(fmt::format("--num-requests: {} has {} requests, found {}",
                                     options.dataset, result.requests.size(), max));
  }
  if (max > 0) result.requests.resize(max);
  return result;
}

namespace {

class ProgressLines : public measure::ThroughputView {
 public:
  explicit ProgressLines(size_t num_requests) : num_requests_(num_requests) {}
  void plan(const std::string& lines) override { run_.plan(lines); }
  void loading(uint64_t done, uint64_t all) override { run_.loading(done, all); }
  void request_done() override {
    run_.end_loading();
    if (!requests_) {
      requests_.emplace("measuring", static_cast<int64_t>(num_requests_), "requests");
    }
    requests_->step();
  }

 private:
  size_t num_requests_;
  RunLines run_;
  std::optional<base::Progress> requests_;
};

}  // namespace

Result<measure::ThroughputRun> run_with_progress(const measure::ThroughputOptions& options) {
  ProgressLines lines(options.requests.size());
  return measure::run_throughput(options, lines);
}

}  // namespace wideep::tools
