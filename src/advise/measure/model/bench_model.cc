// SPDX-License-Identifier: Apache-2.0
//
// The machine's limits are probed before each run and after the last, while the ranks sleep, by as
// many threads as they have: a share is of the machine that the run had. A full probe at both ends
// is for the report; those in between measure only what bounds this precision. Warm-up runs have no
// sample.
#include "measure/model/bench_model.h"

#include <algorithm>
#include <utility>

#include "base/cpu_time.h"
#include "base/machine.h"
#include "base/try.h"
#include "measure/model/bench_ranks.h"

namespace wideep::measure {
namespace {

// ---- what runs ----

// The precision of tensors as they are stored, with cached keys and values as in `given`.
model::Precision stored_precision(const ModelBenchOptions& given,
                                  const weights::TensorSource& tensors) {
  model::Precision precision = given.precision;
  precision.forms = std::make_shared<const model::ModelForms>(
      model::model_forms(given.config, weights::WeightLoader(tensors, {})));
  precision.weights = precision.forms->experts.format;
  return precision;
}

Result<BenchRanksOptions> ranks_options(const ModelBenchOptions& options, const BenchPlan& plan) {
  BenchRanksOptions ranks{.config = options.config,
                          .precision = options.precision,
                          .as_stored = options.as_stored,
                          .limits = plan.limits,
                          .threads_per_rank = options.threads_per_rank,
                          .timeout = options.timeout,
                          .statistics = options.statistics,
                          .routing_log = options.routing_log,
                          .model_dir = options.model_dir,
                          .perfect_router = options.perfect_router};
  WIDEEP_TRY_ASSIGN(ranks.parallel, parallel::parallel_config_for_ranks(options.num_ranks));
  return ranks;
}

ModelBenchReport begin_report(const run::Run& run) {
  const run::MemoryPlan& memory = run.plan().memory[0];
  ModelBenchReport report;
  report.isa = run.inputs().kernels->isa;
  report.formats = run.inputs().model.forms.format_names();
  report.threads_per_rank = run.plan().threads.threads_per_rank;
  report.parameters = model::count_parameters(run.plan().model.config);
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
Status measure(const ModelBenchOptions& options, const BenchPlan& plan, BenchRanks& ranks,
               ModelBenchView& view, ModelBenchReport* report) {
  LimitsProbe probe(options, ranks.prepared().plan());
  const limits::Limits first = probe.measure();
  report->operation = probe.operation();
  std::vector<QuickLimits> limits = {probe.measure_quickly()};
  std::vector<std::optional<BenchSample>> samples(plan.runs.size());  // of warm-ups: none
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    WIDEEP_TRY_ASSIGN(const auto iterations,
                      ranks.run(make_requests(plan, ranks.prepared().plan().model.config, i)));
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
  WIDEEP_TRY_ASSIGN(const BenchRanksOptions settings, ranks_options(options, plan));
  ModelBenchReport report;
  const int64_t start_ns = base::wall_ns();
  WIDEEP_TRY_ASSIGN(const auto ranks,
                    BenchRanks::start(settings, std::move(tensors), view,
                                      [&](const run::Run& run) { report = begin_report(run); }));
  report.load_seconds = static_cast<double>(base::wall_ns() - start_ns) * 1e-9;
  WIDEEP_TRY(measure(options, plan, *ranks, view, &report));
  WIDEEP_TRY(ranks->finish());
  return report;
}

}  // namespace wideep::measure
