// SPDX-License-Identifier: Apache-2.0
//
// Plans that are judged on tomorrow's load, not on yesterday's: several ways to plan from windows
// of recorded load, and the choice between them by what they would have been worth on later
// windows.
//
// The choice: windows are cut into up to four blocks in the order of time. Each way plans on the
// blocks before one and is judged on the windows of that one. The way with the least imbalance,
// mean over layers and windows (or of the worst window), plans on all windows in the end; the sum,
// if that gains less than 5 % over it.
//
// Thread safety: pure functions.
//
//   WIDEEP_TRY_ASSIGN(const WindowedLoad load, windowed_load(statistics, 0));
//   WIDEEP_TRY_ASSIGN(const RobustPlan plan, plan_robust(load, shape, options, {}));
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "balance/model_plan.h"
#include "balance/windowed_load.h"
#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::balance {

// What planner wideep is given.
struct RobustMethod {
  enum class Kind {
    kSum,      // the tokens of all windows
    kMean,     // every window counts the same
    kStd,      // the mean plus z standard deviations, for each expert
    kRecent,   // a window counts half of what it would count a quarter of all windows later
    kWindows,  // the mean, then swaps that balance every window (window_swaps.h)
  };
  Kind kind = Kind::kSum;
  double z = 0.0;  // of kStd; ≥ 0

  bool operator==(const RobustMethod&) const = default;
};

// "sum", "mean", "std:1.5", "recent", "windows".
std::string name_of(const RobustMethod& method);
// Errors (invalid input): another name, or a z that is no number from 0 to 100.
Result<RobustMethod> parse_robust_method(std::string_view name);

// Of a layer's windows [window][E], at least one: the load to plan for, [E].
std::vector<double> expected_load(std::span<const std::vector<double>> windows,
                                  const RobustMethod& method);

// Which imbalance counts, of those in the windows that a way is judged on.
enum class RobustObjective { kMean, kWorst };

struct RobustOptions {
  std::optional<RobustMethod> method;  // nullopt: the best of all, with std:1
  RobustObjective objective = RobustObjective::kMean;
  std::function<void()> layer_done = [] {};  // called num_layer_plans() times
};

// Imbalance ratios in windows, each a mean over layers.
struct WindowFigures {
  double mean = 0.0;
  double std = 0.0;
  double worst = 0.0;
};

struct MethodScore {
  RobustMethod method;
  WindowFigures later;  // on windows after those it planned on
};

struct RobustPlan {
  PlannedModel model;
  RobustMethod method;              // with which it was planned
  std::vector<MethodScore> scores;  // empty where there was no choice
};

// How many layers plan_robust plans in all.
int num_layer_plans(const WindowedLoad& load, const RobustOptions& options);

// Errors (invalid input): as make_planner; a method other than kSum on a single window, which says
// nothing about change. Without a method a single window is planned as kSum.
Result<RobustPlan> plan_robust(const WindowedLoad& load, const PlanShape& shape,
                               const PlannerOptions& options, const RobustOptions& robust);

// The plan in windows of any load of the same layers; resplit: with the best shares for each window
// instead of its own. num_live_ranks: as for imbalance_ratio.
WindowFigures figures_in_windows(const WindowedLoad& load, const PlannedModel& plan, bool resplit,
                                 int num_live_ranks = 0);

}  // namespace wideep::balance
