// SPDX-License-Identifier: Apache-2.0
//
// Plans for changing load: several methods to plan from windows of recorded load, and a choice
// between them by the imbalance of their plans in windows that were left out.
//
// The choice: windows are divided into up to eight blocks in the order of time. Each block in turn
// is left out: each method plans on all others and is evaluated on its windows as they are served:
// with weighted split by new shares for each window; with equal split half by equal shares and half
// by new ones, for other engines do the one and wideep's own does the other. What counts is the
// mean over layers and windows, or the worst window; of many layers, 16 are enough. With equal
// split methods sum and plain are the same, and the choice is without plain. The best method makes
// the final plan from all windows. If it gains less than 2 % over method sum, or less than the
// tolerance, sum makes the plan.
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

#include "plan/model_plan.h"
#include "plan/windowed_load.h"
#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::balance {

// How the load for planner wideep is made from windows.
struct RobustMethod {
  enum class Kind {
    kSum,      // the tokens of all windows
    kPlain,    // the same, planned for equal split whatever the split, then shares for all windows
    kMean,     // every window counts the same
    kStd,      // the mean plus z standard deviations, for each expert
    kRecent,   // a window counts half of what it would count a quarter of all windows later
    kWindows,  // the mean, then swaps that balance every window (window_swaps.h)
    kCounts,   // the mean, then other replica counts and swaps for every window (window_counts.h)
  };
  Kind kind = Kind::kSum;
  double z = 0.0;  // of kStd; ≥ 0

  bool operator==(const RobustMethod&) const = default;
};

// "sum", "plain", "mean", "std:1.5", "recent", "windows", "counts".
std::string name_of(const RobustMethod& method);
// Errors (invalid input): another name, or a z that is no number from 0 to 100.
Result<RobustMethod> parse_robust_method(std::string_view name);

// The load to plan for, [E], from a layer's windows [window][E], at least one.
std::vector<double> expected_load(std::span<const std::vector<double>> windows,
                                  const RobustMethod& method);

// Which figure the choice minimises: the mean of the windows' imbalances or the worst.
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
  WindowFigures left_out;  // on windows that the plan was not made from
};

struct RobustPlan {
  PlannedModel model;
  RobustMethod method;              // of the plan
  std::vector<MethodScore> scores;  // empty where there was no choice
};

// The number of layer plans that plan_robust makes in all.
int num_layer_plans(const WindowedLoad& load, Split split, const RobustOptions& options);

// Errors (invalid input): as make_planner; a method other than kSum for a single window, which
// shows no change. Without a method a single window is planned as kSum.
Result<RobustPlan> plan_robust(const WindowedLoad& load, const PlanShape& shape,
                               const PlannerOptions& options, const RobustOptions& robust);

// The plan's imbalance in the windows of any load of the same layers. resplit: with the best shares
// for each window instead of the plan's. num_live_ranks: as for imbalance_ratio.
WindowFigures figures_in_windows(const WindowedLoad& load, const PlannedModel& plan, bool resplit,
                                 int num_live_ranks = 0);

}  // namespace wideep::balance
