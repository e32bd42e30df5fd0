// SPDX-License-Identifier: Apache-2.0
//
// What `wideep balance plan` and `wideep balance compare` share: their options and checks, and
// planning all layers, timed and with progress.
#pragma once

#include <optional>
#include <string>

#include "base/progress.h"
#include "command_line/command_line.h"
#include "plan/assessment.h"
#include "plan/model_plan.h"
#include "plan/robust.h"
#include "plan/windowed_load.h"
#include "rank_options.h"
#include "recordings/pair_counts.h"
#include "statistics_options.h"
#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::tools {

struct PlanningOptions {
  StatisticsOptions statistics;
  std::optional<int> num_slots;
  std::optional<int> nodes;
  std::optional<int> groups;
  RankOptions ranks;
  std::optional<double> tolerance;
  std::optional<double> cooccurrence_tolerance;
  std::string holdout;        // empty: nothing is held out
  std::optional<int> window;  // iterations

  // The split is left at its default: each command sets its own.
  balance::PlannerOptions planner_options() const;
};

// Adds the statistics options and --num-slots, --nodes, --groups, --dead-ranks, --rank-slots,
// --tolerance, --cooccurrence-tolerance, --holdout and --window. `options` must outlive the
// parsing.
void add_planning_options(command_line::Command command, PlanningOptions* options);

struct PlanningInput {
  balance::ModelLoad load;        // summed
  balance::WindowedLoad windows;  // the same by window
  int num_iterations = 0;
  std::optional<balance::WindowedLoad> held_out;
  int num_held_out_iterations = 0;
  balance::PlanShape shape;
  // The trace that the load was counted from, if any; and its pairs of experts, after
  // count_input_pairs.
  std::optional<recordings::TracePart> trace;
  std::optional<recordings::TracePart> held_out_trace;
  std::optional<recordings::PairCounts> pairs;
};

// The shape follows the options, except rank_slots, which choose_rank_slots sets; it is not checked
// here, planners check it. Errors (invalid input): the statistics cannot be read; a tolerance below
// 0; groups without nodes or nodes without groups, which would have no effect.
Result<PlanningInput> read_planning_input(const PlanningOptions& options);

// Counts the pairs of experts that tokens choose together, for planners that need them. Errors: the
// load does not come from a trace; those of recordings::count_pairs.
Status count_input_pairs(PlanningInput* input);

// Adds to how many ranks tokens are sent, if the input is a trace. Errors: those of
// recordings::add_spread.
Status add_input_spread(const PlanningInput& input, const balance::PlannedModel& plan,
                        balance::Assessment* assessment);

struct TimedPlan {
  balance::PlannedModel model;
  double seconds = 0;    // of planning all layers, nothing else
  int forced_moves = 0;  // of a repair, over all layers

  // Layers in which a rank holds two replicas of one expert.
  int num_doubled_layers() const;
};

// Plans all layers with one planner. REQUIRES: the pairs are counted if the planner needs them.
// Errors: those of balance::make_planner.
Result<TimedPlan> plan_layers(const std::string& planner, const PlanningInput& input,
                              const balance::PlannerOptions& options, base::Progress* progress);

// Plans all layers with planner wideep from windows of load (robust.h); writes the method it chose
// to *choice. Errors: those of balance::plan_robust.
struct RobustChoice {
  balance::RobustMethod method;
  std::vector<balance::MethodScore> scores;
};
Result<TimedPlan> plan_robust_layers(const PlanningInput& input,
                                     const balance::PlannerOptions& options,
                                     balance::RobustOptions robust, base::Progress* progress,
                                     RobustChoice* choice);

// Repairs all layers of `from`, keeping its settings. REQUIRES: `from` has all layers of the load.
// Errors: those of balance::make_repairer.
Result<TimedPlan> repair_layers(const balance::ModelPlacement& from, const balance::ModelLoad& load,
                                const balance::PlanShape& shape,
                                const balance::RepairOptions& options, base::Progress* progress);

std::string split_name(balance::Split split);  // "equal", "weighted"

// "1 iteration", "12 iterations"
std::string count_of(int count, const std::string& noun);

// "0.45 ms", "1.20 s"
std::string duration_text(double seconds);

}  // namespace wideep::tools
