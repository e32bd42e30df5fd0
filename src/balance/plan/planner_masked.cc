// SPDX-License-Identifier: Apache-2.0
#include "plan/planner_masked.h"

#include <utility>

#include "base/try.h"
#include "plan/live_ranks.h"

namespace wideep::balance {
namespace {

class MaskedPlanner : public LayerPlanner {
 public:
  MaskedPlanner(LiveRanks live, std::unique_ptr<LayerPlanner> inside)
      : live_(std::move(live)), inside_(std::move(inside)) {}

  void plan(const LayerLoad& load, LayerPlan* plan) override {
    inside_->plan(load, &live_plan_);
    live_.expand(live_plan_, plan);
  }

 private:
  LiveRanks live_;
  std::unique_ptr<LayerPlanner> inside_;
  LayerPlan live_plan_;
};

}  // namespace

Result<std::unique_ptr<LayerPlanner>> make_masked_planner(const PlanShape& shape,
                                                          const MakePlanner& make_inside) {
  WIDEEP_TRY(check_plan_shape(shape));
  LiveRanks live(shape);
  Result<std::unique_ptr<LayerPlanner>> inside = make_inside(live.shape());
  if (!inside.ok()) return inside.status().at("the live ranks");
  return std::unique_ptr<LayerPlanner>(
      std::make_unique<MaskedPlanner>(std::move(live), std::move(inside).value()));
}

}  // namespace wideep::balance
