// SPDX-License-Identifier: Apache-2.0
#include "wideep/balancer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "balance/moves.h"
#include "balance/repair/equal_repair.h"
#include "balance/repair/weighted_repair.h"
#include "base/check.h"
#include "base/try.h"

namespace wideep::balance {
namespace {

// What both splits share: checks, a copy of the old plan, and the report.
class RepairerBase : public Repairer {
 public:
  RepairerBase(const PlanShape& shape, const RepairOptions& options)
      : shape_(shape),
        options_(options),
        replicas_(static_cast<size_t>(shape.num_experts)),
        rank_loads_(static_cast<size_t>(shape.ep_size)) {}

  RepairReport repair(std::span<const double> load, const LayerPlan& from, LayerPlan* to) final {
    check(load, from.placement);
    from_ = from;
    if (from_.shares.empty() || options_.split == Split::kEqual) write_equal_shares(&from_);
    RepairReport report;
    report.imbalance_before = imbalance(load, from_);
    run(load, from_, report, to);
    align_slots(from_.placement, to);
    report.moves = count_moves(from_.placement, to->placement);
    report.bytes = report.moves * options_.bytes_per_expert;
    return report;
  }

 protected:
  // Writes `to` and the two imbalances that are missing.
  virtual void run(std::span<const double> load, const LayerPlan& from, RepairReport& report,
                   LayerPlan* to) = 0;

  void write_equal_shares(LayerPlan* plan) {
    std::fill(replicas_.begin(), replicas_.end(), 0);
    const std::vector<int32_t>& experts = plan->placement.slot_to_expert;
    for (int32_t expert : experts) ++replicas_[static_cast<size_t>(expert)];
    plan->shares.resize(experts.size());
    for (size_t slot = 0; slot < experts.size(); ++slot) {
      plan->shares[slot] = 1.0 / replicas_[static_cast<size_t>(experts[slot])];
    }
  }

  // As imbalance_ratio of rank_loads, without allocating.
  double imbalance(std::span<const double> load, const LayerPlan& plan) {
    const auto count = static_cast<size_t>(shape_.slots_per_rank());
    for (size_t rank = 0, slot = 0; rank < rank_loads_.size(); ++rank) {
      rank_loads_[rank] = 0.0;
      for (size_t end = slot + count; slot < end; ++slot) {
        const auto expert = static_cast<size_t>(plan.placement.slot_to_expert[slot]);
        rank_loads_[rank] += load[expert] * plan.shares[slot];
      }
    }
    return imbalance_ratio(rank_loads_);
  }

  PlanShape shape_;
  RepairOptions options_;

 private:
  void check(std::span<const double> load, const Placement& placement) const {
    WIDEEP_CHECK_EQ(load.size(), static_cast<size_t>(shape_.num_experts));
    WIDEEP_CHECK_EQ(placement.num_experts, shape_.num_experts);
    WIDEEP_CHECK_EQ(placement.ep_size, shape_.ep_size);
    WIDEEP_CHECK_EQ(placement.num_slots(), shape_.num_slots);
  }

  LayerPlan from_;
  std::vector<int> replicas_;
  std::vector<double> rank_loads_;
};

class WeightedRepairer : public RepairerBase {
 public:
  WeightedRepairer(const PlanShape& shape, const RepairOptions& options)
      : RepairerBase(shape, options),
        repair_(shape.num_experts, shape.ep_size, shape.slots_per_rank()) {}

 private:
  void run(std::span<const double> load, const LayerPlan& from, RepairReport& report,
           LayerPlan* to) override {
    *to = from;
    resplitter_.reset(from.placement);
    double max_load = resplitter_.resplit(load, to->shares);
    const double mean = std::accumulate(load.begin(), load.end(), 0.0) / shape_.ep_size;
    const double level = mean * (1.0 + options_.tolerance);
    report.imbalance_resplit = imbalance(load, *to);
    if (max_load > level && options_.max_moves > 0) {
      repair_.run(load, from.placement, max_load, level, options_.max_moves, to);
    }
    report.imbalance_after = imbalance(load, *to);
  }

  Resplitter resplitter_;
  WeightedRepair repair_;
};

class EqualRepairer : public RepairerBase {
 public:
  EqualRepairer(const PlanShape& shape, const RepairOptions& options)
      : RepairerBase(shape, options),
        repair_(shape.num_experts, shape.ep_size, shape.slots_per_rank()) {}

 private:
  void run(std::span<const double> load, const LayerPlan& from, RepairReport& report,
           LayerPlan* to) override {
    report.imbalance_resplit = report.imbalance_after = report.imbalance_before;
    *to = from;
    if (report.imbalance_before <= options_.tolerance) return;
    repair_.run(load, from.placement, options_.tolerance, options_.max_moves, &to->placement);
    write_equal_shares(to);
    report.imbalance_after = imbalance(load, *to);
    if (report.imbalance_after <= report.imbalance_before) return;
    // By the rounding of float32.
    *to = from;
    report.imbalance_after = report.imbalance_before;
  }

  EqualRepair repair_;
};

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
  if (options.split == Split::kEqual) {
    return std::unique_ptr<Repairer>(std::make_unique<EqualRepairer>(shape, options));
  }
  return std::unique_ptr<Repairer>(std::make_unique<WeightedRepairer>(shape, options));
}

}  // namespace wideep::balance
