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
#include <memory>
#include <sstream>
#include <string>

#include "base/try.h"
#include "commands.h"
#include "measure/serving/dataset.h"
#include "output_file.h"

namespace wideep::tools {
namespace {

struct Options {
  std::string output;
  std::string tokenizer;
  uint64_t seed = 420;
  int num_requests = 0;
  measure::NormalLength normal_input, normal_output;
  measure::UniformLength uniform_input, uniform_output;
  measure::RealDataset real;
  std::string output_distribution = "128,0";  // "mean,stdev"
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

Result<std::vector<measure::DatasetRequest>> make_real(const Options& options,
                                                       const tokenizer::Tokenizer& tokenizer) {
  measure::RealDataset real = options.real;
  real.count = options.num_requests;
  real.seed = options.seed;
  measure::NormalLength output;
  char comma = '\0';
  std::istringstream text(options.output_distribution);
  const bool read = text >> output.mean >> comma >> output.stdev && (text >> std::ws).eof();
  if (!read || comma != ',' || output.stdev < 0) {
    return invalid_input(fmt::format("--output-len-dist: expected mean,stdev, found {}",
                                     options.output_distribution));
  }
  real.output = output;
  return measure::real_dataset(real, tokenizer);
}

Status run(const Options& options, Make make) {
  WIDEEP_TRY(check_output_file(options.output));
  WIDEEP_TRY_ASSIGN(const tokenizer::Tokenizer tokenizer,
                    tokenizer::Tokenizer::read(options.tokenizer));
  WIDEEP_TRY_ASSIGN(const std::vector<measure::DatasetRequest> requests, make(options, tokenizer));
  WIDEEP_TRY(measure::write_dataset(options.output, requests));
  std::puts(fmt::format("{}: {} requests", options.output, requests.size()).c_str());
  return {};
}

struct Kind {
  const char* name;
  const char* what;
  Make make;
};

command_line::Command add_kind(command_line::Command command, const Kind& of,
                               const std::shared_ptr<Options>& options, Status* status) {
  const command_line::Command kind = command.add_command(of.name, of.what);
  kind.add_option("--num-requests", options->num_requests, "Number of requests")
      .required()
      .range(1, 1 << 24);
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

}  // namespace

void add_bench_dataset_command(command_line::Command bench, Status* status) {
  const command_line::Command command = bench.add_command(
      "prepare-dataset", "Write a dataset of requests (JSON lines) for the other benchmarks");
  auto options = std::make_shared<Options>();
  command.require_command();
  command.add_option("--output", options->output, "File to write").required();
  command.add_option("--tokenizer", options->tokenizer, "Model directory with tokenizer.json")
      .required();
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
  const command_line::Command real = add_kind(
      command,
      {.name = "real-dataset", .what = "Texts from a file of JSON lines", .make = make_real},
      options, status);
  real.add_option("--dataset", options->real.path, "The file of JSON lines").required();
  real.add_option("--dataset-input-key", options->real.key, "Key whose value is the text")
      .show_default();
  real.add_option("--max-input-len", options->real.max_input,
                  "Leave out texts with more tokens; 0: use all")
      .range(0, 1 << 24);
  real.add_option("--output-len-dist", options->output_distribution,
                  "mean,stdev of the number of tokens of the answers")
      .show_default();
}

}  // namespace wideep::tools
