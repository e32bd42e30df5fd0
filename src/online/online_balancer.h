// SPDX-License-Identifier: Apache-2.0
//
// The background thread of a group's rank 0 that turns loads into plans, posts them for all ranks,
// and sees to it that each ends before the layer's next begins.
//
// It may be slow, or stopped altogether: serving goes on with the placements as they are.
//
// Thread safety: of its own thread; the constructor's and destructor's caller is one thread.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "online/load_mailbox.h"
#include "online/update_board.h"
#include "online/weight_updater.h"
#include "wideep/placement.h"

namespace wideep::online {

// What a layer is to become.
struct LayerPlan {
  int layer = 0;                        // position among the MoE layers
  std::vector<int32_t> slot_to_expert;  // [num_slots]
  std::vector<double> shares;           // [num_slots] of the expert's tokens; empty: equal ones
  double imbalance_before = 0.0;        // of the loads it was planned for
  double imbalance_after = 0.0;
};

// Decides what to do about the loads of the iterations since its last call, given where experts
// are: at most one plan a layer. Called on the balancer's thread, while no plan is under way.
using PlanFunction = std::function<std::vector<LayerPlan>(
    const GroupLoads&, const std::vector<balance::Placement>& placements)>;

// Plans of one decision, all of which have ended.
struct Rebalance {
  int64_t iteration = 0;  // the first with all of them
  int layers = 0;         // published
  int cancelled = 0;      // layers that a rank could not follow: its copies failed
  int64_t moves = 0;      // experts copied into slots
  int64_t bytes = 0;
  double imbalance_before = 0.0;  // mean over the published layers
  double imbalance_after = 0.0;
  double copy_seconds = 0.0;  // of all ranks' copying threads together
};

struct BalancerOptions {
  int layers_in_flight = 1;  // layer_updates_per_iter: layers whose update is under way at once
  int num_spares = 1;        // records that every rank has for copies under way
  std::chrono::microseconds look_interval{1000};
};

class OnlineBalancer {
 public:
  // placements: of every MoE layer, as serving begins. own: rank 0's updater. All outlive it.
  OnlineBalancer(UpdateBoard& board, const weights::HostPool& pool, const WeightUpdater& own,
                 std::vector<balance::Placement> placements, PlanFunction plan,
                 std::function<void(const Rebalance&)> on_rebalance, BalancerOptions options);
  ~OnlineBalancer();  // ends the thread
  OnlineBalancer(const OnlineBalancer&) = delete;
  OnlineBalancer& operator=(const OnlineBalancer&) = delete;

  LoadMailbox& mailbox() { return mailbox_; }  // the engine's thread

 private:
  // A plan on its way.
  struct Pending {
    LayerPlan plan;
    uint32_t generation = 0;   // of the step posted
    std::vector<int> records;  // [num_ranks] that the step takes
  };

  void run();
  void settle();
  bool settle_step(Pending& pending);
  void decide(const GroupLoads& loads);
  void post_what_fits();
  bool post_step(Pending& pending);
  void tell();
  int64_t copy_ns() const;

  UpdateBoard& board_;
  const weights::HostPool& pool_;
  const WeightUpdater& own_;
  std::vector<balance::Placement> placements_;
  PlanFunction plan_;
  std::function<void(const Rebalance&)> on_rebalance_;
  BalancerOptions options_;
  LoadMailbox mailbox_;

  std::deque<LayerPlan> waiting_;
  std::vector<Pending> pending_;
  std::vector<int> free_records_;  // [num_ranks]
  Rebalance current_;
  int64_t copy_ns_before_ = 0;

  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses everything above
};

}  // namespace wideep::online
