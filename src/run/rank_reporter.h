// SPDX-License-Identifier: Apache-2.0
//
// What one rank reports of its requests and iterations: events to the process that hears from the
// ranks, and expert statistics, which it writes itself.
//
// Thread safety: one thread, but for rebalanced() and weights_read().
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/sha256.h"
#include "engine/reporter.h"
#include "run/event.h"
#include "run/run.h"
#include "transport/messenger.h"

namespace wideep::run {

class RankReporter : public engine::Reporter {
 public:
  // All outlive the reporter.
  RankReporter(const Run& run, int rank, const transport::Messenger& messenger);

  void begin_iteration(int64_t iteration) override;
  void chosen(const engine::ChosenExperts& layer) override;
  Status token(const engine::SampledToken& token) override;
  Status end_iteration(engine::IterationRecord record) override;
  Status idle() override;
  void report_when_idle() override { reports_when_idle_ = true; }
  Status record_experts(bool records) override;

  // Any thread. A process that hears nothing any more ends this one by itself.
  void weights_read(uint64_t bytes) const;
  void rebalanced(const online::Rebalance& rebalance) const;

  Status ready() const { return send(RanksReady()); }
  // The engine has ended: what is still to be written or told. Returns how the run went.
  Status finish(const Status& run, const engine::RunTimes& times, const NodeTraffic& traffic);

 private:
  Status send(const RankSaying& saying) const { return messenger_.send(encode(saying)); }
  Status send_with_next(const RankSaying& saying) const {
    return messenger_.send_with_next(encode(saying));
  }
  void note_initial_imbalance(const engine::ChosenExperts& layer);
  void count_of_requests(const engine::ChosenExperts& layer);

  const Run& run_;
  const transport::Messenger& messenger_;
  int rank_;
  std::map<int, int> layer_index_;  // the model's layer → its position among the MoE layers
  std::optional<RankProfiler> profiler_;
  std::optional<StatisticsRecorder> recorder_;
  Status recording_;                       // of recorder_, until the iteration ends
  bool records_experts_ = false;           // the other side does, from the counts of iterations
  bool reports_when_idle_ = false;         // and not before
  std::vector<float> initial_imbalances_;  // of this iteration's layers so far
  std::map<int, base::Sha256> digests_;    // by request
  std::map<int, std::vector<int64_t>> request_counts_;  // by request: [MoE layers × experts]
};

}  // namespace wideep::run
