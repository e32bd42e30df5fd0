// SPDX-License-Identifier: Apache-2.0
//
// A step of a decode test counts only if every sequence generates in it and no prompt is computed.
// It lasts from the end of the step before, so scheduling is in it. An expert that several ranks
// choose is one, since its weights are read once. The bound is the limit whose least time is longer
// over all runs of a test together: one run's noise does not decide it.
#include "measure/model/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/try.h"

namespace wideep::measure {
namespace {

using Kind = BenchTest::Kind;

// One iteration over all ranks.
struct Iteration {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t experts_hit = 0;
  int64_t end_ns = 0;  // on the last rank
};

// Distinct experts that tokens of any rank chose, summed over layers: each must be read from memory
// once per step, however many tokens chose it.
int64_t count_hit(const std::vector<engine::IterationRecord>& ranks) {
  int64_t hit = 0;
  for (size_t layer = 0; layer < ranks[0].layers.size(); ++layer) {
    std::vector<bool> is_hit;
    for (const engine::IterationRecord& rank : ranks) {
      const auto& counts = rank.layers[layer].counts;
      is_hit.resize(std::max(is_hit.size(), counts.size()));
      for (size_t expert = 0; expert < counts.size(); ++expert) {
        if (counts[expert] > 0) is_hit[expert] = true;
      }
    }
    hit += std::count(is_hit.begin(), is_hit.end(), true);
  }
  return hit;
}

std::vector<Iteration> combine(const std::vector<run::Iteration>& iterations) {
  std::vector<Iteration> combined;
  for (const run::Iteration& iteration : iterations) {
    Iteration& each = combined.emplace_back();
    for (const engine::IterationRecord& rank : iteration.ranks) {
      each.prompt_tokens += rank.prompt_tokens;
      each.generated_tokens += rank.generated_tokens;
      each.end_ns = std::max(each.end_ns, rank.end_ns);
    }
    each.experts_hit = count_hit(iteration.ranks);
  }
  return combined;
}

double seconds_between(int64_t start_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - start_ns) * 1e-9;
}

BenchSample prefill_sample(const model::ModelConfig& config, const model::Precision& precision,
                           const BenchTest& test, const std::vector<Iteration>& iterations,
                           int64_t start_ns) {
  BenchSample sample{.tokens = int64_t{test.sequences} * test.prompt,
                     .steps = static_cast<int64_t>(iterations.size()),
                     .seconds = seconds_between(start_ns, iterations.back().end_ns)};
  for (const Iteration& each : iterations) sample.experts_hit += each.experts_hit;
  sample.work = model::work_of(config, precision,
                               model::prompt_step(test.sequences, test.prompt, sample.experts_hit),
                               sample.steps);
  return sample;
}

// Measures the first `steps` iterations in which every sequence generates and no prompt is
// computed. An iteration lasts from the end of the one before, so that scheduling between the two
// is included.
Result<BenchSample> decode_sample(const model::ModelConfig& config,
                                  const model::Precision& precision, const BenchTest& test,
                                  const std::vector<Iteration>& iterations) {
  BenchSample sample;
  model::StepShape shape;
  int64_t cached = int64_t{test.sequences} * test.prompt;  // once all prompts are computed
  for (size_t i = 0; i < iterations.size() && sample.steps < test.steps; ++i) {
    const Iteration& each = iterations[i];
    if (i > 0 && each.prompt_tokens == 0 && each.generated_tokens == test.sequences) {
      ++sample.steps;
      sample.tokens += test.sequences;
      sample.seconds += seconds_between(iterations[i - 1].end_ns, each.end_ns);
      shape += {.num_tokens = test.sequences,
                .num_logit_rows = test.sequences,
                .attended = cached,  // the latest token of every sequence is not in the cache yet
                .cached = cached - test.sequences,
                .num_cached = test.sequences,
                .experts_hit = each.experts_hit};
    }
    cached += each.generated_tokens;
  }
  if (sample.steps < test.steps) {
    return failed(
        fmt::format("{}: measured {} of {} steps", test.name(), sample.steps, test.steps));
  }
  sample.experts_hit = shape.experts_hit;
  sample.work = model::work_of(config, precision, shape, sample.steps);
  return sample;
}

double mean(double a, double b) { return (a + b) / 2; }

// One limit over the runs of a test.
struct Against {
  std::vector<double> achieved;  // 10⁹ per second
  std::vector<double> limits;    // 10⁹ per second
  double min_seconds = 0.0;      // the limit's least time for all runs together

  void add(double work, double seconds, double limit_before, double limit_after) {
    achieved.push_back(work * 1e-9 / seconds);
    limits.push_back(mean(limit_before, limit_after));
    min_seconds += work * 1e-9 / limits.back();
  }

  std::vector<double> shares() const {
    std::vector<double> shares(achieved.size());
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = achieved[i] / limits[i];
    return shares;
  }
};

BenchSample sum_of(const std::vector<BenchSample>& samples) {
  BenchSample sum;
  for (const BenchSample& each : samples) {
    sum.tokens += each.tokens;
    sum.steps += each.steps;
    sum.experts_hit += each.experts_hit;
    sum.work.operations += each.work.operations;
    sum.work.bytes += each.work.bytes;
  }
  return sum;
}

}  // namespace

Figure figure_of(std::vector<double> values) {
  WIDEEP_CHECK_GE(values.size(), 1u);
  std::sort(values.begin(), values.end());
  const size_t upper = values.size() / 2, lower = (values.size() - 1) / 2;
  return {mean(values[lower], values[upper]), values.front(), values.back()};
}

Result<BenchSample> sample_of(const model::ModelConfig& config, const model::Precision& precision,
                              const BenchTest& test,
                              const std::vector<run::Iteration>& iterations) {
  if (iterations.empty()) return failed(test.name() + ": no iteration ran");
  const std::vector<Iteration> combined = combine(iterations);
  int64_t start_ns = 0;  // when the last rank began: waiting for requests is not prefill time
  for (const engine::IterationRecord& rank : iterations[0].ranks) {
    start_ns = std::max(start_ns, rank.begin_ns);
  }
  if (test.kind == Kind::kDecode) return decode_sample(config, precision, test, combined);
  return prefill_sample(config, precision, test, combined, start_ns);
}

limits::Operation operation_of(kernels::WeightFormat format, const limits::Limits& limits) {
  using limits::Operation;
  const Operation wanted = kernels::takes_quantized_rows(format)   ? Operation::kInt8
                           : format == kernels::WeightFormat::kF32 ? Operation::kF32
                                                                   : Operation::kBf16;
  return limits.gops(wanted) > 0.0 ? wanted : Operation::kF32;
}

TestReport report_of(const model::ModelConfig& config, const BenchTest& test,
                     const std::vector<BenchSample>& samples,
                     const std::vector<std::pair<QuickLimits, QuickLimits>>& limits) {
  WIDEEP_CHECK_EQ(samples.size(), limits.size());
  Against peak, bandwidth;
  std::vector<double> tokens_per_second, milliseconds;
  for (size_t i = 0; i < samples.size(); ++i) {
    const BenchSample& sample = samples[i];
    const auto& [before, after] = limits[i];
    const double parts = test.kind == Kind::kPrefill ? 1.0 : static_cast<double>(sample.steps);
    tokens_per_second.push_back(static_cast<double>(sample.tokens) / sample.seconds);
    milliseconds.push_back(sample.seconds * 1e3 / parts);
    peak.add(sample.work.operations, sample.seconds, before.gops, after.gops);
    bandwidth.add(sample.work.bytes, sample.seconds, before.read_gbps, after.read_gbps);
  }
  const Bound bound = peak.min_seconds >= bandwidth.min_seconds ? Bound::kCompute : Bound::kRead;
  const Against& bounding = bound == Bound::kCompute ? peak : bandwidth;
  const BenchSample sum = sum_of(samples);
  const auto steps = static_cast<double>(sum.steps);
  return {.test = test,
          .tokens_per_second = figure_of(std::move(tokens_per_second)),
          .milliseconds = figure_of(std::move(milliseconds)),
          .operations_per_token = sum.work.operations / static_cast<double>(sum.tokens),
          .bytes_per_step = sum.work.bytes / steps,
          .experts_hit_per_layer =
              static_cast<double>(sum.experts_hit) / steps / std::max(1, config.num_moe_layers()),
          .bound = bound,
          .achieved = figure_of(bounding.achieved),
          .limit = figure_of(bounding.limits),
          .share = figure_of(bounding.shares())};
}

}  // namespace wideep::measure
