// SPDX-License-Identifier: Apache-2.0
//
// Time jumps from one end of an iteration to the next, or to the next arrival where nobody has
// work. A request is first sent, and known to the ranks later: what is on its way misses the
// iteration that begins, and a client of a closed loop sends when another request has ended. Ranks
// that share sequences have a scheduler each, as in the engine. With m micro-batches in a pipeline
// one begins every m-th part of an iteration, and its tokens are known when it has been through all
// stages. The cache is that of the smallest model, since a scheduler counts pages, whatever they
// hold.
#include "advise/serving_simulation.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "advise/context_part.h"
#include "base/try.h"
#include "schedule/scheduler.h"

namespace wideep::advise {
namespace {

using engine::Scheduler;
using engine::Sequence;
using model::StepShape;

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
    ranks_ = static_cast<size_t>(options.context_ranks);
    for (int batch = 0; batch < options.num_batches; ++batch) {
      for (int rank = 0; rank < options.context_ranks; ++rank) {
        engine::ContextPlace place{.rank = rank, .size = options.context_ranks};
        if (ranks_ > 1) place.caches.resize(ranks_);
        schedulers_.emplace_back(kv, options.limits, std::move(place));
      }
    }
    backlog_.assign(static_cast<size_t>(options.num_batches), 0);
    shapes_.resize(backlog_.size());
    times_.resize(requests.size());
  }

  Result<SimulatedServing> run() {
    while (true) {
      WIDEEP_TRY(submit_arrived());
      if (!has_work()) {
        if (known_ == requests_.size()) break;
        // Nothing to do until the next one is known.
        if (known_ == sent_) send_next(requests_[sent_].arrival);
        now_ = std::max(now_, known_at(known_));
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

  void send_next(double now) { times_[sent_++].begin = now; }
  double known_at(size_t request) const {
    return times_[request].begin + options_.overhead.request;
  }

  // A client of a closed loop sends its next request when the one before has ended.
  void send_due() {
    if (options_.concurrency) {
      while (sent_ < requests_.size() &&
             sent_ - ended_ < static_cast<size_t>(*options_.concurrency))
        send_next(now_);
      return;
    }
    while (sent_ < requests_.size() && requests_[sent_].arrival <= now_)
      send_next(requests_[sent_].arrival);
  }

  Status submit_arrived() {
    send_due();
    for (; known_ < sent_ && known_at(known_) <= now_; ++known_) {
      const SimulatedRequest& request = requests_[known_];
      const auto batch = static_cast<size_t>(std::ranges::min_element(backlog_) - backlog_.begin());
      const int index = static_cast<int>(known_);
      for (size_t rank = 0; rank < ranks_; ++rank) {
        WIDEEP_TRY(
            scheduler(batch, rank)
                .submit({.index = index,
                         .prompt = std::vector<int32_t>(static_cast<size_t>(request.isl), index),
                         .max_tokens = request.osl}));
      }
      backlog_[batch] += request.isl + request.osl;
    }
    return {};
  }

  // An iteration of all batches that has begun.
  struct MicroBatch {
    std::vector<std::vector<Sequence*>> sampled;  // [schedulers]
    double end = 0.0;
  };

  void iterate() {
    const double begin = now_;
    MicroBatch& next = in_flight_.emplace_back();
    size_t scheduled = 0, tokens = 0;
    std::vector<StepShape> of_ranks(ranks_);
    for (size_t batch = 0; batch < shapes_.size(); ++batch) {
      for (size_t rank = 0; rank < ranks_; ++rank) {
        const Scheduler::Step& step = scheduler(batch, rank).schedule();
        of_ranks[rank] = shape_of(step.batch);
        scheduled += static_cast<size_t>(step.num_tokens);
        next.sampled.push_back(step.sampled);
      }
      shapes_[batch] = busiest_of(of_ranks);
      tokens += next.sampled[batch * ranks_].size();
    }
    if (scheduled == 0) {  // all requests wait for tokens under way
      in_flight_.pop_back();
      return complete_oldest();
    }
    const auto stages = static_cast<double>(options_.limits.micro_batches);
    const double seconds = iteration_time_(shapes_);
    const double beside =
        options_.overhead.iteration + options_.overhead.token * static_cast<double>(tokens);
    now_ += seconds / stages + beside;
    next.end = begin + (seconds + beside);
    ++iterations_;
    if (in_flight_.size() == static_cast<size_t>(options_.limits.micro_batches)) complete_oldest();
  }

  void complete_oldest() {
    now_ = std::max(now_, in_flight_.front().end);
    for (size_t batch = 0; batch < shapes_.size(); ++batch) take_tokens(batch);
    in_flight_.pop_front();
  }

  Scheduler& scheduler(size_t batch, size_t rank) { return schedulers_[batch * ranks_ + rank]; }

  // Positions of one sequence follow each other; what is before the first is read from the cache.
  static StepShape shape_of(const model::Batch& batch) {
    StepShape shape{.num_tokens = batch.num_tokens(),
                    .num_logit_rows = static_cast<int64_t>(batch.logit_rows.size())};
    const model::PageList* sequence = nullptr;
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      shape.attended += batch.positions[i] + 1;
      if (batch.pages[i] == sequence) continue;
      sequence = batch.pages[i];
      shape.cached += batch.positions[i];
      shape.num_cached += batch.positions[i] > 0 ? 1 : 0;
    }
    return shape;
  }

  void take_tokens(size_t batch) {
    // Ranks that share sequences schedule the same.
    for (size_t rank = 0; rank < ranks_; ++rank) {
      Scheduler& each = scheduler(batch, rank);
      for (Sequence* sequence : in_flight_.front().sampled[batch * ranks_ + rank]) {
        each.append(*sequence, std::vector<int32_t>{0}, {});
        if (rank == 0) note_token(batch, *sequence);
        if (sequence->num_generated() == sequence->request.max_tokens) each.finish(sequence);
      }
    }
  }

  void note_token(size_t batch, const Sequence& sequence) {
    Times& times = times_[static_cast<size_t>(sequence.request.index)];
    if (sequence.num_generated() == 1) times.first = now_;
    if (sequence.num_generated() < sequence.request.max_tokens) return;
    times.last = now_;
    backlog_[batch] -= sequence.prompt_length() + sequence.request.max_tokens;
    ++ended_;
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
    return {.ttft = base::percentiles_of(std::move(ttft)),
            .tpot = base::percentiles_of(std::move(tpot)),
            .end_to_end = base::percentiles_of(std::move(all)),
            .seconds = seconds,
            .output_tokens_per_second = seconds > 0.0 ? tokens / seconds : 0.0,
            .iterations = iterations_};
  }

  std::span<const SimulatedRequest> requests_;
  const SimulationOptions& options_;
  const IterationTime& iteration_time_;
  size_t ranks_ = 1;                  // of a batch
  std::deque<Scheduler> schedulers_;  // [batches][ranks]; they do not move
  std::deque<MicroBatch> in_flight_;
  std::vector<int64_t> backlog_;   // [batches] tokens of running and waiting requests
  std::vector<StepShape> shapes_;  // [batches] of the present iteration
  std::vector<Times> times_;       // [requests]
  // Requests in their order: clients have sent so many, ranks know of so many of them.
  size_t sent_ = 0, known_ = 0;
  size_t ended_ = 0;
  int iterations_ = 0;
  double now_ = 0.0;
};

}  // namespace

Result<SimulatedServing> simulate_serving(std::span<const SimulatedRequest> requests,
                                          const SimulationOptions& options,
                                          const IterationTime& iteration_time) {
  return Simulation(requests, options, iteration_time).run();
}

}  // namespace wideep::advise
