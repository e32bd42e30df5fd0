// SPDX-License-Identifier: Apache-2.0
//
// wideep bench prepare-dataset: writes a dataset of requests, as trtllm-bench prepare-dataset does.
//
// Three commands of one shape: each has its own options for lengths and a function that makes the
// requests; what is common stands at their parent. The two random ones leave out the special tokens
// at both ends of the vocabulary.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "foreign_options.h"
#include "measure/serving/dataset.h"
#include "output_file.h"

namespace wideep::tools {
namespace {

using Takes = ForeignOption::Takes;

constexpr const char* kNoAdapters = "task ids stand for LoRA adapters, of which there are none";
constexpr ForeignOption kForeign[] = {
    {"--trust-remote-code", Takes::kNothing, nullptr, "no code of a model is run"},
    {"--task-id", Takes::kNumber, nullptr, kNoAdapters},
    {"--rand-task-id", Takes::kTexts, nullptr, kNoAdapters},
    {"--lora-dir", Takes::kText, "", "there are no LoRA adapters; leave it out"},
};
constexpr ForeignOption kForeignReal[] = {
    {"--dataset-image-key", Takes::kText, "image", "only text is supported, images are left out"},
};

struct Options {
  ForeignOptions foreign;
  std::string output;
  bool to_stdout = false;
  std::string tokenizer, model, model_path;
  uint64_t seed = 420;
  int num_requests = 0;
  measure::NormalLength normal_input, normal_output;
  measure::UniformLength uniform_input, uniform_output;
  measure::RealDataset real;
  std::string output_distribution;  // "mean,stdev"; "": 128,0, or the length of golden answers
};

using Make = Result<std::vector<measure::DatasetRequest>> (*)(const Options&,
                                                              const tokenizer::Tokenizer&);

// The range of ids without special tokens at its ends: an end token in a prompt would not be a
// normal input. Special tokens are at the start or the end of the vocabulary.
measure::RandomDataset random_of(const Options& options, const tokenizer::Tokenizer& tokenizer) {
  measure::RandomDataset random{.count = options.num_requests, .seed = options.seed};
  int32_t limit = tokenizer.id_limit();
  while (limit > 1 && tokenizer.is_special(limit - 1)) --limit;
  while (random.min_id + 1 < limit && tokenizer.is_special(random.min_id)) ++random.min_id;
  random.num_ids = limit - random.min_id;
  return random;
}

Result<std::vector<measure::DatasetRequest>> make_normal(const Options& options,
                                                         const tokenizer::Tokenizer& tokenizer) {
  measure::RandomDataset random = random_of(options, tokenizer);
  random.input = options.normal_input;
  random.output = options.normal_output;
  return measure::random_dataset(random);
}

Status check_order(const char* name, const measure::UniformLength& length) {
  if (length.min <= length.max) return {};
  return invalid_input(
      fmt::format("--{0}-min {1} is larger than --{0}-max {2}", name, length.min, length.max));
}

Result<std::vector<measure::DatasetRequest>> make_uniform(const Options& options,
                                                          const tokenizer::Tokenizer& tokenizer) {
  WIDEEP_TRY(check_order("input", options.uniform_input));
  WIDEEP_TRY(check_order("output", options.uniform_output));
  measure::RandomDataset random = random_of(options, tokenizer);
  random.input = options.uniform_input;
  random.output = options.uniform_output;
  return measure::random_dataset(random);
}

Result<measure::NormalLength> output_lengths(const std::string& distribution) {
  measure::NormalLength output;
  char comma = '\0';
  std::istringstream text(distribution);
  const bool read = text >> output.mean >> comma >> output.stdev && (text >> std::ws).eof();
  if (read && comma == ',' && output.stdev >= 0) return output;
  return invalid_input(
      fmt::format("--output-len-dist: expected mean,stdev, found {}", distribution));
}

Result<std::vector<measure::DatasetRequest>> make_real(const Options& options,
                                                       const tokenizer::Tokenizer& tokenizer) {
  measure::RealDataset real = options.real;
  real.count = options.num_requests;
  real.seed = options.seed;
  if (!real.prompt.empty() && !real.prompt_key.empty()) {
    return invalid_input("--dataset-prompt and --dataset-prompt-key exclude each other");
  }
  if (!options.output_distribution.empty() && !real.output_key.empty()) {
    log::info("--dataset-output-key: accepted, no effect: --output-len-dist says the lengths");
    real.output_key.clear();
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(real.source.path, error)) {
    for (const auto& [option, value] :
         {std::pair{"--dataset-split", real.source.split},
          std::pair{"--dataset-config-name", real.source.configuration}}) {
      if (value.empty()) continue;
      log::info("{}: accepted, no effect: {} is one file", option, real.source.path);
    }
  }
  WIDEEP_TRY_ASSIGN(
      real.output,
      output_lengths(options.output_distribution.empty() ? "128,0" : options.output_distribution));
  return measure::real_dataset(real, tokenizer);
}

// --tokenizer, or the model's.
Result<std::string> tokenizer_of(const Options& options) {
  for (const std::string* path : {&options.tokenizer, &options.model_path, &options.model}) {
    if (!path->empty()) return *path;
  }
  return invalid_input(
      "--tokenizer: expected a model directory with tokenizer.json (or --model), found none");
}

Status run(const Options& options, Make make) {
  WIDEEP_TRY(options.foreign.take());
  if (options.to_stdout && !options.output.empty()) {
    return invalid_input("--stdout and --output both say where to write: give one of them");
  }
  const std::string output = options.output.empty() ? "preprocessed_dataset.json" : options.output;
  if (!options.to_stdout) WIDEEP_TRY(check_output_file(output));
  WIDEEP_TRY_ASSIGN(const std::string path, tokenizer_of(options));
  WIDEEP_TRY_ASSIGN(const tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::read(path));
  WIDEEP_TRY_ASSIGN(const std::vector<measure::DatasetRequest> requests, make(options, tokenizer));
  if (options.to_stdout) {
    std::fputs(measure::dataset_text(requests).c_str(), stdout);
    return {};
  }
  WIDEEP_TRY(measure::write_dataset(output, requests));
  std::puts(fmt::format("{}: {} requests", output, requests.size()).c_str());
  return {};
}

struct Kind {
  const char* name;
  const char* what;
  Make make;
  bool may_take_all = false;  // without --num-requests
};

command_line::Command add_kind(command_line::Command command, const Kind& of,
                               const std::shared_ptr<Options>& options, Status* status) {
  const command_line::Command kind = command.add_command(of.name, of.what);
  command_line::Option number =
      kind.add_option("--num-requests", options->num_requests,
                      of.may_take_all ? "Most requests (default: all)" : "Number of requests");
  number.range(1, 1 << 24);
  if (!of.may_take_all) number.required();
  kind.on_run([options, make = of.make, status] { *status = run(*options, make); });
  return kind;
}

void add_normal(command_line::Command kind, const char* name, measure::NormalLength* length) {
  kind.add_option(fmt::format("--{}-mean", name), length->mean, "Mean number of tokens")
      .required()
      .range(1.0, 1e7);
  kind.add_option(fmt::format("--{}-stdev", name), length->stdev,
                  "Standard deviation of the number of tokens")
      .required()
      .range(0.0, 1e7);
}

void add_uniform(command_line::Command kind, const char* name, measure::UniformLength* length) {
  kind.add_option(fmt::format("--{}-min", name), length->min, "Fewest tokens")
      .required()
      .range(1, 1 << 24);
  kind.add_option(fmt::format("--{}-max", name), length->max, "Most tokens")
      .required()
      .range(1, 1 << 24);
}

void add_real(command_line::Command real, Options& options) {
  options.foreign.add_to(real, kForeignReal);
  real.add_option("--dataset-name,--dataset", options.real.source.path,
                  "File of JSON lines, JSON or CSV, or a folder of them")
      .path()
      .required();
  real.add_option("--dataset-config-name", options.real.source.configuration,
                  "Folder of a configuration in it");
  real.add_option("--dataset-split", options.real.source.split,
                  "Split of a folder: files or folders whose names begin with it");
  real.add_option("--dataset-input-key", options.real.key, "Key whose value is the text")
      .show_default();
  real.add_option("--dataset-prompt", options.real.prompt, "Text to put before each text");
  real.add_option("--dataset-prompt-key", options.real.prompt_key,
                  "Key of a text to put before each text");
  real.add_option("--dataset-output-key", options.real.output_key,
                  "Key of a golden answer, as long as which answers shall be");
  real.add_option("--max-input-len", options.real.max_input,
                  "Leave out texts with more tokens; 0: use all")
      .range(0, 1 << 24);
  real.add_option("--output-len-dist", options.output_distribution,
                  "mean,stdev of the number of tokens of the answers (default: 128,0, or golden "
                  "answers' lengths)");
}

}  // namespace

void add_bench_dataset_command(command_line::Command bench, Status* status) {
  const command_line::Command command = bench.add_command(
      "prepare-dataset", "Write a dataset of requests (JSON lines) for the other benchmarks");
  auto options = std::make_shared<Options>();
  command.require_command();
  command.add_alias("dataset");          // trtllm-bench's older name
  command.add_alias("prepare_dataset");  // the script before it
  command
      .add_option("--output", options->output, "File to write (default: preprocessed_dataset.json)")
      .path();
  command.add_flag("--stdout", options->to_stdout, "Print the lines instead");
  command
      .add_option("--tokenizer", options->tokenizer,
                  "Model directory with tokenizer.json (default: that of --model)")
      .model();
  command.add_option("--model,-m", options->model, "Model directory").model();
  command.add_option("--model-path", options->model_path, "The directory, where --model is a name")
      .model();
  options->foreign.add_to(command, trtllm_bench_options());
  options->foreign.add_to(command, kForeign);
  command.add_option("--random-seed", options->seed, "Seed of random tokens and lengths")
      .show_default();
  const command_line::Command normal =
      add_kind(command,
               {.name = "token-norm-dist",
                .what = "Random tokens, normally distributed lengths",
                .make = make_normal},
               options, status);
  add_normal(normal, "input", &options->normal_input);
  add_normal(normal, "output", &options->normal_output);
  const command_line::Command uniform =
      add_kind(command,
               {.name = "token-unif-dist",
                .what = "Random tokens, uniformly distributed lengths",
                .make = make_uniform},
               options, status);
  add_uniform(uniform, "input", &options->uniform_input);
  add_uniform(uniform, "output", &options->uniform_output);
  const command_line::Command real =
      add_kind(command,
               {.name = "real-dataset",
                .what = "Texts of a data set: JSON lines, JSON or CSV",
                .make = make_real,
                .may_take_all = true},
               options, status);
  real.add_alias("dataset");
  add_real(real, *options);
}

}  // namespace wideep::tools
