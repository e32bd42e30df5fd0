// SPDX-License-Identifier: Apache-2.0
#include "measure/bench_model.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/cpu_time.h"
#include "base/machine.h"
#include "base/try.h"
#include "engine/advice.h"
#include "engine/memory_plan.h"
#include "parallel/initial_placement.h"

namespace wideep::measure {
namespace {

Status check_memory(const ModelBenchOptions& options, const BenchPlan& plan,
                    const balance::ModelPlacement& placement, const base::Machine& machine) {
  const engine::ModelFit fit = engine::judge_fit(
      {.config = options.config,
       .num_ranks = options.num_ranks,
       .num_slots = placement.num_slots,
       .max_num_tokens = plan.limits.max_num_tokens,
       .format = options.precision.weights,
       .kv_tokens_per_rank = static_cast<uint64_t>(plan.limits.max_pages) * kernels::kPageTokens},
      machine);
  if (fit.fits()) return {};
  return failed(fit.advice->finding + "; " + fit.advice->remedy);
}

// Bytes that the tensors have in a checkpoint of bf16, biases and norms left out.
uint64_t bytes_to_load(const ModelBenchReport& report) {
  return static_cast<uint64_t>(report.parameters.all) * dtype_bytes(Dtype::kBf16);
}

// The parent's side: the ranks' messages become samples.
class Collector {
 public:
  Collector(const ModelBenchOptions& options, const BenchPlan& plan, ModelBenchReport* report,
            const ModelBenchObserver& observer)
      : options_(options),
        plan_(plan),
        report_(report),
        observer_(observer),
        runs_(plan.runs.size()) {}

  void loaded(uint64_t bytes) {
    loaded_bytes_ += bytes;
    if (observer_.on_loading) observer_.on_loading(loaded_bytes_, bytes_to_load(*report_));
  }

  void message(int rank, std::string_view bytes) {
    read_message(bytes, {.on_loaded = [this](uint64_t count) { loaded(count); },
                         .on_limits = [this](const limits::Limits& found) { limits(found); },
                         .on_quick_limits =
                             [this](const QuickLimits& found) { quick_limits_.push_back(found); },
                         .on_run = [&](RankRun run) { finished(rank, std::move(run)); }});
  }

  Status finish() {
    WIDEEP_TRY(failure_);
    report_->limits = mean_limits();
    for (size_t test = 0; test < plan_.tests.size(); ++test) {
      WIDEEP_TRY_ASSIGN(TestReport found, report_test(static_cast<int>(test)));
      report_->tests.push_back(std::move(found));
    }
    return {};
  }

 private:
  void limits(const limits::Limits& found) {
    if (limits_.empty()) {
      report_->load_seconds = static_cast<double>(base::wall_ns() - created_ns_) * 1e-9;
      report_->operation = operation_of(options_.precision.weights, found);
    }
    limits_.push_back(found);
  }

  // Ranks finish a run one after the other, and none starts the next before all have.
  void finished(int rank, RankRun run) {
    const size_t index = next_run_[rank]++;
    std::vector<RankRun>& ranks = runs_[index].ranks;
    ranks.push_back(std::move(run));
    if (static_cast<int>(ranks.size()) < options_.num_ranks) return;
    const BenchRun& planned = plan_.runs[index];
    if (!planned.is_warm_up && failure_.ok()) {
      auto sample =
          sample_of(options_.config, options_.precision, plan_.tests[planned.test], ranks);
      if (sample.ok()) runs_[index].sample = *sample;
      if (!sample.ok()) failure_ = sample.status();
    }
    ranks.clear();
    if (observer_.on_run) {
      observer_.on_run(static_cast<int>(index) + 1, static_cast<int>(plan_.runs.size()));
    }
  }

  Result<TestReport> report_test(int test) const {
    std::vector<BenchSample> samples;
    std::vector<std::pair<QuickLimits, QuickLimits>> around;
    for (size_t run = 0; run < plan_.runs.size(); ++run) {
      if (plan_.runs[run].test != test || plan_.runs[run].is_warm_up) continue;
      if (!runs_[run].sample || run + 1 >= quick_limits_.size()) {
        return failed(plan_.tests[test].name() + ": a run was not reported");
      }
      samples.push_back(*runs_[run].sample);
      around.emplace_back(quick_limits_[run], quick_limits_[run + 1]);
    }
    return report_of(options_.config, plan_.tests[test], samples, around);
  }

  limits::Limits mean_limits() const {
    const limits::Limits& a = limits_.front();
    const limits::Limits& b = limits_.back();
    std::vector<double> flags;
    for (const QuickLimits& each : quick_limits_) flags.push_back(each.flag_one_way_ns);
    return {.read_gbps = (a.read_gbps + b.read_gbps) / 2,
            .copy_gbps = (a.copy_gbps + b.copy_gbps) / 2,
            .f32_gops = (a.f32_gops + b.f32_gops) / 2,
            .bf16_gops = (a.bf16_gops + b.bf16_gops) / 2,
            .int8_gops = (a.int8_gops + b.int8_gops) / 2,
            .flag_one_way_ns = figure_of(std::move(flags)).median};
  }

  struct Run {
    std::vector<RankRun> ranks;  // until all have told
    std::optional<BenchSample> sample;
  };

  const ModelBenchOptions& options_;
  const BenchPlan& plan_;
  ModelBenchReport* report_;
  const ModelBenchObserver& observer_;
  std::vector<Run> runs_;
  std::map<int, size_t> next_run_;  // by rank
  std::vector<limits::Limits> limits_;
  std::vector<QuickLimits> quick_limits_;
  Status failure_;
  uint64_t loaded_bytes_ = 0;
  int64_t created_ns_ = base::wall_ns();
};

ModelBenchReport begin_report(const ModelBenchOptions& options, const kernels::Kernels& kernels,
                              const ep::DispatchShape& dispatch, const base::Machine& machine) {
  const engine::MemoryPlan plan = engine::plan_memory(
      options.config, dispatch, options.precision.weights, options.precision.cache);
  ModelBenchReport report;
  report.isa = kernels.isa;
  report.threads_per_rank =
      engine::plan_threads(machine, options.num_ranks, options.threads_per_rank).threads_per_rank;
  report.parameters = count_parameters(options.config);
  report.weight_bytes =
      plan.dense_weights + static_cast<uint64_t>(options.num_ranks) * plan.slots_per_rank;
  return report;
}

// What has passed all checks.
struct Checked {
  const ModelBenchOptions& options;
  const kernels::Kernels& kernels;
  const base::Machine& machine;
  const balance::ModelPlacement& placement;
  const BenchPlan& plan;
  const parallel::Mapping mapping;
};

// All but the experts, on a thread for every core, which end here.
Result<model::ModelWeights> load_weights(const Checked& checked,
                                         const weights::TensorSource& tensors,
                                         Collector& collector) {
  base::ThreadPool pool(checked.machine.usable_cores());
  const weights::WeightLoader loader(
      tensors, checked.options.precision.weights, [&](uint64_t bytes) { collector.loaded(bytes); },
      &pool);
  return model::ModelWeights::load(checked.options.config, loader);
}

// Loads the weights, forks the ranks and collects what they tell.
Result<ModelBenchReport> measure(const Checked& checked, const weights::TensorSource& tensors,
                                 const ModelBenchObserver& observer) {
  const auto& [options, kernels, machine, placement, plan, mapping] = checked;
  const ep::DispatchShape dispatch =
      engine::dispatch_shape(options.config, options.num_ranks, placement.num_slots,
                             plan.limits.max_num_tokens, options.precision.weights);
  ModelBenchReport report = begin_report(options, kernels, dispatch, machine);
  Collector collector(options, plan, &report, observer);
  WIDEEP_TRY_ASSIGN(const model::ModelWeights weights, load_weights(checked, tensors, collector));
  const engine::RankSetup rank_setup{
      .config = options.config,
      .tensors = tensors,
      .placement = placement,
      .kernels = kernels,
      .weights = weights,
      .format = options.precision.weights,
      .cache = options.precision.cache,
      .dispatch = dispatch,
      .moe = {.row_dtype = kernels::row_dtype(options.precision.weights)},
      .limits = plan.limits,
      .mapping = mapping,
      .threads = engine::plan_threads(machine, options.num_ranks, options.threads_per_rank)};
  const int all_threads = options.num_ranks * report.threads_per_rank;
  const RankBenchSetup setup{rank_setup, plan, limits::choose_processors(machine, all_threads)};
  WIDEEP_TRY(transport::run_rank_processes(
      {.num_ranks = options.num_ranks,
       .segment_bytes = engine::segment_bytes(rank_setup),
       .timeout = options.timeout},
      [&setup](transport::Endpoint& endpoint, const transport::MessagePipe& pipe) {
        return run_rank_bench(setup, endpoint, pipe);
      },
      [&collector](int rank, std::string_view message) { collector.message(rank, message); }));
  WIDEEP_TRY(collector.finish());
  return report;
}

}  // namespace

Result<ModelBenchReport> run_model_bench(const ModelBenchOptions& given,
                                         const weights::TensorSource& tensors,
                                         const ModelBenchObserver& observer) {
  ModelBenchOptions options = given;
  options.config.eos_token_ids.clear();
  const base::Machine machine = base::read_machine();
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels,
                    kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY_ASSIGN(const parallel::ParallelConfig parallel,
                    parallel::parallel_config_for_ranks(options.num_ranks));
  WIDEEP_TRY_ASSIGN(const balance::ModelPlacement placement,
                    parallel::initial_placement(parallel, {engine::moe_layers(options.config),
                                                           options.config.routing.num_experts}));
  WIDEEP_TRY_ASSIGN(const BenchPlan plan,
                    make_plan(options.bench, options.config, options.num_ranks));
  WIDEEP_TRY(check_memory(options, plan, placement, machine));
  return measure({options, *kernels, machine, placement, plan, parallel.mapping()}, tensors,
                 observer);
}

}  // namespace wideep::measure
