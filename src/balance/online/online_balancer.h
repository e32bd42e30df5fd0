// SPDX-License-Identifier: Apache-2.0
//
// The background thread of a group's rank 0: turns loads into plans, posts them for all ranks, and
// waits for the end of a layer's plan before it posts the layer's next one.
//
// If it is slow or stopped, serving goes on with the present placements. If its moves do not pay
// for themselves, it rests (move_ledger.h).
//
// Thread safety: constructor and destructor on one thread; mailbox() as LoadMailbox documents.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "online/board_relay.h"
#include "online/load_mailbox.h"
#include "online/move_ledger.h"
#include "online/update_board.h"
#include "online/update_policy.h"
#include "online/weight_updater.h"
#include "wideep/placement.h"

namespace wideep::online {

// A layer that has gone over to new slots: to those of a decision, or of a step on the way there.
struct LayerSwitch {
  int layer = 0;          // the model's number
  int64_t iteration = 0;  // the first with the new slots
  int64_t moves = 0;      // experts copied into slots
};

// The result of one decision of the policy, when all its updates have ended.
struct Rebalance {
  int64_t iteration = 0;  // the first with all of them
  int64_t decided = 0;    // the last iteration whose load the decision knew
  int layers = 0;         // layers switched
  int cancelled = 0;      // layers given up: a rank's copies failed, or no step fits the spares
  int64_t moves = 0;      // experts copied into slots
  int64_t bytes = 0;
  double imbalance_before = 0.0;  // mean over the layers, as expected by the policy
  double imbalance_after = 0.0;
  double seconds = 0.0;       // from the decision to the last switch
  double copy_seconds = 0.0;  // copying time in that span, summed over ranks
  // Of the copies in that span: those that were late, and got normal priority for it; and loans of
  // it that the system refused.
  int64_t lent_copies = 0;
  int64_t refused_loans = 0;
  // What its moves are expected to save in horizon_tokens, on the critical path.
  double expected_seconds = 0.0;
  LedgerSums ledger;                       // of all moves so far
  std::vector<LayerSwitch> switches = {};  // in the order in which they ended
};

// The balancer rests, or tries again.
struct TrustChange {
  int64_t iteration = 0;
  MoveLedger::Verdict verdict;
};

struct BalancerOptions {
  // layer_updates_per_iter: layers that may have a posted plan at once; urgent updates besides, as
  // far as there are spare records.
  int layers_in_flight = 1;
  int num_spares = 1;                             // spare records of every rank
  std::chrono::microseconds look_interval{1000};  // while updates are under way; else longer
  std::vector<int> processors;  // of the background threads of all ranks; empty: the callers'
  std::chrono::milliseconds lend_after{20};  // priority_lender.h
  std::vector<int> layers;  // the model's numbers of the layers, for traces; empty: 0, 1, ...
  // num_ranks is set by the balancer. trial_rows 0: nothing is judged, the balancer never rests.
  LedgerOptions ledger = {.trial_rows = 0};
  int top_k = 1;  // rows per token
};

class OnlineBalancer {
 public:
  // placements: of every MoE layer, at the start of serving. own: rank 0's updater. Objects passed
  // by reference must outlive this; until then only its thread uses the policy. relay: null if all
  // ranks are on one node.
  OnlineBalancer(UpdateBoard& board, const weights::HostPool& pool, const WeightUpdater& own,
                 std::vector<balance::Placement> placements, UpdatePolicy& policy,
                 std::function<void(const Rebalance&)> on_rebalance,
                 std::function<void(const TrustChange&)> on_trust_change, BalancerOptions options,
                 const BoardRelay* relay = nullptr);
  ~OnlineBalancer();  // ends the thread
  OnlineBalancer(const OnlineBalancer&) = delete;
  OnlineBalancer& operator=(const OnlineBalancer&) = delete;

  LoadMailbox& mailbox() { return mailbox_; }  // the engine's thread

 private:
  // Of all ranks since the start.
  struct CopyTotals {
    int64_t copy_ns = 0;
    int64_t lent_copies = 0;
    int64_t refused_loans = 0;
  };
  // A decision of the policy whose updates have not all ended.
  struct Decision {
    Rebalance so_far;
    int open = 0;  // updates that have not ended
    int64_t start_ns = 0;
    CopyTotals before;
  };
  // An update that has not ended, made in one or more steps.
  struct Update {
    std::shared_ptr<Decision> decision;
    int layer = 0;
    double gain = 0.0;  // of the imbalance ratio, as expected
    balance::LayerPlan target;
    bool urgent = false;
    uint32_t generation = 0;   // of the posted step; 0: not posted
    std::vector<int> records;  // [owners] spare records that the step takes
  };

  void run();
  std::chrono::nanoseconds sleep_after(int64_t work_ns) const;
  void decide(const GroupLoads& loads);
  void pay_for_threads();
  void keep_ledger(const GroupLoads& loads);
  void show_ledger();
  bool is_sound(const LayerUpdate& update) const;
  bool rests() const { return ledger_ && ledger_->rests(); }
  void settle();
  void post_what_fits();
  bool post_step(Update& update);
  bool settle_step(Update& update);
  void end(Update& update);
  void send_counters();
  void cancel(Update& update);
  CopyTotals copies() const;

  UpdateBoard& board_;
  const weights::HostPool& pool_;
  const WeightUpdater& own_;
  std::vector<balance::Placement> placements_;
  UpdatePolicy& policy_;
  std::function<void(const Rebalance&)> on_rebalance_;
  std::function<void(const TrustChange&)> on_trust_change_;
  BalancerOptions options_;
  const BoardRelay* relay_;
  LoadMailbox mailbox_;
  std::optional<MoveLedger> ledger_;
  // Processor time that the ledger has taken into account: of this thread, and of [ranks] that
  // copy.
  int64_t paid_ns_ = 0;
  std::vector<int64_t> paid_ns_of_ranks_;
  int64_t counters_sent_ns_ = 0;

  std::vector<Update> updates_;    // those that have not ended, oldest first
  std::vector<uint8_t> busy_;      // [num_layers] 1: the layer has one of them
  std::vector<uint8_t> all_busy_;  // [num_layers] 1, for a balancer that rests
  std::vector<int> free_records_;  // [owners]; ranks with the same slots have equally many

  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses everything above
};

}  // namespace wideep::online
