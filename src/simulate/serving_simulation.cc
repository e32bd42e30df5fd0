// SPDX-License-Identifier: Apache-2.0
#include "simulate/serving_simulation.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "base/try.h"
#include "engine/scheduler.h"

namespace wideep::simulate {
namespace {

using engine::Scheduler;
using engine::Sequence;
using measure::StepShape;

// The smallest cache there is: the scheduler deals in pages, whatever they hold.
model::KvLayout smallest_cache() {
  model::ModelConfig config;
  config.num_layers = 1;
  config.layers.resize(1);
  config.num_heads = config.num_kv_heads = 1;
  config.head_dim = 4;
  return {config, Dtype::kBf16};
}

struct Times {
  double begin = 0.0, first = 0.0, last = 0.0;
};

class Simulation {
 public:
  Simulation(std::span<const SimulatedRequest> requests, const SimulationOptions& options,
             const IterationTime& iteration_time)
      : requests_(requests), options_(options), iteration_time_(iteration_time) {
    const model::KvLayout kv = smallest_cache();
    for (int batch = 0; batch < options.num_batches; ++batch) {
      schedulers_.emplace_back(kv, options.limits);
    }
    backlog_.assign(schedulers_.size(), 0);
    shapes_.resize(schedulers_.size());
    times_.resize(requests.size());
  }

  Result<SimulatedServing> run() {
    while (true) {
      WIDEEP_TRY(submit_arrived());
      if (!has_work()) {
        if (next_ == requests_.size()) break;
        now_ = requests_[next_].arrival;  // nothing to do until then
        continue;
      }
      iterate();
    }
    return summary();
  }

 private:
  bool has_work() const {
    return std::ranges::any_of(schedulers_, [](const Scheduler& each) { return each.has_work(); });
  }

  bool next_begins() const {
    if (next_ == requests_.size()) return false;
    if (options_.concurrency) return running_ < *options_.concurrency;
    return requests_[next_].arrival <= now_;
  }

  Status submit_arrived() {
    while (next_begins()) {
      const SimulatedRequest& request = requests_[next_];
      const auto batch = static_cast<size_t>(std::ranges::min_element(backlog_) - backlog_.begin());
      const int index = static_cast<int>(next_);
      WIDEEP_TRY(schedulers_[batch].submit(
          {.index = index,
           .prompt = std::vector<int32_t>(static_cast<size_t>(request.isl), index),
           .max_tokens = request.osl}));
      backlog_[batch] += request.isl + request.osl;
      times_[next_].begin = options_.concurrency ? now_ : request.arrival;
      ++running_;
      ++next_;
    }
    return {};
  }

  void iterate() {
    std::vector<Scheduler::Step*> steps;
    for (size_t batch = 0; batch < schedulers_.size(); ++batch) {
      steps.push_back(&schedulers_[batch].schedule());
      shapes_[batch] = shape_of(steps.back()->batch);
    }
    now_ += iteration_time_(shapes_);
    ++iterations_;
    for (size_t batch = 0; batch < schedulers_.size(); ++batch) take_tokens(batch, *steps[batch]);
  }

  // Positions of one sequence follow each other; what is before the first is read from the cache.
  static StepShape shape_of(const model::Batch& batch) {
    StepShape shape{.num_tokens = batch.num_tokens(),
                    .num_logit_rows = static_cast<int64_t>(batch.logit_rows.size())};
    const model::PageList* sequence = nullptr;
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      shape.attended += batch.positions[i] + 1;
      if (batch.pages[i] != sequence) shape.cached += batch.positions[i];
      sequence = batch.pages[i];
    }
    return shape;
  }

  void take_tokens(size_t batch, Scheduler::Step& step) {
    for (Sequence* sequence : std::vector<Sequence*>(step.sampled)) {
      Times& times = times_[static_cast<size_t>(sequence->request.index)];
      schedulers_[batch].append(*sequence, std::vector<int32_t>{0}, {});
      if (sequence->num_generated() == 1) times.first = now_;
      if (sequence->num_generated() < sequence->request.max_tokens) continue;
      times.last = now_;
      backlog_[batch] -= sequence->prompt_length() + sequence->request.max_tokens;
      --running_;
      schedulers_[batch].finish(sequence);
    }
  }

  SimulatedServing summary() const {
    std::vector<double> ttft, tpot, all;
    double tokens = 0.0;
    for (size_t i = 0; i < times_.size(); ++i) {
      ttft.push_back(times_[i].first - times_[i].begin);
      all.push_back(times_[i].last - times_[i].begin);
      tokens += requests_[i].osl;
      if (requests_[i].osl > 1) {
        tpot.push_back((times_[i].last - times_[i].first) / (requests_[i].osl - 1));
      }
    }
    const double seconds = times_.empty() ? 0.0 : now_ - times_[0].begin;
    return {.ttft = measure::percentiles_of(std::move(ttft)),
            .tpot = measure::percentiles_of(std::move(tpot)),
            .end_to_end = measure::percentiles_of(std::move(all)),
            .seconds = seconds,
            .output_tokens_per_second = seconds > 0.0 ? tokens / seconds : 0.0,
            .iterations = iterations_};
  }

  std::span<const SimulatedRequest> requests_;
  const SimulationOptions& options_;
  const IterationTime& iteration_time_;
  std::deque<Scheduler> schedulers_;  // they do not move
  std::vector<int64_t> backlog_;      // [batches] tokens of running and waiting requests
  std::vector<StepShape> shapes_;     // [batches] of the present iteration
  std::vector<Times> times_;          // [requests]
  size_t next_ = 0;                   // request
  int running_ = 0;
  int iterations_ = 0;
  double now_ = 0.0;
};

}  // namespace

Result<SimulatedServing> simulate_serving(std::span<const SimulatedRequest> requests,
                                          const SimulationOptions& options,
                                          const IterationTime& iteration_time) {
  return Simulation(requests, options, iteration_time).run();
}

}  // namespace wideep::simulate
