// SPDX-License-Identifier: Apache-2.0
#include "measure/bench_model.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/cpu_time.h"
#include "base/machine.h"
#include "base/try.h"
#include "parallel/initial_placement.h"
#include "run/advice.h"
#include "run/rank_group.h"

namespace wideep::measure {
namespace {

// ---- what runs ----

// Run settings that give every rank the limits of the plan, and nothing else: no shared prefix
// pages, which would skip work that the test must measure.
Result<run::RunOptions> run_options(const ModelBenchOptions& options, const BenchPlan& plan) {
  run::RunOptions run;
  run.threads_per_rank = options.threads_per_rank;
  if (!options.as_stored) run.format = options.precision.weights;
  run.timeout = options.timeout;
  WIDEEP_TRY_ASSIGN(run.parallel, parallel::parallel_config_for_ranks(options.num_ranks));
  run.parallel.max_batch_size = plan.limits.max_batch_size;
  run.parallel.max_num_tokens = plan.limits.max_num_tokens;
  run.parallel.kv_cache_config.max_tokens = int64_t{plan.limits.max_pages} * kernels::kPageTokens;
  run.parallel.kv_cache_config.enable_block_reuse = false;
  if (options.precision.cache == Dtype::kF8E4M3) run.parallel.kv_cache_config.dtype = "FP8";
  if (options.precision.cache == Dtype::kBf16) run.parallel.kv_cache_config.dtype = "BF16";
  return run;
}

Result<run::RunInputs> run_inputs(const ModelBenchOptions& options,
                                  const run::RunOptions& run_options,
                                  std::unique_ptr<weights::TensorSource> tensors) {
  run::RunInputs inputs;
  WIDEEP_TRY_ASSIGN(inputs.kernels, kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  run::ModelFacts& model = inputs.model;
  model.config = options.config;
  model.config.eos_token_ids.clear();  // sequences must not end before the test's last step
  model.forms = options.precision.forms
                    ? *options.precision.forms
                    : model::uniform_forms(model.config, options.precision.weights);
  WIDEEP_TRY_ASSIGN(model.placement, parallel::initial_placement(
                                         run_options.parallel, {run::moe_layers(model.config),
                                                                model.config.routing.num_experts}));
  inputs.own_tensors = std::move(tensors);
  return inputs;
}

Status check_memory(const run::ModelFacts& model, const run::RunOptions& options) {
  WIDEEP_TRY_ASSIGN(const run::ModelFit fit, run::judge_fit(model, options, base::read_machine()));
  if (fit.fits()) return {};
  return failed(fit.advice->finding + "; " + fit.advice->remedy);
}

// The precision of tensors as they are stored, with cached keys and values as in `given`.
Precision stored_precision(const ModelBenchOptions& given, const weights::TensorSource& tensors) {
  Precision precision = given.precision;
  precision.forms = std::make_shared<const model::ModelForms>(
      model::model_forms(given.config, weights::WeightLoader(tensors, {})));
  precision.weights = precision.forms->experts.format;
  return precision;
}

// For the progress line: bytes of the tensors in a bf16 checkpoint, without biases and norms.
uint64_t bytes_to_load(const ModelBenchReport& report) {
  return static_cast<uint64_t>(report.parameters.all) * dtype_bytes(Dtype::kBf16);
}

ModelBenchReport begin_report(const run::Run& run) {
  const run::MemoryPlan& memory = run.plan().memory[0];
  ModelBenchReport report;
  report.isa = run.inputs().kernels->isa;
  report.formats = run.inputs().model.forms.format_names();
  report.threads_per_rank = run.plan().threads.threads_per_rank;
  report.parameters = count_parameters(run.plan().model.config);
  report.weight_bytes = memory.dense_weights + memory.all_ranks() * memory.slots_per_rank;
  return report;
}

// ---- measuring ----

// Measures the machine's limits while the ranks sleep between two runs. It uses as many threads as
// all ranks together, so that the limits are those that the ranks have.
class LimitsProbe {
 public:
  LimitsProbe(const ModelBenchOptions& options, const run::RunPlan& plan)
      : format_(options.precision.weights),
        probe_(limits::choose_processors(base::read_machine(),
                                         options.num_ranks * plan.threads.threads_per_rank)) {}

  limits::Limits measure() {
    const limits::Limits limits = probe_.measure();
    operation_ = operation_of(format_, limits);
    return limits;
  }
  // REQUIRES: measure() was called.
  QuickLimits measure_quickly() {
    return {.read_gbps = probe_.read_gbps(),
            .gops = probe_.gops(operation_),
            .flag_one_way_ns = probe_.flag_one_way_ns(),
            .operation = operation_};
  }
  limits::Operation operation() const { return operation_; }

 private:
  kernels::WeightFormat format_;
  limits::Probe probe_;
  limits::Operation operation_ = limits::Operation::kF32;
};

// Means of the probes before and after all runs. Flag latency varies most, so its median is over
// all quick probes.
limits::Limits mean_of(const limits::Limits& a, const limits::Limits& b,
                       const std::vector<QuickLimits>& quick) {
  std::vector<double> flags;
  for (const QuickLimits& each : quick) flags.push_back(each.flag_one_way_ns);
  return {.read_gbps = (a.read_gbps + b.read_gbps) / 2,
          .copy_gbps = (a.copy_gbps + b.copy_gbps) / 2,
          .f32_gops = (a.f32_gops + b.f32_gops) / 2,
          .bf16_gops = (a.bf16_gops + b.bf16_gops) / 2,
          .int8_gops = (a.int8_gops + b.int8_gops) / 2,
          .flag_one_way_ns = figure_of(std::move(flags)).median};
}

// Waits for the next event of the ranks. If the ranks end before the benchmark has asked them to,
// that is an error.
Result<run::Event> next_event(run::RankGroup& group) {
  if (auto event = group.next()) return std::move(*event);
  WIDEEP_TRY(group.result());
  return interrupted("interrupted");
}

// One run of a test: submits all requests together and returns their iterations. The ranks send
// their records only when idle, so that sending does not disturb the run.
Result<std::vector<run::Iteration>> run_requests(run::RankGroup& group,
                                                 std::vector<engine::Request> requests) {
  group.requests().submit_together(std::move(requests), run::RequestWriter::Reports::kWhenIdle);
  std::vector<run::Iteration> iterations;
  for (;;) {
    WIDEEP_TRY_ASSIGN(run::Event event, next_event(group));
    if (std::holds_alternative<run::RanksIdle>(event)) return iterations;
    if (auto* each = std::get_if<run::Iteration>(&event)) iterations.push_back(std::move(*each));
  }
}

Result<TestReport> report_test(const ModelBenchOptions& options, const BenchPlan& plan, int test,
                               const std::vector<std::optional<BenchSample>>& samples,
                               const std::vector<QuickLimits>& limits) {
  std::vector<BenchSample> of_test;
  std::vector<std::pair<QuickLimits, QuickLimits>> around;
  for (size_t run = 0; run < plan.runs.size(); ++run) {
    if (plan.runs[run].test != test || !samples[run]) continue;
    of_test.push_back(*samples[run]);
    around.emplace_back(limits[run], limits[run + 1]);
  }
  return report_of(options.config, plan.tests[static_cast<size_t>(test)], of_test, around);
}

// All runs of the plan, with a probe of the limits before each and after the last.
Status measure(const ModelBenchOptions& options, const BenchPlan& plan, const run::Run& run,
               run::RankGroup& group, ModelBenchView& view, ModelBenchReport* report) {
  LimitsProbe probe(options, run.plan());
  const limits::Limits first = probe.measure();
  report->operation = probe.operation();
  std::vector<QuickLimits> limits = {probe.measure_quickly()};
  std::vector<std::optional<BenchSample>> samples(plan.runs.size());  // of warm-ups: none
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    WIDEEP_TRY_ASSIGN(const auto iterations,
                      run_requests(group, make_requests(plan, run.plan().model.config, i)));
    limits.push_back(probe.measure_quickly());
    view.run_done(static_cast<int>(i) + 1, static_cast<int>(plan.runs.size()));
    if (plan.runs[i].is_warm_up) continue;
    const BenchTest& test = plan.tests[static_cast<size_t>(plan.runs[i].test)];
    WIDEEP_TRY_ASSIGN(samples[i], sample_of(options.config, options.precision, test, iterations));
  }
  report->limits = mean_of(first, probe.measure(), limits);
  for (int test = 0; test < static_cast<int>(plan.tests.size()); ++test) {
    WIDEEP_TRY_ASSIGN(TestReport found, report_test(options, plan, test, samples, limits));
    report->tests.push_back(std::move(found));
  }
  return {};
}

}  // namespace

Result<ModelBenchReport> run_model_bench(const ModelBenchOptions& given,
                                         std::unique_ptr<weights::TensorSource> tensors,
                                         ModelBenchView& view) {
  ModelBenchOptions options = given;
  if (options.as_stored) options.precision = stored_precision(given, *tensors);
  WIDEEP_TRY_ASSIGN(const BenchPlan plan,
                    make_plan(options.bench, options.config, options.num_ranks));
  WIDEEP_TRY_ASSIGN(const run::RunOptions settings, run_options(options, plan));
  WIDEEP_TRY_ASSIGN(run::RunInputs inputs, run_inputs(options, settings, std::move(tensors)));
  WIDEEP_TRY(check_memory(inputs.model, settings));
  WIDEEP_TRY_ASSIGN(const auto run, run::Run::prepare(settings, std::move(inputs)));
  ModelBenchReport report = begin_report(*run);
  run::LoadingProgress loading(view, bytes_to_load(report));
  const int64_t start_ns = base::wall_ns();
  WIDEEP_TRY(run->load([&](uint64_t bytes) { loading.add(bytes); }));
  WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run));
  group->requests().record_experts(true);
  for (bool ready = false; !ready;) {
    WIDEEP_TRY_ASSIGN(const run::Event event, next_event(*group));
    if (const auto* read = std::get_if<run::WeightsRead>(&event)) loading.add(read->bytes);
    ready = std::holds_alternative<run::RanksReady>(event);
  }
  report.load_seconds = static_cast<double>(base::wall_ns() - start_ns) * 1e-9;
  WIDEEP_TRY(measure(options, plan, *run, *group, view, &report));
  group->requests().finish();
  while (group->next()) {
  }
  WIDEEP_TRY(group->result());
  return report;
}

}  // namespace wideep::measure
