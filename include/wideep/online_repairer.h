// SPDX-License-Identifier: Apache-2.0
//
// The online balancer for other engines: windows of load in, few moves of experts out.
//
// The policy is that of `wideep serve` (docs/online.md): it remembers kinds of load that come back,
// acts as soon as an imbalance is more than noise, and moves an expert only if that saves more than
// it costs. For an engine that divides an expert's tokens equally, plans are made and judged with
// equal shares.
//
//   auto repairer = OnlineRepairer::create({.plan = shape, .num_layers = 58, .top_k = 8}, {},
//                                          placements);
//   // each iteration, or each window of iterations, off the forward path:
//   auto updates = repairer->step(counts);                       // counts: [L, E]
//   for (const LayerUpdate& update : *updates) copy_weights(update.layer_idx, update.moves);
//
// Deterministic: depends only on the options and the calls, so all ranks can compute the same from
// the same counts. Thread safety: one thread at a time. Allocates.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "wideep/balancer.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::online {

// A slot that gets another expert: one copy of weights.
struct SlotMove {
  int slot = 0;    // global
  int expert = 0;  // new
  bool operator==(const SlotMove&) const = default;
};

struct LayerUpdate {
  int layer_idx = 0;        // from 0
  balance::LayerPlan plan;  // the whole target; its shares are those of the expected load
  // The slots that differ between the target and the given placement; empty if only shares change
  // (share_update window). Experts that stay on a rank keep their slots.
  std::vector<SlotMove> moves;
  // Imbalance ratio expected of the present placement and of the target: weighted mean over the
  // window's samples, with the shares of the policy and of share_update.
  double imbalance_before = 0.0;
  double imbalance_after = 0.0;
  int64_t bytes = 0;  // moves · bytes_per_expert
  // Noise does not explain the imbalance: the update need not wait for others.
  bool urgent = false;
};

struct RepairerShape {
  balance::PlanShape plan;  // E, R, S of every layer; no groups kept on nodes
  int num_layers = 0;       // MoE layers, ≥ 1
  int top_k = 0;            // experts per token, ≥ 1
};

struct RepairerOptions {
  // kWeighted only for an engine that divides tokens by shares that it computes itself in every
  // iteration (kIteration), or takes from the updates (kWindow).
  balance::Split split = balance::Split::kEqual;
  balance::ShareUpdate share_update = balance::ShareUpdate::kIteration;

  double tolerance = 0.0;  // imbalance ratio that needs no moves; 0: 0.01 equal, 0.003 weighted
  int max_moves = std::numeric_limits<int>::max();  // of one layer in one step, ≥ 1
  // What a move costs, in rows (a token in an expert) that a rank could compute meanwhile, ≥ 0; and
  // the tokens within which it must save that much, ≥ 1, 0: 16,384, or 4,096 per rank above 8
  // ranks.
  double rows_per_move = 32.0;
  int64_t horizon_tokens = 0;
  // Probability that noise alone makes a balanced layer look unbalanced in one step, in (0, 1).
  double false_alarm_rate = 1e-3;
  // Counts are gathered to samples of so many tokens, ≥ 1, of which num_samples are remembered,
  // ≥ 1. A step of more tokens is one sample.
  int64_t sample_tokens = 2048;
  int num_samples = 32;
  // Planning time of one step with a weighted split, in milliseconds, four times as much when the
  // text has changed; what is not reached goes on in the next step. 0: as docs/online.md says. An
  // equal split takes less than 0.1 ms per layer and has no limit.
  double turn_ms = 0.0;
  int64_t bytes_per_expert = 0;  // of one layer's expert; only reported
};

class OnlineRepairer {
 public:
  // placements: [L] those in service.
  // Errors (invalid input): an option out of its range; a shape that cannot be, or has groups kept
  // on nodes; a placement that is not valid or not of the shape, or has experts in slots that
  // rank_slots does not allow (balance::Repairer moves them), with the layer.
  static Result<OnlineRepairer> create(const RepairerShape& shape, const RepairerOptions& options,
                                       std::vector<balance::Placement> placements);

  OnlineRepairer(OnlineRepairer&&) noexcept;
  OnlineRepairer& operator=(OnlineRepairer&&) noexcept;
  ~OnlineRepairer();

  // counts: [L, E] tokens of all ranks together in one iteration, or summed over several; ≥ 0.
  // busy: [L] nonzero for layers whose copies are still under way, which get no update; empty:
  // none. Returns the updates, ascending, valid until the next call. They count as in service from
  // then on. Errors (invalid input): wrong lengths, a negative count.
  Result<std::span<const LayerUpdate>> step(std::span<const int64_t> counts,
                                            std::span<const uint8_t> busy = {});

  // [L] in service, with all updates so far.
  std::span<const balance::Placement> placements() const;

  // Where the engine did not follow an update. Errors as create().
  Status set_placement(int layer_idx, balance::Placement placement);

 private:
  class Impl;
  explicit OnlineRepairer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wideep::online
