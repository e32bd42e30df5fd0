// SPDX-License-Identifier: Apache-2.0
//
// Exchanges keep the replica counts of the balanced plan, and with them most of its balance; only
// who sits with whom is searched. Threshold accepting instead of annealing: it needs no
// exponential, and its random threshold falls to zero. Overload is a penalty that rises rather
// than a wall, since the way to a better arrangement often leads through a full rank; hill
// climbing afterwards removes overload before anything else. Its result competes with plain hill
// climbing, which is never overloaded more than the start.
#include "plan/planner_cooccurrence.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "plan/affinity.h"
#include "plan/node_affinity.h"
#include "plan/planner_wideep.h"

namespace wideep::balance {
namespace {

constexpr int kTrialsPerSlot = 2500;
constexpr double kFirstThreshold = 4e-3;  // part of all pairs that an exchange may lose
constexpr double kMinGain = 1e-9;         // less is rounding
constexpr double kFirstPenalty = 0.05;    // pairs that offset an overload of one mean rank load
constexpr double kLastPenalty = 2.0;
// With several nodes: what a message within a node counts beside one between nodes.
constexpr double kWithinNode = 0.1;

// A fixed sequence that is the same everywhere (splitmix64).
class Sequence {
 public:
  explicit Sequence(uint64_t seed) : state_(seed) {}
  int below(int bound) {
    return static_cast<int>((next() >> 32) * static_cast<uint64_t>(bound) >> 32);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

class CooccurrencePlanner : public LayerPlanner {
 public:
  CooccurrencePlanner(const PlanShape& shape, const PlannerOptions& options,
                      std::unique_ptr<LayerPlanner> balanced)
      : split_(options.split),
        tolerance_(options.cooccurrence_tolerance),
        ranks_of_domain_(shape.num_groups > 1 ? shape.ep_size / shape.num_nodes : shape.ep_size),
        balanced_(std::move(balanced)),
        affinity_(shape) {
    // Groups that are kept on nodes leave nothing to choose between nodes.
    if (shape.num_nodes > 1 && shape.num_groups == 1) between_nodes_.emplace(shape);
  }

  void plan(const LayerLoad& load, LayerPlan* plan) override {
    balanced_->plan(load.tokens, plan);
    affinity_.reset(load, plan->placement);
    if (between_nodes_) between_nodes_->reset(load, plan->placement);
    // The starting plan may be above the tolerance; the search must not make it worse. 1e-12 is for
    // the rounding of loads that exchanges update.
    limit_ = std::max(1.0 + tolerance_, affinity_.max_rank_load()) + 1e-12;
    search(plan->placement.slot_to_expert);
    if (split_ == Split::kEqual) {
      write(&plan->placement, &plan->shares);
    } else {
      write_weighted(load.tokens, plan);
    }
  }

 private:
  // Leaves the best placement in affinity_. Threshold search gets out of local optima but may end
  // with overload, which hill climbing cannot always remove: then the first result stays.
  void search(std::span<const int32_t> start) {
    hill_climb();
    best_.assign(affinity_.slot_to_expert().begin(), affinity_.slot_to_expert().end());
    const double climbed = worth();
    place(start);
    threshold_search();
    hill_climb();
    const bool better = worth() > climbed + kMinGain;
    if (!better || affinity_.max_rank_load() > limit_) place(best_);
  }

  // What the search maximises.
  double worth() const {
    if (!between_nodes_) return affinity_.within_rank_ratio();
    return between_nodes_->saved() + kWithinNode * affinity_.within_rank_ratio();
  }
  double gain(int slot_a, int slot_b) const {
    if (!between_nodes_) return affinity_.gain(slot_a, slot_b);
    return between_nodes_->gain(slot_a, slot_b) + kWithinNode * affinity_.gain(slot_a, slot_b);
  }
  void exchange(int slot_a, int slot_b) {
    affinity_.exchange(slot_a, slot_b);
    if (between_nodes_) between_nodes_->exchange(slot_a, slot_b);
  }
  void place(std::span<const int32_t> slot_to_expert) {
    affinity_.place(slot_to_expert);
    if (between_nodes_) between_nodes_->place(slot_to_expert);
  }

  // Ranks that may exchange experts.
  bool same_domain(int slot_a, int slot_b) const {
    return affinity_.rank_of(slot_a) / ranks_of_domain_ ==
           affinity_.rank_of(slot_b) / ranks_of_domain_;
  }

  double overload(double load) const { return std::max(0.0, load - limit_); }

  // Load above the limit that the exchange adds, on both ranks.
  double added_overload(int slot_a, int slot_b) const {
    const double moved = affinity_.slot_load(slot_a) - affinity_.slot_load(slot_b);
    const double a = affinity_.rank_load(affinity_.rank_of(slot_a));
    const double b = affinity_.rank_load(affinity_.rank_of(slot_b));
    return overload(a - moved) + overload(b + moved) - overload(a) - overload(b);
  }

  // Threshold accepting (Dueck and Scheuer): random exchanges, of which each may lose up to a
  // random threshold that falls to 0 (quadratically, so most trials are nearly greedy), while the
  // penalty of overload rises.
  void threshold_search() {
    Sequence random(1);
    const int slots = affinity_.num_slots();
    const int trials = kTrialsPerSlot * slots;
    for (int trial = 0; trial < trials; ++trial) {
      const double left = 1.0 - static_cast<double>(trial) / trials;
      const double penalty = kFirstPenalty + (kLastPenalty - kFirstPenalty) * (1.0 - left);
      const int a = random.below(slots), b = random.below(slots);
      const double threshold = kFirstThreshold * left * left * random.unit();
      if (!same_domain(a, b) || !affinity_.may_exchange(a, b)) continue;
      const double net = gain(a, b) - penalty * added_overload(a, b);
      if (net > -threshold) exchange(a, b);
    }
  }

  // Exchanges that help and add no overload, until there is none. Removing overload counts before
  // pairs. Every exchange gains more than rounding, so it ends.
  void hill_climb() {
    while (pass()) {
    }
  }

  bool pass() {
    bool improved = false;
    for (int a = 0; a < affinity_.num_slots(); ++a) {
      for (int b = a + 1; b < affinity_.num_slots(); ++b) {
        if (!same_domain(a, b) || !affinity_.may_exchange(a, b) || !helps(a, b)) continue;
        exchange(a, b);
        improved = true;
      }
    }
    return improved;
  }

  bool helps(int a, int b) const {
    const double added = added_overload(a, b);
    if (added != 0.0) return added < -kMinGain;
    return gain(a, b) > kMinGain;
  }

  void write(Placement* placement, Shares* shares) const {
    std::ranges::copy(affinity_.slot_to_expert(), placement->slot_to_expert.begin());
    affinity_.equal_shares(shares);
  }

  // The search balances equal shares. If the best shares of its result are less balanced than
  // allowed, the starting plan stays.
  void write_weighted(std::span<const double> tokens, LayerPlan* plan) {
    const double before = imbalance(tokens, *plan);
    moved_ = *plan;
    write(&moved_.placement, &moved_.shares);
    resplitter_.reset(moved_.placement);
    resplitter_.resplit(tokens, moved_.shares);
    if (imbalance(tokens, moved_) <= std::max(before, tolerance_)) std::swap(*plan, moved_);
  }

  static double imbalance(std::span<const double> tokens, const LayerPlan& plan) {
    return imbalance_ratio(rank_loads(plan.placement, tokens, plan.shares));
  }

  Split split_;
  double tolerance_;
  int ranks_of_domain_;
  std::unique_ptr<LayerPlanner> balanced_;
  Affinity affinity_;
  std::optional<NodeAffinity> between_nodes_;
  double limit_ = 0.0;  // of rank loads, mean 1
  std::vector<int32_t> best_;
  LayerPlan moved_;
  Resplitter resplitter_;
};

}  // namespace

Result<std::unique_ptr<LayerPlanner>> make_cooccurrence_planner(const PlanShape& shape,
                                                                const PlannerOptions& options) {
  if (!(options.cooccurrence_tolerance >= 0.0)) {
    return invalid_input(
        fmt::format("cooccurrence_tolerance: expected an imbalance ratio of at least 0, found {}",
                    options.cooccurrence_tolerance));
  }
  WIDEEP_TRY_ASSIGN(auto balanced, make_wideep_planner(shape, options));
  return std::unique_ptr<LayerPlanner>(
      std::make_unique<CooccurrencePlanner>(shape, options, std::move(balanced)));
}

}  // namespace wideep::balance
