// SPDX-License-Identifier: Apache-2.0
//
// Statistics are read once and kept as their sum, by windows, and as a held-out part with windows
// of the same length. Layers are planned one by one and only that is timed, so that planners are
// compared without the cost of maps; the time of the one that chooses among methods is that of all
// its tries.
#include "planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "base/try.h"
#include "recordings/statistics_load.h"
#include "recordings/trace_spread.h"

namespace wideep::tools {
namespace {

using balance::ModelLoad;
using balance::PlannerOptions;
using balance::PlanShape;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls plan_layer(index, &plan) for every layer. TimedPlan::seconds covers these calls only, so
// that planners are compared without the cost of maps and of the progress line.
TimedPlan time_layers(const ModelLoad& load, int num_slots, base::Progress* progress,
                      const std::function<void(size_t, balance::LayerPlan*)>& plan_layer) {
  TimedPlan plan;
  plan.model.placement.num_slots = num_slots;
  for (size_t i = 0; i < load.layers.size(); ++i) {
    balance::LayerPlan layer;
    const Clock::time_point start = Clock::now();
    plan_layer(i, &layer);
    plan.seconds += seconds_since(start);
    plan.model.placement.layers[load.layers[i]] = std::move(layer.placement);
    plan.model.shares[load.layers[i]] = std::move(layer.shares);
    progress->step();
  }
  return plan;
}

Status check_numbers(const PlanningOptions& options) {
  if (options.tolerance && !(*options.tolerance >= 0.0)) {
    return invalid_input(fmt::format(
        "--tolerance: expected an imbalance ratio of at least 0, found {}", *options.tolerance));
  }
  if (options.cooccurrence_tolerance && !(*options.cooccurrence_tolerance >= 0.0)) {
    return invalid_input(
        fmt::format("--cooccurrence-tolerance: expected an imbalance ratio of at least 0, found {}",
                    *options.cooccurrence_tolerance));
  }
  if (options.groups && !options.nodes) {
    return invalid_input("--groups: has no effect on one node; give --nodes too");
  }
  return {};
}

Result<balance::WindowedLoad> read_windows(const recordings::ExpertStatistics& statistics,
                                           const PlanningOptions& options) {
  if (options.window && *options.window < 1) {
    return invalid_input(
        fmt::format("--window: expected at least 1 iteration, found {}", *options.window));
  }
  Result<balance::WindowedLoad> windows =
      recordings::windowed_load(statistics, options.window.value_or(0));
  if (!windows.ok()) return windows.status().at(options.statistics.path + ": --window");
  return windows;
}

// Windows of the same length as those planned on, so that their deviations compare; one window if
// there are fewer iterations.
Result<balance::WindowedLoad> held_out_windows(const recordings::ExpertStatistics& statistics,
                                               const balance::WindowedLoad& planned_on) {
  return recordings::windowed_load(
      statistics, std::min(planned_on.iterations_per_window, statistics.num_iterations()));
}

// A repair only moves experts: the file's settings for online balancing must survive it.
void keep_settings(const balance::ModelPlacement& from, balance::ModelPlacement* to) {
  to->layer_updates_per_iter = from.layer_updates_per_iter;
  to->share_update = from.share_update;
  to->exact_load = from.exact_load;
  to->update_policy = from.update_policy;
  to->spare_slots = from.spare_slots;
}

}  // namespace

PlannerOptions PlanningOptions::planner_options() const {
  PlannerOptions result;
  if (tolerance) result.tolerance = *tolerance;
  if (cooccurrence_tolerance) result.cooccurrence_tolerance = *cooccurrence_tolerance;
  return result;
}

void add_planning_options(command_line::Command command, PlanningOptions* options) {
  add_statistics_options(command, &options->statistics);
  command.add_option(
      "--num-slots", options->num_slots,
      "Slots per layer over all ranks, a multiple of --ep-size (default: one per expert)");
  command.add_option(
      "--nodes", options->nodes,
      "Number of nodes, a divisor of --ep-size (default: 1). With a per-token trace, "
      "messages between nodes are counted, and planner cooccurrence saves those "
      "first");
  command.add_option(
      "--groups", options->groups,
      "Number of the router's expert groups, each of which is kept on one node (default: 1)");
  add_dead_ranks_option(command, &options->ranks);
  add_rank_slots_option(command, &options->ranks);
  command.add_option(
      "--tolerance", options->tolerance,
      fmt::format("For planner wideep: the imbalance ratio at which its search stops (default: {})",
                  PlannerOptions().tolerance));
  command.add_option("--cooccurrence-tolerance", options->cooccurrence_tolerance,
                     fmt::format("For planner cooccurrence: the imbalance ratio that it accepts in "
                                 "exchange for fewer ranks per token (default: {})",
                                 PlannerOptions().cooccurrence_tolerance));
  command.add_option("--holdout", options->holdout,
                     "Evaluate plans on load that they were not planned on: the last FRACTION of "
                     "the iterations, or a second FILE of statistics");
  command.add_option("--window", options->window,
                     fmt::format("Iterations per window of load (default: 1, or more so that there "
                                 "are at most {} windows)",
                                 recordings::kMaxWindows));
}

Result<PlanningInput> read_planning_input(const PlanningOptions& options) {
  WIDEEP_TRY(check_numbers(options));
  WIDEEP_TRY_ASSIGN(SplitStatistics split,
                    read_split_statistics(options.statistics, options.holdout));
  PlanningInput input;
  input.shape.num_experts = split.planned_on.num_experts;
  WIDEEP_TRY_ASSIGN(input.shape.ep_size, choose_ep_size(options.statistics, split.planned_on));
  input.shape.num_slots = options.num_slots.value_or(input.shape.num_experts);
  input.shape.num_nodes = options.nodes.value_or(1);
  input.shape.num_groups = options.groups.value_or(1);
  input.load = recordings::model_load(split.planned_on);
  input.num_iterations = split.planned_on.num_iterations();
  WIDEEP_TRY_ASSIGN(input.windows, read_windows(split.planned_on, options));
  if (split.held_out) {
    WIDEEP_TRY_ASSIGN(input.held_out, held_out_windows(*split.held_out, input.windows));
    input.num_held_out_iterations = split.held_out->num_iterations();
  }
  input.trace = std::move(split.planned_on_trace);
  if (input.shape.num_nodes > 1 && !options.groups && !input.trace) {
    return invalid_input(
        "--nodes: has no effect without expert groups to keep on a node (give --groups too), or "
        "without a per-token trace, of which the messages between nodes are counted");
  }
  input.held_out_trace = std::move(split.held_out_trace);
  return input;
}

Status count_input_pairs(PlanningInput* input) {
  if (!input->trace) {
    return invalid_input(
        "--planner cooccurrence: needs the pairs of experts that tokens choose together, which "
        "these statistics do not contain; give a per-token trace FILE.u8 or FILE.u16 as --stats");
  }
  WIDEEP_TRY_ASSIGN(input->pairs, recordings::count_pairs(*input->trace));
  return {};
}

Status add_input_spread(const PlanningInput& input, const balance::PlannedModel& plan,
                        balance::Assessment* assessment) {
  if (!input.trace) return {};
  return recordings::add_spread(*input.trace,
                                input.held_out_trace ? &*input.held_out_trace : nullptr, plan,
                                input.shape.num_nodes, assessment);
}

int TimedPlan::num_doubled_layers() const {
  const auto& layers = model.placement.layers;
  return static_cast<int>(std::count_if(layers.begin(), layers.end(), [](const auto& layer) {
    return balance::has_two_replicas_on_a_rank(layer.second);
  }));
}

Result<TimedPlan> plan_layers(const std::string& planner_name, const PlanningInput& input,
                              const PlannerOptions& options, base::Progress* progress) {
  WIDEEP_TRY_ASSIGN(const auto planner, balance::make_planner(planner_name, input.shape, options));
  const auto plan_layer = [&](size_t i, balance::LayerPlan* layer) {
    const auto pairs =
        input.pairs ? input.pairs->matrix(static_cast<int>(i)) : std::span<const int64_t>();
    planner->plan({input.load.load[i], pairs}, layer);
  };
  return time_layers(input.load, input.shape.num_slots, progress, plan_layer);
}

Result<TimedPlan> plan_robust_layers(const PlanningInput& input, const PlannerOptions& options,
                                     balance::RobustOptions robust, base::Progress* progress,
                                     RobustChoice* choice) {
  // Unlike time_layers, this includes the plans that are tried and not chosen: they are part of the
  // method's cost.
  robust.layer_done = [progress] { progress->step(); };
  const Clock::time_point start = Clock::now();
  WIDEEP_TRY_ASSIGN(balance::RobustPlan plan,
                    balance::plan_robust(input.windows, input.shape, options, robust));
  const double seconds = seconds_since(start);
  *choice = {.method = plan.method, .scores = std::move(plan.scores)};
  return TimedPlan{.model = std::move(plan.model), .seconds = seconds};
}

Result<TimedPlan> repair_layers(const balance::ModelPlacement& from, const ModelLoad& load,
                                const PlanShape& shape, const balance::RepairOptions& options,
                                base::Progress* progress) {
  WIDEEP_TRY_ASSIGN(const auto repairer, balance::make_repairer(shape, options));
  int forced_moves = 0;
  TimedPlan plan =
      time_layers(load, shape.num_slots, progress, [&](size_t i, balance::LayerPlan* layer) {
        layer->placement = from.layers.at(load.layers[i]);
        forced_moves += repairer->repair(load.load[i], *layer, layer).forced_moves;
      });
  plan.forced_moves = forced_moves;
  keep_settings(from, &plan.model.placement);
  return plan;
}

std::string split_name(balance::Split split) {
  return split == balance::Split::kEqual ? "equal" : "weighted";
}

std::string count_of(int count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string duration_text(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

}  // namespace wideep::tools
