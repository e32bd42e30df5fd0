// SPDX-License-Identifier: Apache-2.0
//
// Reports the requests and iterations of one rank: as RankEvents to the process that started the
// ranks.
//
// Thread safety: one thread, except rebalanced(), trust_changed() and
// weights_read().
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/sha256.h"
#include "engine/reporter.h"
#include "group/members.h"
#include "group/messenger.h"
#include "run/event.h"
#include "run/routed_experts.h"
#include "run/run.h"

namespace wideep::model {
class ResidentExperts;
}

namespace wideep::run {

class RankReporter : public engine::Reporter {
 public:
  // All references outlive the reporter.
  RankReporter(const Run& run, int rank, const transport::Messenger& messenger);

  void begin_iteration(int64_t iteration) override;
  void chosen(const engine::ChosenExperts& layer) override;
  Status token(const engine::SampledToken& token) override;
  Status prompt(const engine::PromptProgress& progress) override;
  Status end_iteration(engine::IterationRecord record) override;
  Status ended(int request_index) override;
  Status pages_changed(std::vector<engine::PageChange> changes) override;
  Status idle() override;
  void report_when_idle() override { reports_when_idle_ = true; }
  Status record_experts(bool records, int number) override;
  Status prefers(engine::Role role, int number) override;

  // Any thread. Send errors are ignored: they mean that the receiving process has ended, which ends
  // this rank anyway.
  void weights_read(uint64_t bytes) const;
  void rebalanced(const online::Rebalance& rebalance) const;
  void trust_changed(const online::TrustChange& change) const;

  // The rank is a member of a group from now on.
  void set_members(const transport::Members& members);
  // What was told of the rank's cache does not hold: the cache is new, or who hears of it is.
  void forget_pages() { forgets_pages_ = true; }
  // Another process receives the events now, which has asked for nothing.
  void forget_front();
  // It computes with the others: RanksReady, or MembersChanged after the first epoch.
  Status ready();
  // Those of the rank from now on; null: all are in memory.
  void set_experts(model::ResidentExperts* experts) { experts_ = experts; }
  // Experts that it brings into slots for a group with other members.
  void reloads(int experts) { reloaded_ += experts; }
  // [MoE layers × num_experts] tokens of all ranks lately.
  const std::vector<double>& expert_loads() const { return expert_loads_; }
  // After the engine has ended: sends the last events. run: how the engine ended. Returns it, or if
  // it is ok, the first error in here.
  Status finish(const Status& run, const engine::RunTimes& times, const NodeTraffic& traffic);

 private:
  Status send(const RankEvent& event) const { return messenger_.send(encode(event)); }
  // Buffers the event until the next send(), so that both wake the receiver once.
  Status send_with_next(const RankEvent& event) const {
    return messenger_.send_with_next(encode(event));
  }
  void add_expert_loads(const engine::ChosenExperts& layer);
  void add_load(const engine::ChosenExperts& layer);
  Status report_load();
  Status report_memory();
  Status report_experts();
  void note_initial_imbalance(const engine::ChosenExperts& layer);
  bool wants_counts(int64_t iteration) const;
  void add_request_counts(const engine::ChosenExperts& layer);

  const Run& run_;
  const transport::Messenger& messenger_;
  int rank_;
  std::map<int, int> layer_index_;  // the model's layer → its position among the MoE layers
  std::optional<RankProfiler> profiler_;
  bool records_experts_ = false;           // iteration records keep their expert counts
  bool reports_when_idle_ = false;         // buffer events until no rank has work
  std::vector<float> initial_imbalances_;  // of this iteration's layers so far
  model::ResidentExperts* experts_ = nullptr;
  transport::Members members_;
  int reloaded_ = 0;
  bool forgets_pages_ = true;  // since pages_changed()
  std::vector<double> expert_loads_;
  ExpertLoad load_;                      // since the last report; without counts: nobody wants it
  int64_t load_since_ns_ = 0;            // when that was
  int64_t memory_since_ns_ = 0;          // when the memory was reported
  int64_t loads_of_ = 0;                 // (token, expert) pairs of the first layer in it
  std::map<int, base::Sha256> digests_;  // by request
  std::map<int, std::vector<int64_t>> request_counts_;  // by request: [MoE layers × experts]
  std::optional<RoutedRows> routed_;
};

}  // namespace wideep::run
