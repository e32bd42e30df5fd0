// SPDX-License-Identifier: Apache-2.0
//
// Starts are tried from the most useful to the most costly, and each is the last one if it is good
// enough:
//
//   fold        one or two slots a rank: nothing else can be better for these counts
//   ring        follows later loads by shares alone
//   rounds      one sorting network a round, no ring
//   greedy      the other planners' start, so that the result is not above theirs
//
// A ring wins ties within the tolerance, since it is worth more later than a little balance now;
// for the same reason the exact placement, which has no ring, comes after the shares. The
// threshold search for replica counts runs once, and all starts share its counts. Boards are kept,
// so that plan() does not allocate.
#include "plan/planner_wideep.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/try.h"
#include "plan/placement_components.h"
#include "plan/placement_exact.h"
#include "plan/planner_nodes.h"
#include "plan/search/ring.h"
#include "plan/search/search.h"
#include "plan/window_counts.h"
#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

using search::Board;
using search::Goal;
using search::Search;

constexpr int kFewSlots = 48;
constexpr int kTriesOfFewSlots = 5000, kTimesOfFewSlots = 6;  // 2 ms

class WideepPlanner : public LayerPlanner {
 public:
  WideepPlanner(const PlanShape& shape, const PlannerOptions& options)
      : shape_(shape),
        split_(options.split),
        goal_{static_cast<float>(options.tolerance), options.max_rounds},
        search_(search::best_search()),
        ring_(shape.num_experts, shape.ep_size, shape.slots_per_rank()),
        rounds_(ring_),
        greedy_(ring_),
        pairs_(ring_),
        one_over_(1, 0.0) {
    if (split_ == Split::kWeighted && exact_placement_exists(shape)) exact_.emplace(shape);
    if (split_ == Split::kWeighted && components_are_needed(shape)) components_.emplace(shape);
    // All work space now: plan() allocates on its first call only, which may not need all of it.
    // Where shares are chosen, a ring balances as well and follows later loads better.
    const bool ring_is_enough = split_ == Split::kWeighted && exact_;
    if (shape.num_slots <= kFewSlots && !ring_is_enough) counts_.emplace(shape, 1);
    window_.assign(1, std::vector<double>(static_cast<size_t>(shape.num_experts)));
    other_.placement.slot_to_expert.reserve(static_cast<size_t>(shape.num_slots));
    other_.shares.reserve(static_cast<size_t>(shape.num_slots));
    for (int count = 1; count <= shape.ep_size; ++count) one_over_.push_back(1.0 / count);
  }

  void plan(const LayerLoad& load, LayerPlan* plan) override {
    WIDEEP_CHECK_EQ(load.tokens.size(), static_cast<size_t>(shape_.num_experts));
    ring_.set_load(load.tokens);
    search_.replicate(ring_, shape_.num_slots);
    write(best_layout(), plan);
    if (counts_) search_few_slots(load.tokens, plan);
    if (split_ == Split::kWeighted) choose_shares(load.tokens, plan);
  }

 private:
  // Returns the ring if it is good enough, or as good as any other within the tolerance; else the
  // better of the two other starts.
  const Board& best_layout() {
    copy_counts(ring_, &rounds_);
    if (shape_.slots_per_rank() <= 2 && fold()) return rounds_;
    const float enough = 2 * goal_.tolerance;  // other starts cost more than they could still gain
    const float ring = ring_layout();
    if (ring <= enough) return ring_;
    const float rounds = layout_in_rounds();
    if (rounds <= enough) return ring <= rounds + goal_.tolerance ? ring_ : rounds_;
    copy_counts(ring_, &greedy_);
    const float greedy = layout_lightest_first();
    if (ring <= std::min(rounds, greedy) + goal_.tolerance) return ring_;
    return rounds <= greedy ? rounds_ : greedy_;
  }

  // Returns the imbalance; infinite if no ring is possible.
  float ring_layout() {
    // Connecting R ranks takes R − 1 links, and each extra replica is one link. A ring that does
    // not connect all ranks cannot pass load between them, so it is not worth its constraints.
    const bool connects = shape_.num_slots - shape_.num_experts >= shape_.ep_size - 1;
    ring_.clear_slots();
    if (!connects || !search::place_ring(ring_, search_.sort_replicated(ring_))) {
      return std::numeric_limits<float>::infinity();
    }
    search_.fill(ring_);
    return search_.improve(ring_, goal_);
  }

  // With one slot per rank any placement of the counts is the best, with two it is the fold, which
  // rounds make. False: two replicas of an expert had to be separated and made it worse.
  bool fold() {
    if (shape_.slots_per_rank() == 2) search_.choose_pairs(rounds_, pairs_);
    rounds_.clear_slots();
    search_.fill(rounds_);
    const float folded = rounds_.max_rank_load();
    search::separate_replicas(rounds_);
    return rounds_.max_rank_load() <= folded * (1.0f + 0.1f * goal_.tolerance);
  }

  float layout_in_rounds() {
    rounds_.clear_slots();
    search_.fill(rounds_);
    // Rounds may give a rank two replicas of one expert.
    search::separate_replicas(rounds_);
    return search_.improve(rounds_, goal_);
  }

  float layout_lightest_first() {
    greedy_.clear_slots();
    search::fill_lightest_first(greedy_);
    search::separate_replicas(greedy_);
    return search_.improve(greedy_, goal_);
  }

  // The other starts use the same replica counts: the threshold search runs once per plan.
  static void copy_counts(const Board& from, Board* to) {
    to->load = from.load;
    to->replicas = from.replicas;
  }

  // With few slots replica counts and the order of placement decide by a few per cent, and trying
  // many takes no long time.
  void search_few_slots(std::span<const double> load, LayerPlan* plan) {
    const double enough = 2 * static_cast<double>(goal_.tolerance);
    if (imbalance_ratio(plan->placement, load, plan->shares) <= enough) return;
    window_[0].assign(load.begin(), load.end());
    counts_->run(window_,
                 {.tries_per_slot = 0,
                  .min_tries = kTriesOfFewSlots,
                  .times = kTimesOfFewSlots,
                  .tolerance = static_cast<double>(goal_.tolerance)},
                 plan);
  }

  void choose_shares(std::span<const double> load, LayerPlan* plan) {
    resplitter_.reset(plan->placement);
    resplitter_.resplit(load, plan->shares);
    // The exact placement is always balanced, but it has no ring: later loads are harder to follow.
    // So it is the second choice.
    const bool perfect = resplitter_.bottleneck_ranks().empty();
    if (!perfect && exact_) exact_->place(load, plan);
    if (!perfect && components_) choose_components(load, plan);
  }

  // As robust for later loads as any other placement with so few extra replicas.
  void choose_components(std::span<const double> load, LayerPlan* plan) {
    const double present = imbalance_ratio(plan->placement, load, plan->shares);
    if (!components_->place(load, &other_, present)) return;
    if (imbalance_ratio(other_.placement, load, other_.shares) < present) *plan = other_;
  }

  void write(const Board& board, LayerPlan* plan) const {
    const auto slots = static_cast<size_t>(shape_.num_slots);
    const auto slots_per_rank = static_cast<size_t>(shape_.slots_per_rank());
    plan->placement.num_experts = shape_.num_experts;
    plan->placement.ep_size = shape_.ep_size;
    plan->placement.slot_to_expert.resize(slots);
    plan->shares.resize(slots);
    size_t slot = 0;
    for (int rank = 0; rank < shape_.ep_size; ++rank) {
      const int32_t* experts = board.experts_of(rank);
      for (size_t i = 0; i < slots_per_rank; ++i, ++slot) {
        plan->placement.slot_to_expert[slot] = experts[i];
        plan->shares[slot] =
            one_over_[static_cast<size_t>(board.replicas[static_cast<size_t>(experts[i])])];
      }
    }
  }

  PlanShape shape_;
  Split split_;
  Goal goal_;
  const Search& search_;
  Board ring_;
  Board rounds_;
  Board greedy_;
  search::PairSearch pairs_;
  std::vector<double> one_over_;  // [replicas]
  Resplitter resplitter_;
  std::optional<ExactPlacer> exact_;           // where the shape allows it
  std::optional<ComponentPlacer> components_;  // where it does not
  LayerPlan other_;
  std::optional<CountSearch> counts_;  // for few slots
  std::vector<std::vector<double>> window_;
};

// Whole groups to nodes first, then each node for itself.
Result<std::unique_ptr<LayerPlanner>> make_hierarchical_planner(const PlanShape& shape,
                                                                const PlannerOptions& options) {
  WIDEEP_TRY_ASSIGN(const PlanShape node, shape_of_node(shape));
  Result<std::unique_ptr<LayerPlanner>> inside = make_wideep_planner(node, options);
  if (!inside.ok()) return inside.status().at("one node");
  return make_node_planner(shape, std::move(inside).value());
}

}  // namespace

Result<std::unique_ptr<LayerPlanner>> make_wideep_planner(const PlanShape& shape,
                                                          const PlannerOptions& options) {
  WIDEEP_TRY(check_plan_shape(shape));
  const int64_t max = int64_t{shape.num_experts} * shape.ep_size;
  if (shape.num_slots > max) {
    return invalid_input(fmt::format(
        "num_slots: {} slots for {} experts on {} ranks would put two replicas of an expert on one "
        "rank, which gains nothing; expected at most {}",
        shape.num_slots, shape.num_experts, shape.ep_size, max));
  }
  const bool hierarchical = shape.num_nodes > 1 && shape.num_groups > 1;
  if (hierarchical) return make_hierarchical_planner(shape, options);
  return std::unique_ptr<LayerPlanner>(std::make_unique<WideepPlanner>(shape, options));
}

}  // namespace wideep::balance
