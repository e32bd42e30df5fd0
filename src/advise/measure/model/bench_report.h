// SPDX-License-Identifier: Apache-2.0
//
// From the iterations of runs to the report: speeds, and the share of the machine's limits that
// they reach.
//
// The least time of a test follows from its work (model_work.h) and from the limits, as the mean of
// those measured right before and right after the run:
//
//   least seconds = max(operations / peak, bytes / read bandwidth)
//   share         = least seconds / measured seconds
//
// Thread safety: plain values; pure functions.
#pragma once

#include <string>
#include <vector>

#include "measure/limits/limits.h"
#include "measure/model/bench_plan.h"
#include "model/model_work.h"
#include "run/event.h"

namespace wideep::measure {

// The limits that matter to the model's precision, measured before a run (and after the last one).
struct QuickLimits {
  double read_gbps = 0.0;
  double gops = 0.0;  // of the operation below
  double flag_one_way_ns = 0.0;
  limits::Operation operation = limits::Operation::kF32;
};

// The operation that most matrix products with these weights use, on a processor with these limits.
limits::Operation operation_of(kernels::WeightFormat format, const limits::Limits& limits);

// Median, smallest and largest value over the repeats.
struct Figure {
  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};
Figure figure_of(std::vector<double> values);  // REQUIRES: not empty

// Measurements of one run.
struct BenchSample {
  int64_t tokens = 0;  // prefill: prompt tokens; decode: tokens generated in the measured steps
  int64_t steps = 0;   // measured iterations
  double seconds = 0.0;
  int64_t experts_hit = 0;  // as in model::StepShape
  model::Work work;
};

// iterations: all iterations of the run, with the tokens per expert recorded.
// Errors (failed): the run has fewer steps than the test measures.
Result<BenchSample> sample_of(const model::ModelConfig& config, const model::Precision& precision,
                              const BenchTest& test, const std::vector<run::Iteration>& iterations);

enum class Bound { kCompute, kRead };

struct TestReport {
  BenchTest test;
  Figure tokens_per_second;
  Figure milliseconds;  // prefill: of the whole run; decode: per step
  double operations_per_token = 0.0;
  double bytes_per_step = 0.0;
  double experts_hit_per_layer = 0.0;  // distinct experts, mean over steps and MoE layers
  Bound bound = Bound::kCompute;       // the limit that needs more time for this work
  Figure achieved;                     // 10⁹ operations or bytes per second, depending on `bound`
  Figure limit;                        // the limit, in the same unit
  Figure share;                        // achieved / limit, a fraction
};

// limits[i] and limits[i + 1] were measured before and after the run of samples[i].
TestReport report_of(const model::ModelConfig& config, const BenchTest& test,
                     const std::vector<BenchSample>& samples,
                     const std::vector<std::pair<QuickLimits, QuickLimits>>& limits);

}  // namespace wideep::measure
