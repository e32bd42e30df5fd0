// SPDX-License-Identifier: Apache-2.0
//
// What the balancer's moves have brought, and what they have cost: on the loads that came after
// them, not on those that they were planned from. Replicas share as the engine lets them: equally,
// or as suits the iteration.
//
// Each switch of a layer to another placement is on trial for as many rows as the balancer wants it
// to pay for itself in. The rows of each iteration are split once by the placement before the
// switch and once by that after it, as the engine would split them. The difference of the fullest
// rank's rows is what the switch has saved in that iteration, times what a row takes there, as
// measured by the first rank. Switches of a layer that are on trial at the same time are compared
// each with the one before, so that savings add up to those against no switch at all. A switch that
// follows another one of its layer within an eighth of a trial joins that one's trial, so a layer
// has at most eight, and each ends trial_rows after its first switch, however many there are.
//
// The cost is the processor time of all background threads (pay()), as if the forward path had to
// wait for it. It belongs to the next switch. Where none comes within four trials, or while the
// balancer rests, it belongs to no switch, and is in the sums only.
//
// When ended trials are worth judging and have not paid for themselves, the balancer rests: it
// plans nothing for a while, then tries again; the rest is twice as long each time in a row. What
// has ended is judged after 32 moves or four trials, so a switch is judged within five trials.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "online/load_mailbox.h"
#include "online/served_layer.h"
#include "wideep/balancer.h"

namespace wideep::online {

// Sums over switches.
struct LedgerSums {
  int64_t moves = 0;              // experts copied
  double expected_seconds = 0.0;  // what the policy expected them to save
  double saved_seconds = 0.0;     // what they have saved, in iterations in which they did
  double lost_seconds = 0.0;      // what they have cost in iterations that they made slower, ≥ 0
  double paid_seconds = 0.0;      // processor time of background threads

  double net_seconds() const { return saved_seconds - lost_seconds - paid_seconds; }
  LedgerSums& operator+=(const LedgerSums& other);
};

struct LedgerOptions {
  bool equal_shares = false;  // replicas share their expert's rows equally; else as suits
  int num_ranks = 1;          // that share the rows
  // Rows of a layer, over all ranks, for which a switch is on trial.
  int64_t trial_rows = 1;
  // Iterations with so many rows of a layer have equal loads whatever the placement (exact load),
  // so that no switch saves anything there; 0: none.
  int64_t even_above_rows = 0;
  bool may_rest = true;
  // Trials are judged when they have ended for so many moves, or else after four times trial_rows.
  int64_t judged_moves = 32;
};

class MoveLedger {
 public:
  // placements: [L] in service.
  MoveLedger(std::span<const balance::Placement> placements, const LedgerOptions& options);

  // A layer has switched. moves: the experts copied for it, > 0.
  void switched(int layer, const balance::Placement& placement, int64_t moves);
  // What the policy expects of an update, the imbalance ratio falls by so much, in seconds saved.
  double expect(double imbalance_gained);
  // Processor time of background threads, for the next switch.
  void pay(double seconds);

  // Why the balancer's state has changed.
  struct Verdict {
    bool rests = false;       // else it tries again
    LedgerSums sums;          // rests: of the trials that were judged
    int64_t rest_tokens = 0;  // rests: how many rows of a layer / rows per token the rest takes
  };
  // The loads of iterations that have run with the present placements. top_k: rows per token.
  std::optional<Verdict> add(const GroupLoads& loads, int top_k);

  bool rests() const { return rest_rows_ > 0.0; }
  const LedgerSums& sums() const { return sums_; }  // since the start
  // Two parts of them (but for expected_seconds): of ended trials and for no switch, and of
  // switches on trial and for the next one.
  const LedgerSums& settled() const { return settled_; }
  LedgerSums pending() const;
  int num_trials(int layer) const;  // of switches that are on trial

 private:
  // One switch on trial, or several that followed each other closely.
  struct Trial {
    LedgerSums sums;
    double rows = 0.0;  // since the first of them
  };
  struct Layer {
    // The placement before the oldest trial, then one after each: one more than trials.
    std::deque<std::unique_ptr<ServedLayer>> placements;
    std::deque<Trial> trials;
  };

  std::unique_ptr<ServedLayer> served(const balance::Placement& placement) const;
  void add_layer(Layer& layer, std::span<const int64_t> tokens, int64_t num_iterations);
  void end_trial(Layer& layer);
  double take_unassigned();
  std::optional<Verdict> rest(double rows);
  std::optional<Verdict> judge(double rows, int top_k);

  LedgerOptions options_;
  std::vector<Layer> layers_;
  double seconds_per_row_ = 0.0;  // of the iterations that are being added, or before
  LedgerSums sums_;
  LedgerSums settled_;
  LedgerSums judged_;                // of ended trials, since the last verdict
  double unassigned_seconds_ = 0.0;  // paid, but not yet for a switch
  double unassigned_rows_ = 0.0;     // of a layer, in which that was
  double rows_ = 0.0;                // of a layer, since the last verdict
  double rest_rows_ = 0.0;           // of a layer; > 0: rests for so many more
  int rests_in_a_row_ = 0;
  std::vector<double> load_;     // [E] scratch
  std::vector<double> fullest_;  // [placements of a layer] scratch
};

}  // namespace wideep::online
