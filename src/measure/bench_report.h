// SPDX-License-Identifier: Apache-2.0
//
// From the iterations of runs to figures: speeds, and which share of the machine's limits they are.
//
// A test's least time follows from its work (model_work.h) and the limits measured right before and
// right after the run, of which the mean is taken:
//
//   least seconds = max(operations / peak, bytes / read bandwidth)
//   share         = least seconds / measured seconds
//
// Thread safety: plain values; pure functions.
#pragma once

#include <string>
#include <vector>

#include "measure/bench_plan.h"
#include "measure/limits/limits.h"
#include "measure/model_work.h"
#include "run/event.h"

namespace wideep::measure {

// The limits that matter to the model's precision, measured before a run (and after the last one).
struct QuickLimits {
  double read_gbps = 0.0;
  double gops = 0.0;  // of the operation below
  double flag_one_way_ns = 0.0;
  limits::Operation operation = limits::Operation::kF32;
};

// What most products of these weights are made of, on a processor with these limits.
limits::Operation operation_of(kernels::WeightFormat format, const limits::Limits& limits);

// Of the repeats.
struct Figure {
  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};
Figure figure_of(std::vector<double> values);  // REQUIRES: not empty

// One run: what was measured of it.
struct BenchSample {
  int64_t tokens = 0;  // prefill: of the prompts; decode: generated in the measured steps
  int64_t steps = 0;   // iterations measured
  double seconds = 0.0;
  int64_t experts_hit = 0;  // as StepShape's
  Work work;
};

// iterations: of the run, with counts of experts.
// Errors (failed): the run has fewer steps than the test measures.
Result<BenchSample> sample_of(const model::ModelConfig& config, const Precision& precision,
                              const BenchTest& test, const std::vector<run::Iteration>& iterations);

enum class Bound { kCompute, kRead };

struct TestReport {
  BenchTest test;
  Figure tokens_per_second;
  Figure milliseconds;  // prefill: of the whole; decode: of a step
  double operations_per_token = 0.0;
  double bytes_per_step = 0.0;
  double experts_hit_per_layer = 0.0;  // mean over steps and MoE layers of distinct experts
  Bound bound = Bound::kCompute;       // the limit that allows less
  Figure achieved;                     // 10⁹ operations or bytes per second, by `bound`
  Figure limit;                        // likewise
  Figure share;                        // of 1
};

// limits[i] and limits[i + 1] were measured before and after the run of samples[i].
TestReport report_of(const model::ModelConfig& config, const BenchTest& test,
                     const std::vector<BenchSample>& samples,
                     const std::vector<std::pair<QuickLimits, QuickLimits>>& limits);

}  // namespace wideep::measure
