// SPDX-License-Identifier: Apache-2.0
//
// serving_errors reference|shape [rounds]: calibrates this machine, and holds the simulation of
// requests over time against `wideep serve` (WIDEEP, or build/wideep), in so many rounds (3) of
// a minute each. Run it in the project's directory: reference is models/reference in bf16, shape is
// bench/configs/qwen3-moe-1.3b.json in int8 with random weights.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/scratch_directory.h"
#include "base/try.h"
#include "formats/files.h"
#include "measure/calibrate/other_work.h"
#include "measure/predict/measured_advice.h"
#include "measure/predict/served_model.h"
#include "measure/predict/serving_check.h"

using namespace wideep;           // NOLINT(google-build-using-namespace): a program
using namespace wideep::measure;  // NOLINT(google-build-using-namespace)

namespace {

constexpr const char* kReference = "models/reference";
constexpr const char* kTokenizer = "models/reference/tokenizer.json";
constexpr const char* kShape = "bench/configs/qwen3-moe-1.3b.json";
constexpr int kRanks[] = {1, 2};

[[noreturn]] void end(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.message());
  std::exit(2);
}

std::vector<ServingLoad> loads() {
  return {{.concurrency = 1}, {.concurrency = 4}, {.share = 0.3}, {.share = 0.6}, {.share = 0.8}};
}

Result<std::vector<CheckedService>> reference() {
  std::vector<CheckedService> services;
  for (const int ranks : kRanks) {
    WIDEEP_TRY_ASSIGN(const auto config, model::read_model_config(kReference));
    WIDEEP_TRY_ASSIGN(auto parallel, parallel::parallel_config_for_ranks(ranks));
    services.push_back({.layout = {.name = fmt::format("reference EP {}", ranks),
                                   .config = config,
                                   .parallel = std::move(parallel),
                                   .batches = {1, 8},
                                   .prompts = {128},
                                   .checkpoint = kReference},
                        .ranks = ranks,
                        .arguments = {"--model", kReference},
                        .loads = loads(),
                        .requests = 160,
                        .input = {.min = 32, .max = 192},
                        .output = {.min = 16, .max = 64}});
  }
  return services;
}

Result<std::vector<CheckedService>> shape(const std::string& directory) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(kShape));
  WIDEEP_TRY(write_model_directory(directory, text, kTokenizer));
  std::vector<CheckedService> services;
  for (const int ranks : kRanks) {
    WIDEEP_TRY_ASSIGN(const auto config, model::parse_model_config(text, kShape));
    WIDEEP_TRY_ASSIGN(auto parallel, parallel::parallel_config_for_ranks(ranks));
    services.push_back({.layout = {.name = fmt::format("1.3 G EP {}", ranks),
                                   .config = config,
                                   .format = kernels::WeightFormat::kInt8,
                                   .parallel = std::move(parallel),
                                   .batches = {1, 8},
                                   .prompts = {128}},
                        .ranks = ranks,
                        .arguments = {"--model", directory, "--random-weights", "--dtype", "int8"},
                        .loads = loads(),
                        .requests = 40,
                        .input = {.min = 32, .max = 128},
                        .output = {.min = 8, .max = 24}});
  }
  return services;
}

void print(const ServingCheck& check, double busy) {
  const cost::Hardware hardware = check.hardware();
  for (const int ranks : kRanks) {
    const advise::ServingOverhead overhead = check.overhead(hardware, ranks);
    fmt::print(
        "serving beside iterations, EP {}: a request {:.0f} us, an iteration {:.0f} us, a "
        "token {:.1f} us\n",
        ranks, 1e6 * overhead.request, 1e6 * overhead.iteration, 1e6 * overhead.token);
  }
  for (const auto& [layout, factors] : check.factors(hardware)) {
    fmt::print("{}: {}\n", layout, text_of(factors));
  }
  const auto cells = check.judge(hardware);
  if (!cells.ok()) end(cells.status());
  fmt::print("ms: predicted, measured, error %, noise %\n{:40} {:>30} {:>30} {:>30} {:>30}\n", "",
             "TTFT median", "TTFT p99", "TPOT median", "TPOT p99");
  for (const ServedCell& cell : *cells) fmt::print("{}\n", text_of(cell));
  const ServedSummary summary = summarize(*cells);
  fmt::print(
      "{} workloads; medians: median error {:.1f} %, worst {:.1f} %, noise {:.1f} %; p99: "
      "median error {:.1f} %, worst {:.1f} %, noise {:.1f} %; others used {:.0f} %\n",
      cells->size(), 100 * summary.median, 100 * summary.worst, 100 * summary.noise,
      100 * summary.median_p99, 100 * summary.worst_p99, 100 * summary.noise_p99, 100 * busy);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "";
  if (model != "reference" && model != "shape") {
    end(invalid_input("serving_errors: expected reference or shape, found '" + model + "'"));
  }
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 3;
  const char* program = std::getenv("WIDEEP");
  const base::ScratchDirectory directory;
  auto services = model == "shape" ? shape(directory.path()) : reference();
  if (!services.ok()) end(services.status());
  auto check = ServingCheck::make(program != nullptr ? program : "build/wideep", kTokenizer,
                                  std::move(services).value());
  if (!check.ok()) end(check.status());
  const OtherWork others;
  run::RunView view;
  for (int round = 0; round < rounds; ++round) {
    if (const Status status = check->measure_round(view); !status.ok()) end(status);
  }
  print(*check, others.share());
  return 0;
}
