// SPDX-License-Identifier: Apache-2.0
//
// What both splits have in common is around the search: forced moves before it, a count of copies
// after it.
//
//   old plan ─▶ unusable slots emptied ─▶ lost experts get slots ─▶ search ─▶ slots aligned
//
// Slots are aligned last, because a search may permute the slots of a rank, and what stays on a
// rank must not be copied. Moves are counted against the plan without the lost slots, for their
// experts have to be copied whatever is decided. Dead ranks are taken out around all of this
// (MaskedRepairer).
#include "wideep/balancer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "plan/live_ranks.h"
#include "plan/moves.h"
#include "plan/repair/equal_repair.h"
#include "plan/repair/rehome.h"
#include "plan/repair/weighted_repair.h"

namespace wideep::balance {
namespace {

void check_sizes(const PlanShape& shape, std::span<const double> load, const Placement& from) {
  WIDEEP_CHECK_EQ(load.size(), static_cast<size_t>(shape.num_experts));
  WIDEEP_CHECK_EQ(from.num_experts, shape.num_experts);
  WIDEEP_CHECK_EQ(from.ep_size, shape.ep_size);
  WIDEEP_CHECK_EQ(from.num_slots(), shape.num_slots);
}

// replicas: [E] scratch.
void write_equal_shares(std::vector<int>& replicas, LayerPlan* plan) {
  std::fill(replicas.begin(), replicas.end(), 0);
  const std::vector<int32_t>& experts = plan->placement.slot_to_expert;
  for (int32_t expert : experts) {
    if (expert != kUnusedSlot) ++replicas[static_cast<size_t>(expert)];
  }
  plan->shares.resize(experts.size());
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    plan->shares[slot] =
        experts[slot] == kUnusedSlot ? 0.0 : 1.0 / replicas[static_cast<size_t>(experts[slot])];
  }
}

// The common part of both splits: a copy of the old plan, the forced moves, and the report. The
// shape has no dead ranks.
class RepairerBase : public Repairer {
 public:
  RepairerBase(const PlanShape& shape, const RepairOptions& options)
      : shape_(shape),
        options_(options),
        rehomer_(shape),
        replicas_(static_cast<size_t>(shape.num_experts)),
        rank_loads_(static_cast<size_t>(shape.ep_size)) {}

  RepairReport repair(std::span<const double> load, const LayerPlan& from, LayerPlan* to) final {
    check_sizes(shape_, load, from.placement);
    // A copy, because `to` may be `&from`.
    from_ = from;
    if (from_.shares.empty() || options_.split == Split::kEqual) write_shares(&from_);
    RepairReport report;
    report.imbalance_before =
        imbalance_ratio(from_.placement, load, from_.shares, shape_.num_live_ranks());
    vacate(&from_.placement);
    kept_ = from_.placement;
    report.forced_moves = rehomer_.run(load, &from_.placement);
    // After a loss or a forced move the old shares no longer sum to 1 per expert.
    if (from_.placement != from.placement) write_shares(&from_);
    // Forced moves use up the limit first, and may exceed it.
    run(load, from_, std::max(0, options_.max_moves - report.forced_moves), report, to);
    // The search moves experts between ranks and may permute slots within one; aligned, replicas
    // that stay cost no copy.
    align_slots(kept_, to);
    report.moves = count_moves(kept_, to->placement);
    report.bytes = report.moves * options_.bytes_per_expert;
    return report;
  }

 protected:
  // Writes `to` and the report's imbalance_resplit and imbalance_after.
  virtual void run(std::span<const double> load, const LayerPlan& from, int max_moves,
                   RepairReport& report, LayerPlan* to) = 0;

  void write_shares(LayerPlan* plan) { write_equal_shares(replicas_, plan); }

  // As imbalance_ratio of rank_loads, without allocating. The mean includes ranks without an
  // expert: all of them are live here.
  double imbalance(std::span<const double> load, const LayerPlan& plan) {
    const auto count = static_cast<size_t>(shape_.slots_per_rank());
    for (size_t rank = 0, slot = 0; rank < rank_loads_.size(); ++rank) {
      rank_loads_[rank] = 0.0;
      for (size_t end = slot + count; slot < end; ++slot) {
        const int32_t expert = plan.placement.slot_to_expert[slot];
        if (expert == kUnusedSlot) continue;
        rank_loads_[rank] += load[static_cast<size_t>(expert)] * plan.shares[slot];
      }
    }
    return imbalance_ratio(rank_loads_);
  }

  PlanShape shape_;
  RepairOptions options_;

 private:
  // Empties the slots that rank_slots does not allow: their replicas are lost.
  void vacate(Placement* placement) const {
    if (shape_.rank_slots.empty()) return;
    for (int slot = 0; slot < shape_.num_slots; ++slot) {
      const int rank = placement->rank_of_slot(slot);
      const bool usable = slot % shape_.slots_per_rank() < shape_.usable_slots_of(rank);
      if (!usable) placement->slot_to_expert[static_cast<size_t>(slot)] = kUnusedSlot;
    }
  }

  Rehomer rehomer_;
  LayerPlan from_;  // after the forced moves
  Placement kept_;  // before them
  std::vector<int> replicas_;
  std::vector<double> rank_loads_;
};

class WeightedRepairer : public RepairerBase {
 public:
  WeightedRepairer(const PlanShape& shape, const RepairOptions& options)
      : RepairerBase(shape, options), repair_(shape) {}

 private:
  void run(std::span<const double> load, const LayerPlan& from, int max_moves, RepairReport& report,
           LayerPlan* to) override {
    *to = from;
    repair_.prepare(from.placement);
    resplitter_.reset(from.placement);
    double max_load = resplitter_.resplit(load, to->shares);
    const double mean = std::accumulate(load.begin(), load.end(), 0.0) / shape_.ep_size;
    const double level = mean * (1.0 + options_.tolerance);
    report.imbalance_resplit = imbalance(load, *to);
    if (max_load > level && max_moves > 0) {
      repair_.run(load, from.placement,
                  {.from_level = max_load, .level = level, .max_moves = max_moves}, to);
    }
    report.imbalance_after = imbalance(load, *to);
  }

  Resplitter resplitter_;
  WeightedRepair repair_;
};

class EqualRepairer : public RepairerBase {
 public:
  EqualRepairer(const PlanShape& shape, const RepairOptions& options)
      : RepairerBase(shape, options), repair_(shape) {}

 private:
  void run(std::span<const double> load, const LayerPlan& from, int max_moves, RepairReport& report,
           LayerPlan* to) override {
    report.imbalance_resplit = report.imbalance_after = imbalance(load, from);
    *to = from;
    if (report.imbalance_resplit <= options_.tolerance) return;
    repair_.run(load, from.placement, options_.tolerance, max_moves, &to->placement);
    write_shares(to);
    report.imbalance_after = imbalance(load, *to);
    if (report.imbalance_after <= report.imbalance_resplit) return;
    // EqualRepair computes in float32, so a plan that it takes for better may be worse.
    *to = from;
    report.imbalance_after = report.imbalance_resplit;
  }

  EqualRepair repair_;
};

// Repairs the part of a placement that is on the live ranks. The imbalance before includes the dead
// ranks' load, because the ratio is of the whole old placement.
class MaskedRepairer : public Repairer {
 public:
  MaskedRepairer(const PlanShape& shape, LiveRanks live, Split split,
                 std::unique_ptr<Repairer> inside)
      : shape_(shape),
        live_(std::move(live)),
        split_(split),
        inside_(std::move(inside)),
        replicas_(static_cast<size_t>(shape.num_experts)) {}

  RepairReport repair(std::span<const double> load, const LayerPlan& from, LayerPlan* to) override {
    check_sizes(shape_, load, from.placement);
    // A copy, because `to` may be `&from`.
    before_ = from;
    if (before_.shares.empty() || split_ == Split::kEqual) write_equal_shares(replicas_, &before_);
    live_.contract(from.placement, &live_plan_.placement);
    RepairReport report = inside_->repair(load, live_plan_, &repaired_);
    report.imbalance_before =
        imbalance_ratio(before_.placement, load, before_.shares, shape_.num_live_ranks());
    live_.expand(repaired_, to);
    return report;
  }

 private:
  PlanShape shape_;
  LiveRanks live_;
  Split split_;
  std::unique_ptr<Repairer> inside_;
  std::vector<int> replicas_;  // [E] scratch
  LayerPlan before_;
  LayerPlan live_plan_;  // without shares
  LayerPlan repaired_;
};

std::unique_ptr<Repairer> make_live_repairer(const PlanShape& shape, const RepairOptions& options) {
  if (options.split == Split::kEqual) return std::make_unique<EqualRepairer>(shape, options);
  return std::make_unique<WeightedRepairer>(shape, options);
}

Status check_options(const PlanShape& shape, const RepairOptions& options) {
  if (!(options.tolerance >= 0.0)) {
    return invalid_input(fmt::format("tolerance: expected 0 or more, found {}", options.tolerance));
  }
  if (options.max_moves < 0) {
    return invalid_input(fmt::format("max_moves: expected 0 or more, found {}", options.max_moves));
  }
  if (shape.num_nodes > 1 && shape.num_groups > 1) {
    return invalid_input(fmt::format(
        "num_groups: repair does not keep {} groups on {} nodes; plan anew instead, or give "
        "num_groups 1",
        shape.num_groups, shape.num_nodes));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Repairer>> make_repairer(const PlanShape& shape,
                                                const RepairOptions& options) {
  WIDEEP_TRY(check_plan_shape(shape));
  WIDEEP_TRY(check_options(shape, options));
  if (shape.rank_slots.empty()) return make_live_repairer(shape, options);
  LiveRanks live(shape);
  auto inside = make_live_repairer(live.shape(), options);
  return std::unique_ptr<Repairer>(
      std::make_unique<MaskedRepairer>(shape, std::move(live), options.split, std::move(inside)));
}

}  // namespace wideep::balance
