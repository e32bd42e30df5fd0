// SPDX-License-Identifier: Apache-2.0
//
// wideep bench model: prefill and decode speed, next to the machine's limits.
//
// Only reads options and shows progress; measure/bench_model.h does the rest. A config.json alone
// suffices with random weights, for models that are not on this machine.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/progress.h"
#include "base/try.h"
#include "bench_model_output.h"
#include "commands.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "generate_output.h"
#include "measure/model/bench_model.h"
#include "model/model_files.h"
#include "precision_option.h"
#include "record_options.h"
#include "run_options.h"
#include "weights/random_tensors.h"

namespace wideep::tools {
namespace {

struct Options {
  std::string model_dir;
  std::string config_file;
  bool random_weights = false;
  PrecisionOption precision;
  std::string kv_cache_dtype = "auto";
  measure::ModelBenchOptions bench;
  RecordOptions record;
  bool json = false;
};

Status check_source(const Options& options) {
  if (!options.model_dir.empty() && !options.config_file.empty()) {
    return invalid_input("--model and --config both name the model: give one of them");
  }
  if (options.model_dir.empty() && options.config_file.empty()) {
    return invalid_input("no model: give --model DIR, or --config config.json --random-weights");
  }
  if (!options.config_file.empty() && !options.random_weights) {
    return invalid_input(fmt::format(
        "--config {}: a config.json has no weights; add --random-weights, or give --model DIR",
        options.config_file));
  }
  return {};
}

Result<model::ModelConfig> read_config(const Options& options) {
  if (!options.model_dir.empty()) return model::read_model_config(options.model_dir);
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(options.config_file));
  return model::parse_model_config(text, options.config_file);
}

Result<std::unique_ptr<weights::TensorSource>> open_tensors(Options& options) {
  if (options.random_weights) {
    return std::unique_ptr<weights::TensorSource>(
        std::make_unique<weights::RandomTensors>(options.bench.bench.seed));
  }
  WIDEEP_TRY_ASSIGN(model::ModelFiles files,
                    model::ModelFiles::open(options.model_dir, &options.bench.config));
  return std::move(files).take_tensors();
}

// A progress line for each phase, if stderr is a terminal.
class ProgressLines : public measure::ModelBenchView {
 public:
  void loading(uint64_t done, uint64_t all) override { loading_.show(done, all); }
  void run_done(int, int all) override {
    loading_.end();
    if (!runs_) runs_.emplace("measuring", all, "runs");
    runs_->step();
  }

 private:
  LoadingLine loading_;
  std::optional<base::Progress> runs_;
};

Status run(const Options& given) {
  Options options = given;
  WIDEEP_TRY(check_source(options));
  WIDEEP_TRY_ASSIGN(Recording recording, read_record_options(options.record, true));
  WIDEEP_TRY_ASSIGN(options.bench.perfect_router,
                    read_perfect_router(options.bench.perfect_router));
  WIDEEP_TRY(check_recording(recording, options.bench.perfect_router));
  options.bench.statistics = std::move(recording.statistics);
  options.bench.routing_log = std::move(recording.routing_log);
  WIDEEP_TRY_ASSIGN(options.bench.config, read_config(options));
  WIDEEP_TRY_ASSIGN(auto tensors, open_tensors(options));
  options.bench.precision = options.precision.format().value_or(options.bench.config.stored_format);
  options.bench.as_stored = !options.precision.format() && !options.random_weights;
  if (options.kv_cache_dtype != "auto") {
    options.bench.precision.cache = options.kv_cache_dtype == "fp8" ? Dtype::kF8E4M3 : Dtype::kBf16;
  }
  const std::string& path = options.model_dir.empty() ? options.config_file : options.model_dir;
  options.bench.model_dir = path;
  const auto report = [&] {
    ProgressLines lines;  // its destructor clears the line before the report is printed
    return measure::run_model_bench(options.bench, std::move(tensors), lines);
  }();
  if (!report.ok()) return report.status();
  const BenchedModel model{
      .name = std::filesystem::path(path).lexically_normal().string(),
      .random_weights = options.random_weights,
      .precision = report->formats,
      .options = options.bench,
  };
  const std::string text = options.json ? formats::json_text(bench_json(model, *report), 2) + "\n"
                                        : bench_text(model, *report);
  std::fputs(text.c_str(), stdout);
  return {};
}

void add_what_options(command_line::Command command, Options& options) {
  command
      .add_option("--model", options.model_dir,
                  "Model directory (Hugging Face layout), or a GGUF file")
      .model();
  command
      .add_option("--config", options.config_file,
                  "A config.json without a model directory; needs --random-weights")
      .path();
  command.add_flag("--random-weights", options.random_weights,
                   "Random weights: only config.json is read");
  add_perfect_router_option(command, &options.bench.perfect_router);
  add_precision_option(command, &options.precision);
  command
      .add_option("--kv-cache-dtype", options.kv_cache_dtype,
                  "Precision of cached keys and values; auto: that of dispatched rows")
      .one_of({"auto", "bf16", "fp8"})
      .show_default();
  command.add_option("--seed", options.bench.bench.seed, "Seed of tokens and of random weights")
      .range(uint64_t{0}, uint64_t{1} << 62);
}

void add_how_options(command_line::Command command, Options& options) {
  command.add_option("--ranks", options.bench.num_ranks, "Rank processes to start on this machine")
      .range(1, 4096)
      .show_default();
  command
      .add_option("--threads", options.bench.threads_per_rank,
                  "Threads of each rank; 0: cores divided by ranks")
      .range(0, 1024)
      .show_default();
}

void add_test_options(command_line::Command command, measure::BenchOptions& bench) {
  command
      .add_option(
          "--prompt", bench.prompt,
          "Prefill test: tokens of each prompt, with one prompt per rank; 0: no prefill test")
      .range(0, 1 << 20)
      .show_default();
  command
      .add_option("--generate", bench.generate,
                  "Decode tests: steps to measure; 0: no decode tests")
      .range(0, 1 << 20)
      .show_default();
  command
      .add_option(
          "--batch", bench.batches,
          "Decode tests: sequences in the batch, over all ranks; one test for each value: A,B,C")
      .separate_values_by(',')
      .range(1, 1 << 16)
      .show_default();
  command
      .add_option("--depth", bench.depth,
                  "Decode tests: tokens of each sequence before the first measured step")
      .range(1, 1 << 20)
      .show_default();
  command
      .add_option("--repeat", bench.repeats, "Measured runs of each test, after one run to warm up")
      .range(1, 1000)
      .show_default();
}

}  // namespace

void add_bench_model_command(command_line::Command bench, Status* status) {
  const command_line::Command command = bench.add_command(
      "model", "Measure prefill and decode speed of a model, as shares of this machine's limits");
  auto options = std::make_shared<Options>();
  add_what_options(command, *options);
  add_how_options(command, *options);
  add_test_options(command, options->bench.bench);
  add_record_options(command, &options->record);
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
