// SPDX-License-Identifier: Apache-2.0
//
// A run goes the way of every other, by run::Run and RankGroup, or another engine than the serving
// one would be measured. Switched off is what would skip work or add some: end tokens, pages shared
// between prompts, reports while requests run. A model that does not fit is refused before anything
// is loaded.
#include "measure/model/bench_ranks.h"

#include <cstdlib>
#include <random>
#include <utility>

#include "base/machine.h"
#include "base/try.h"
#include "model/model_division.h"
#include "parallel/initial_placement.h"
#include "run/advice.h"
#include "run/without_experts.h"

namespace wideep::measure {
namespace {

// Settings that give every rank the limits, and nothing else: no shared prefix pages, which would
// skip work that is to be measured.
run::RunOptions run_options(const BenchRanksOptions& options) {
  run::RunOptions run;
  run.threads_per_rank = options.threads_per_rank;
  if (!options.as_stored) run.format = options.precision.weights;
  run.timeout = options.timeout;
  run.model_dir = options.model_dir;
  run.statistics = options.statistics;
  run.routing_log = options.routing_log;
  run.perfect_router = options.perfect_router;
  run.parallel = options.parallel;
  run.parallel.max_batch_size = options.limits.max_batch_size;
  run.parallel.max_num_tokens = options.limits.max_num_tokens;
  run.parallel.kv_cache_config.max_tokens =
      int64_t{options.limits.max_pages} * kernels::kPageTokens;
  run.parallel.kv_cache_config.enable_block_reuse = false;
  if (options.precision.cache == Dtype::kF8E4M3) run.parallel.kv_cache_config.dtype = "FP8";
  if (options.precision.cache == Dtype::kBf16) run.parallel.kv_cache_config.dtype = "BF16";
  return run;
}

Result<run::RunInputs> run_inputs(const BenchRanksOptions& options,
                                  const run::RunOptions& run_options,
                                  std::unique_ptr<weights::TensorSource> tensors) {
  run::RunInputs inputs;
  WIDEEP_TRY_ASSIGN(inputs.kernels, kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  run::ModelFacts& model = inputs.model;
  model.config = options.config;
  // It has no configuration file, so that nothing can be without effect.
  WIDEEP_TRY(run::settings_without_experts(run_options, model.config).status());
  model.config.eos_token_ids.clear();  // sequences must not end before the last step
  model.forms = options.precision.forms
                    ? *options.precision.forms
                    : model::uniform_forms(model.config, options.precision.weights);
  WIDEEP_TRY_ASSIGN(model.placement, parallel::initial_placement(
                                         run_options.parallel, {model::moe_layers(model.config),
                                                                model.config.routing.num_experts}));
  inputs.own_tensors = std::move(tensors);
  return inputs;
}

Status check_memory(const run::ModelFacts& model, const run::RunOptions& options) {
  WIDEEP_TRY_ASSIGN(const run::ModelFit fit, run::judge_fit(model, options, base::read_machine()));
  if (fit.fits()) return {};
  return failed(fit.advice->finding + "; " + fit.advice->remedy);
}

// For the progress line: bytes of the tensors in a bf16 checkpoint, without biases and norms.
uint64_t bytes_to_load(const model::ModelConfig& config) {
  return static_cast<uint64_t>(model::count_parameters(config).all) * dtype_bytes(Dtype::kBf16);
}

}  // namespace

std::vector<engine::Request> random_requests(int count, int prompt, int tokens, int vocabulary,
                                             uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<engine::Request> requests(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> ids(static_cast<size_t>(prompt));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
    }
    engine::Request& request = requests[static_cast<size_t>(i)];
    request.index = i;
    request.prompt = std::move(ids);
    request.max_tokens = tokens;
  }
  return requests;
}

Result<std::unique_ptr<BenchRanks>> BenchRanks::start(
    const BenchRanksOptions& options, std::unique_ptr<weights::TensorSource> tensors,
    run::RunView& view, const std::function<void(const run::Run&)>& prepared) {
  std::unique_ptr<BenchRanks> ranks(new BenchRanks);
  ranks->options_ = run_options(options);
  const run::RunOptions& settings = ranks->options_;
  WIDEEP_TRY_ASSIGN(run::RunInputs inputs, run_inputs(options, settings, std::move(tensors)));
  WIDEEP_TRY(check_memory(inputs.model, settings));
  WIDEEP_TRY_ASSIGN(ranks->run_, run::Run::prepare(settings, std::move(inputs)));
  if (prepared) prepared(*ranks->run_);
  run::LoadingProgress loading(view, bytes_to_load(options.config));
  WIDEEP_TRY(ranks->run_->load([&](uint64_t bytes) { loading.add(bytes); }));
  WIDEEP_TRY_ASSIGN(ranks->group_, run::RankGroup::start(*ranks->run_));
  ranks->group_->requests().record_experts(true);
  for (bool ready = false; !ready;) {
    WIDEEP_TRY_ASSIGN(const run::Event event, ranks->next_event());
    if (const auto* read = std::get_if<run::WeightsRead>(&event)) loading.add(read->bytes);
    ready = std::holds_alternative<run::RanksReady>(event);
  }
  return ranks;
}

// If the ranks end before they have been asked to, that is an error.
Result<run::Event> BenchRanks::next_event() {
  if (auto event = group_->next()) return std::move(*event);
  WIDEEP_TRY(group_->result());
  return interrupted("interrupted");
}

Result<std::vector<run::Iteration>> BenchRanks::run(std::vector<engine::Request> requests) {
  group_->requests().submit_together(std::move(requests), run::RequestWriter::Reports::kWhenIdle);
  std::vector<run::Iteration> iterations;
  for (;;) {
    WIDEEP_TRY_ASSIGN(run::Event event, next_event());
    if (std::holds_alternative<run::RanksIdle>(event)) return iterations;
    if (auto* each = std::get_if<run::Iteration>(&event)) iterations.push_back(std::move(*each));
  }
}

Status BenchRanks::finish() {
  group_->requests().finish();
  while (group_->next()) {
  }
  return group_->result();
}

}  // namespace wideep::measure
