// SPDX-License-Identifier: Apache-2.0
//
// The expert balancer as a library: it takes loads and returns placements, shares and repairs.
//
//   const PlanShape shape{.num_experts = 256, .ep_size = 32, .num_slots = 288};
//   auto planner = make_planner("wideep", shape, {.split = Split::kWeighted});
//   LayerPlan plan;
//   planner.value()->plan(load, &plan);                           // where the experts go
//   Resplitter resplitter(plan.placement);
//   resplitter.resplit(later_load, plan.shares);                  // no weights move
//   auto repairer = make_repairer(shape, {.split = Split::kWeighted, .tolerance = 0.01});
//   repairer.value()->repair(much_later_load, plan, &plan);       // as few moves as it takes
//
// A planner is made for one shape and its options. plan() is deterministic, allocates only on its
// first call, and keeps no state between calls except work space. The same holds for repairers.
//
// Thread safety: values are plain and functions pure; one thread at a time per planner or repairer.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::balance {

// How an engine divides an expert's tokens among its r replicas. The default is kEqual, which every
// engine can serve. A plan for kWeighted is balanced only if the engine routes tokens by its
// shares.
enum class Split {
  kEqual,     // load / r each: TRT, vLLM, DeepSeek
  kWeighted,  // by shares that the planner chooses
};

// The numbers a placement has to fit. Every rank has K = S / R slots; node n of N owns the ranks
// [n·R/N, (n + 1)·R/N); group g of G owns the experts [g·E/G, (g + 1)·E/G). Ranks that are dead, or
// have memory for fewer experts, use only their first rank_slots[r] slots.
struct PlanShape {
  int num_experts = 0;  // E
  int ep_size = 1;      // R
  int num_slots = 0;    // S, a multiple of R, ≥ E
  int num_nodes = 1;    // N, divides R
  int num_groups = 1;   // G, divides E; a multiple of N when experts stay with their group's node

  std::vector<int> rank_slots = {};  // [R] usable slots, 0 … K, 0: dead; empty: all K

  int slots_per_rank() const { return num_slots / ep_size; }
  int usable_slots_of(int rank) const {
    return rank_slots.empty() ? slots_per_rank() : rank_slots[static_cast<size_t>(rank)];
  }
  int num_usable_slots() const;
  int num_live_ranks() const;     // those with a usable slot
  bool all_slots_usable() const;  // on every rank
  bool operator==(const PlanShape&) const = default;
};

// Errors (invalid input): as check_slot_counts; nodes that do not divide the ranks or groups that
// do not divide the experts; rank_slots of another length or outside 0 … K, fewer usable slots than
// experts, and unusable slots together with groups kept on nodes.
Status check_plan_shape(const PlanShape& shape);

// Checks a load [layers, num_experts] for planners and re-split: every value is finite and ≥ 0, and
// so is the sum. Errors (invalid input) name layer and expert.
Status check_load(std::span<const double> load, int num_experts);

// The share of its expert's tokens that each slot receives, [S], ≥ 0; the shares of an expert's
// slots sum to 1. 0 for an unused slot.
using Shares = std::vector<double>;

// Checks shares [S]: every value is finite and ≥ 0, and those of an expert's slots sum to 1 (within
// 1e-6). An unused slot may have any share. Errors (invalid input) name the slot or the expert.
// REQUIRES: check_placement(placement).ok().
Status check_shares(const Placement& placement, std::span<const double> shares);

// 1 / r for a slot whose expert has r replicas.
Shares equal_shares(const Placement& placement);

// Tokens of each rank, [R], for expert_load [E] split by shares [S].
std::vector<double> rank_loads(const Placement& placement, std::span<const double> expert_load,
                               std::span<const double> shares);

// max / mean − 1 of rank loads; 0 where there is no load at all.
double imbalance_ratio(std::span<const double> loads);

// The imbalance ratio of a placement's rank loads over the ranks that hold an expert, so that dead
// ranks do not lower the mean. If more ranks are live than hold an expert, num_live_ranks is their
// number, and idle live ranks count with load 0. Allocates nothing.
double imbalance_ratio(const Placement& placement, std::span<const double> expert_load,
                       std::span<const double> shares, int num_live_ranks = 0);

// A lower bound for the imbalance of any placement: max rank load / mean − 1 of every valid
// placement (no rank holds two replicas of an expert) is at least this; ≥ 0. load: [E], finite and
// ≥ 0. The proofs are in src/balance/plan/lower_bound.cc. REQUIRES: check_plan_shape(shape).ok().
double imbalance_lower_bound(std::span<const double> load, const PlanShape& shape, Split split);

// The shares that minimise the maximum rank load of a fixed placement: no weights move, so an
// engine can do this every iteration. load: [E], finite and ≥ 0. REQUIRES:
// check_placement(placement).ok().
Shares resplit(const Placement& placement, std::span<const double> expert_load);

// resplit() for many loads: keeps the structure of one placement and its work space, so that
// resplit() allocates nothing.
//
//   Resplitter resplitter(placement);
//   const double max_load = resplitter.resplit(expert_load, shares);  // each iteration
//
// Thread safety: one thread at a time. A Resplitter that was moved from can only be assigned to or
// destroyed.
class Resplitter {
 public:
  Resplitter();  // reset() before use
  // REQUIRES: check_placement(placement).ok().
  explicit Resplitter(const Placement& placement);
  ~Resplitter();
  Resplitter(Resplitter&&) noexcept;
  Resplitter& operator=(Resplitter&&) noexcept;

  // Starts again with another placement. Allocates nothing if an earlier placement had the same
  // sizes.
  void reset(const Placement& placement);

  // expert_load: [E], finite and ≥ 0, any unit. Writes shares: [S], ≥ 0, summing to 1 (within
  // 1e-12) over each expert's slots; replicas that share a rank get equal parts, and the replicas
  // of an expert without load too. Returns the maximum rank load under these shares, the least
  // possible within 1e-11 relative. Depends on the arguments only, never on earlier calls.
  double resplit(std::span<const double> expert_load, std::span<double> shares);

  // After resplit(): the ranks U, ascending, whose experts have no replica elsewhere and whose mean
  // load is the maximum. To get below it, an expert of U must get a replica outside or leave.
  // Empty when the ranks are perfectly balanced.
  std::span<const int> bottleneck_ranks() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct LayerPlan {
  Placement placement;
  Shares shares;  // for the planner's Split
};

struct PlannerOptions {
  Split split = Split::kEqual;
  // Of planner wideep: the imbalance ratio at which the search stops, and its longest duration.
  double tolerance = 1e-3;
  int max_rounds = 100;  // of swaps, per layer
  // Of planner cooccurrence: the imbalance ratio that it may take for fewer ranks per token.
  double cooccurrence_tolerance = 0.02;
};

// A planner's input for one layer. A caller without pair counts passes the tokens alone:
// planner->plan(tokens, &plan), planner->plan({tokens, pair_counts}, &plan). The spans do not own
// their arrays, which must outlive the call.
struct LayerLoad {
  template <typename Tokens>
    requires std::convertible_to<Tokens, std::span<const double>>
  LayerLoad(const Tokens& tokens_of_experts, std::span<const int64_t> pairs = {})
      : tokens(tokens_of_experts), pair_counts(pairs) {}

  // [E] of each expert, finite and ≥ 0. Any unit: only ratios matter.
  std::span<const double> tokens;
  // [E, E] tokens that chose both experts: symmetric, ≥ 0, the diagonal is ignored; empty where it
  // is not known.
  std::span<const int64_t> pair_counts;
};

class LayerPlanner {
 public:
  virtual ~LayerPlanner() = default;

  virtual void plan(const LayerLoad& load, LayerPlan* plan) = 0;
};

// The planners by name:
//   wideep    balance first, replicas on a ring, never two of an expert on one rank
//             (planner_wideep.h); with kWeighted exact where exact_placement_exists
//   trt       TensorRT-LLM's greedy (placement_trt.h)
//   deepseek  DeepSeek's, hierarchical where groups divide among nodes (placement_deepseek.h)
//   cooccurrence  experts that tokens choose together live together, on nodes first
//             (planner_cooccurrence.h)
// All serve shapes with dead ranks, as if the live ones were alone. Unequal memory (live ranks with
// different numbers of usable slots) is for wideep only (planner_memory.h).
//
// trt and deepseek may put two replicas of an expert on one rank. With kWeighted they get the best
// shares for their placement.
const std::vector<std::string>& planner_names();

// True if plan() of this planner REQUIRES LayerLoad::pair_counts: planner cooccurrence.
bool needs_pair_counts(std::string_view planner_name);

// Errors (invalid input): an unknown name; options below 0; a shape that the planner cannot serve.
Result<std::unique_ptr<LayerPlanner>> make_planner(std::string_view name, const PlanShape& shape,
                                                   const PlannerOptions& options);

struct RepairOptions {
  Split split = Split::kEqual;
  double tolerance = 0.01;  // imbalance ratio at which to stop
  // A limit for all moves. Forced moves (RepairReport::forced_moves) are made even beyond it.
  int max_moves = std::numeric_limits<int>::max();
  int64_t bytes_per_expert = 0;  // weights of one expert of the layer
};

// Imbalance ratios for the new load, and the cost of the repair.
struct RepairReport {
  double imbalance_before = 0.0;   // the old placement with its old shares, dead ranks included
  double imbalance_resplit = 0.0;  // after the forced moves, with the best shares (equal split:
                                   // equal shares)
  double imbalance_after = 0.0;    // ≤ imbalance_resplit
  int moves = 0;                   // all, ≤ max(max_moves, forced_moves)
  int forced_moves = 0;            // of experts that lost their last usable slot
  int64_t bytes = 0;               // moves · bytes_per_expert
};

class Repairer {
 public:
  virtual ~Repairer() = default;

  // load: [E], finite and ≥ 0, any unit. from: a valid placement of the shape (check_placement) by
  // any planner; its shares may be absent (equal then), and kEqual ignores them. `to` gets a
  // placement and shares: within max_moves; replicas that stay keep their slots; no rank gets a
  // second replica of an expert. `to` may be `&from`.
  //
  // Recovery: `from` may be the placement before ranks died or memory shrank. What it has in slots
  // that the shape's rank_slots do not allow is lost; experts that have no other replica (or none
  // in `from` at all) move first (repair/rehome.h), and then repair goes on. Usable slots that
  // `from` leaves unused, as of a rank that is back, are filled where that helps.
  //
  // Deterministic. Depends on the arguments only. Allocates on the first call only.
  virtual RepairReport repair(std::span<const double> load, const LayerPlan& from,
                              LayerPlan* to) = 0;
};

// Errors (invalid input): as check_plan_shape, also when the experts do not fit the usable slots; a
// tolerance or max_moves below 0; groups kept on nodes (num_nodes and num_groups both above 1),
// because repair moves experts between nodes.
Result<std::unique_ptr<Repairer>> make_repairer(const PlanShape& shape,
                                                const RepairOptions& options);

}  // namespace wideep::balance
