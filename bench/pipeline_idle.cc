// SPDX-License-Identifier: Apache-2.0
//
// How long the stages of a pipeline wait for each other while m equal micro-batches are prefilled,
// beside the theory: with p stages a micro-batch is p − 1 steps on its way before the last stage
// has work, and the first has none in the last p − 1, so that each stage idles in p − 1 of m + p −
// 1 steps. Made-up weights; layers that the stages divide evenly, and a vocabulary too small to
// make the last one late.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/machine.h"
#include "base/try.h"
#include "engine/rank_engine.h"
#include "formats/files.h"
#include "parallel/initial_placement.h"
#include "transport/rank_processes.h"
#include "weights/random_tensors.h"

namespace wideep {
namespace {

struct Options {
  std::string config = "bench/configs/pipeline-even.json";
  int stages = 2;
  std::vector<int> micro_batches = {1, 2, 4, 8, 16};
  int tokens = 256;  // of a micro-batch: one prompt's
  int runs = 5;
  int under_way = 0;  // micro-batches at once; 0: as many as stages
};

// Of one rank in one run.
struct Times {
  int32_t stage = 0;
  int32_t micro_batches = 0;
  engine::RunTimes spent;
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

parallel::ParallelConfig parallel_of(const Options& options) {
  parallel::ParallelConfig parallel;
  parallel.sizes.pp = options.stages;
  parallel.max_num_tokens = options.tokens;
  return parallel;
}

// All that ranks have in common beside `placement` and `weights`.
Result<engine::RankSetup> rank_setup(const Options& options, const model::ModelConfig& config,
                                     const weights::TensorSource& tensors,
                                     const balance::ModelPlacement& placement,
                                     const model::ModelWeights& weights) {
  const parallel::ParallelConfig parallel = parallel_of(options);
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels, kernels::select_kernels(nullptr));
  const int most = *std::max_element(options.micro_batches.begin(), options.micro_batches.end());
  const int pages = most * ((options.tokens + 1) / kernels::kPageTokens + 1);
  WIDEEP_TRY_ASSIGN(engine::PipelineLayout pipeline,
                    engine::pipeline_layout(parallel, config, options.tokens, most));
  if (options.under_way > 0) pipeline.micro_batches = options.under_way;
  const model::MoeOptions moe{.row_dtype = kernels::row_dtype(kernels::WeightFormat::kBf16)};
  return engine::RankSetup{
      .config = config,
      .tensors = tensors,
      .placement = placement,
      .kernels = *kernels,
      .weights = weights,
      .format = kernels::WeightFormat::kBf16,
      .dispatch = engine::dispatch_shape(config, 1, placement.num_slots, options.tokens, moe),
      .moe = moe,
      .limits = {.max_batch_size = most,
                 .max_num_tokens = std::max(options.tokens, most),
                 .prefill_chunk = options.tokens,
                 .max_pages = pages,
                 .micro_batches = pipeline.micro_batches},
      .mapping = parallel.mapping(),
      .pipeline = pipeline,
      .threads = engine::plan_threads(base::read_machine(), options.stages, 1)};
}

Status prefill(engine::Engine& engine, const model::ModelConfig& config, int prompts, int tokens) {
  for (int i = 0; i < prompts; ++i) {
    engine::Request request{.index = i, .prompt = {}, .max_tokens = 1, .sampling = {}};
    for (int t = 0; t < tokens; ++t) {
      request.prompt.push_back((i * 31 + t * 7) % config.vocab_size);
    }
    WIDEEP_TRY(engine.submit(std::move(request)));
  }
  return engine.run();
}

Status run_rank(const Options& options, const engine::RankSetup& setup,
                transport::Endpoint& endpoint, const transport::MessagePipe& pipe) {
  WIDEEP_TRY_ASSIGN(const auto rank,
                    engine::RankEngine::start(setup, endpoint, [](uint64_t) {}, {}));
  engine::Engine& engine = rank->engine();
  WIDEEP_TRY(prefill(engine, setup.config, 2, options.tokens));  // to warm up
  for (int run = 0; run < options.runs; ++run) {
    for (const int micro_batches : options.micro_batches) {
      WIDEEP_TRY(endpoint.meet({.what = "the start of a run"}));
      const engine::RunTimes before = engine.times();
      WIDEEP_TRY(prefill(engine, setup.config, micro_batches, options.tokens));
      const engine::RunTimes after = engine.times();
      const Times times{
          endpoint.rank(),
          micro_batches,
          {after.wall_ns - before.wall_ns, after.stage_wait_ns - before.stage_wait_ns}};
      WIDEEP_TRY(pipe.send({reinterpret_cast<const char*>(&times), sizeof(times)}));
    }
  }
  return {};
}

// What the ranks have told.
class Board {
 public:
  void add(std::string_view message) {
    Times times;
    std::memcpy(&times, message.data(), sizeof(times));
    all_.push_back(times);
  }

  void print(const Options& options) const {
    fmt::print(
        "{} stages of one rank and thread, micro-batches of {} tokens, {} runs\n\n"
        "micro-batches   ms each    idle share   theory   measured / theory   of each stage\n",
        options.stages, options.tokens, options.runs);
    for (const int m : options.micro_batches) {
      const int steps = m + options.stages - 1;
      const double theory = double(options.stages - 1) / steps;
      std::vector<double> ms, of_stages;
      std::vector<std::vector<double>> idle(static_cast<size_t>(options.stages));
      for (const Times& times : all_) {
        if (times.micro_batches != m) continue;
        const auto wall_ns = double(times.spent.wall_ns);
        idle[static_cast<size_t>(times.stage)].push_back(double(times.spent.stage_wait_ns) /
                                                         wall_ns);
        ms.push_back(wall_ns * 1e-6 / steps);
      }
      for (std::vector<double>& each : idle) of_stages.push_back(median_of(std::move(each)));
      const double measured =
          std::accumulate(of_stages.begin(), of_stages.end(), 0.0) / options.stages;
      fmt::print("{:>13}{:>10.2f}{:>14.3f}{:>9.3f}{:>20.2f}   {:.3f}\n", m,
                 median_of(std::move(ms)), measured, theory, theory > 0 ? measured / theory : 1.0,
                 fmt::join(of_stages, " "));
    }
  }

 private:
  std::vector<Times> all_;
};

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(options.config));
  WIDEEP_TRY_ASSIGN(model::ModelConfig config, model::parse_model_config(text, options.config));
  config.eos_token_ids.clear();
  const weights::RandomTensors tensors(1);
  const weights::WeightLoader loader(tensors, kernels::WeightFormat::kBf16);
  WIDEEP_TRY_ASSIGN(const model::ModelWeights weights, model::ModelWeights::load(config, loader));
  WIDEEP_TRY_ASSIGN(
      const balance::ModelPlacement placement,
      parallel::initial_placement(parallel_of(options),
                                  {engine::moe_layers(config), config.routing.num_experts}));
  WIDEEP_TRY_ASSIGN(const engine::RankSetup setup,
                    rank_setup(options, config, tensors, placement, weights));
  Board board;
  WIDEEP_TRY(transport::run_rank_processes(
      {.num_ranks = options.stages, .segment_bytes = engine::segment_bytes(setup)},
      [&](transport::Endpoint& endpoint, const transport::MessagePipe& pipe) {
        return run_rank(options, setup, endpoint, pipe);
      },
      [&](int, std::string_view message) { board.add(message); }));
  board.print(options);
  return {};
}

}  // namespace
}  // namespace wideep

int main(int argc, char** argv) {
  wideep::Options options;
  CLI::App app("How long the stages of a pipeline wait for each other, beside the theory");
  app.add_option("--config", options.config, "A config.json; weights are made up")
      ->capture_default_str();
  app.add_option("--stages", options.stages, "Ranks, one thread each")->capture_default_str();
  app.add_option("--micro-batches", options.micro_batches, "Of a run, several numbers")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "Of a micro-batch")->capture_default_str();
  app.add_option("--runs", options.runs, "Of each number")->capture_default_str();
  app.add_option("--under-way", options.under_way, "Micro-batches at once; 0: as many as stages")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const wideep::Status status = wideep::run(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.exit_code();
}
