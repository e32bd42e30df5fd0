// SPDX-License-Identifier: Apache-2.0
//
// The online balancer's policy: which experts move, and when. It depends on counts and placements,
// not on weights or a model, so other engines can embed it; `wideep balance replay` runs the same
// code.
//
// Policy wideep. Shares come first: an engine that re-splits an expert's tokens over its replicas
// by the iteration's own counts (share_update iteration) follows the load without moving a byte.
// The policy examines a layer on its turn (layer_rota.h) when a sample of the load window is
// complete, and at once, with all layers that need it, when there is evidence in fewer tokens
// (evidence.h) or the text has changed (load_window.h). It computes the imbalance that the best
// shares leave on the samples of the load window: a part of the weight is on samples that resemble
// the newest, the rest on all samples by their tokens, so that the placement stays good for earlier
// kinds of load too. Only if that imbalance exceeds the tolerance it searches for moves, those that
// gain most first, within the time of a turn, and each must pay for itself:
//
//   gain of the moves · rows per rank in horizon_tokens  ≥  moves · rows_per_move
//
// with the gain in imbalance ratio: both sides are rows of expert work on the critical path. The
// price also prevents moves back and forth: to go back, the same samples would have to pay it
// again.
//
// Policy trt, for comparison: on its turn TensorRT-LLM's planner plans a layer from scratch, from
// the decayed load, which is then set to zero; with an equal split, at any number of moves.
//
//   WIDEEP_TRY_ASSIGN(auto policy, make_update_policy(shape, {.layer_updates_per_iter = 2}));
//   // each iteration, on a background thread:
//   for (int layer = 0; layer < num_layers; ++layer) policy->add_counts(layer, counts[layer]);
//   for (const LayerUpdate& update : policy->end_iteration(placements, busy)) start(update);
//
// Deterministic: depends only on the options and the calls, so all ranks could compute the same.
// Thread safety: one thread at a time. Allocates, so it is never called on the forward path.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "online/load_window.h"
#include "wideep/balancer.h"
#include "wideep/online_repairer.h"  // LayerUpdate, SlotMove
#include "wideep/status.h"

namespace wideep::online {

using PolicyKind = balance::UpdatePolicyKind;

using balance::ShareUpdate;  // kWindow: the shares are those of the window's counts

std::string_view name_of(PolicyKind kind);     // "wideep", "trt"
std::string_view name_of(ShareUpdate update);  // "iteration", "window"
// Errors (invalid input): another name.
Result<PolicyKind> parse_policy(std::string_view name);
Result<ShareUpdate> parse_share_update(std::string_view name);

struct PolicyShape {
  balance::PlanShape plan;  // E, R, S of every layer; no groups kept on nodes
  int num_layers = 0;       // MoE layers, ≥ 1
  int top_k = 0;            // experts per token, ≥ 1
};

// The defaults are good for most uses; options that a deployment may want to set come first.
struct PolicyOptions {
  PolicyKind policy = PolicyKind::kWideep;
  ShareUpdate share_update = ShareUpdate::kIteration;
  int layer_updates_per_iter = 1;  // k: layers whose turn an iteration is, 1 … L
  bool rests = true;               // LayerRota: an empty turn follows equal groups
  int64_t bytes_per_expert = 0;    // of one layer's expert; only reported

  // Iterations (with tokens) that only gather counts. Policy wideep also waits for evidence.
  int64_t warm_up_iterations = 0;
  // A layer whose imbalance on the open sample noise does not explain is planned before the sample
  // is complete, and out of turn. This is the probability that noise alone looks so, for a layer
  // that is balanced, and one look; in (0, 1), or 0: never before a sample is complete.
  double false_alarm_rate = 1e-3;
  // Planning time of one turn, in milliseconds; four times as much if there is evidence. 0:
  // default_turn_ms(). The layers whose imbalance has grown most come first, and in a layer the
  // moves that gain most; what is not reached goes on in the next turn. At least one move is
  // searched. The time is estimated from the steps that are made (placement/resplit_work.h), not
  // read from a clock, so that equal input gives equal plans.
  double turn_ms = 0.0;
  double tolerance = 0.003;                         // imbalance ratio that needs no moves, ≥ 0
  int max_moves = std::numeric_limits<int>::max();  // of one layer's update, ≥ 1

  // The price of copying one expert, in rows (a token in an expert) that a rank could compute in
  // that time, ≥ 0. In bf16 a row takes as many floating-point operations as an expert has bytes,
  // so this is the machine's operations per byte copied: tens for processors; or see
  // rows_per_move() below.
  double rows_per_move = 32.0;
  // A move must pay for itself within this many tokens, ≥ 1.
  int64_t horizon_tokens = 16384;
  // Increases each sample's distance from the mean of the window by this part for the search: a
  // load that has moved is likely to move further. ≥ 0.
  double drift_margin = 0.2;

  WindowOptions window = {};
};

// The horizon that suits a group of ep_size ranks: each rank of a wide group computes fewer of the
// group's tokens, so a move takes more of them to pay for itself. 16,384 up to 8 ranks, 131,072 for
// 32.
int64_t default_horizon_tokens(int ep_size);

// 8 ms for layers of at most 128 slots, which are searched thoroughly (move_search.h); for larger
// ones 4 ms up to 32 ranks, and a third more for every 32 ranks above.
double default_turn_ms(const balance::PlanShape& shape);

// The price of a move from measured figures, all > 0.
double rows_per_move(double bytes_per_expert, double copy_bytes_per_second, double seconds_per_row);

class UpdatePolicy {
 public:
  virtual ~UpdatePolicy() = default;

  // As LoadWindow::add.
  virtual void add_counts(int layer_idx, std::span<const int64_t> counts) = 0;
  virtual void add_counts(int layer_idx, std::span<const int32_t> counts) = 0;

  // Ends the iteration and plans the layers whose turn it is. placements: [L] those in service (or
  // about to be, if an update was agreed), valid, of the shape. busy: [L] nonzero for layers whose
  // update is still under way, which get no plan; empty: none. Returns at most
  // layer_updates_per_iter updates and the urgent ones, ascending, valid until the next call. An
  // iteration without tokens is no turn.
  virtual std::span<const LayerUpdate> end_iteration(std::span<const balance::Placement> placements,
                                                     std::span<const uint8_t> busy = {}) = 0;

  virtual const LoadWindow& window() const = 0;

  // The expected load of a layer, [E], any unit, by which share_update window splits. Zeros before
  // the first counts. Valid until the next call.
  virtual std::span<const double> expected_load(int layer_idx) = 0;
};

// Errors (invalid input) name the option: out of its range above; more layer updates per iteration
// than layers; as balance::make_repairer and, for policy trt, balance::make_planner.
Result<std::unique_ptr<UpdatePolicy>> make_update_policy(const PolicyShape& shape,
                                                         const PolicyOptions& options);

}  // namespace wideep::online
