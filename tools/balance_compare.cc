// SPDX-License-Identifier: Apache-2.0
//
// wideep balance compare: all planners on the same statistics, in one table.
//
// Every planner plans with both splits, several times, of which the median time counts; the planner
// that chooses among methods once, because its time is that of many plans. A planner that cannot
// plan this shape is left out with its reason, so that the others are still compared.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "compare_output.h"
#include "expert_bytes.h"
#include "formats/files.h"
#include "output_file.h"
#include "planning.h"

namespace wideep::tools {
namespace {

using balance::Split;

constexpr int kRepetitions = 5;  // plans per planner and split; the median time is reported
// The row of what `balance plan` does by default with several windows (robust.h).
constexpr const char* kRobust = "robust";
constexpr std::array kSplits = {Split::kEqual, Split::kWeighted};

struct CompareOptions {
  PlanningOptions planning;
  ExpertBytesOptions bytes;
  std::string html;
  bool json = false;
};

Result<TimedPlan> plan_repeatedly(const std::string& planner, const PlanningInput& input,
                                  const balance::PlannerOptions& options,
                                  base::Progress* progress) {
  std::array<double, kRepetitions> seconds;
  TimedPlan plan;
  for (double& time : seconds) {
    WIDEEP_TRY_ASSIGN(plan, plan_layers(planner, input, options, progress));
    time = plan.seconds;
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
  plan.seconds = seconds[kRepetitions / 2];
  return plan;
}

Result<TimedPlan> plan_robustly(const PlanningInput& input, const balance::PlannerOptions& options,
                                base::Progress* progress) {
  RobustChoice choice;
  return plan_robust_layers(input, options, {}, progress, &choice);
}

Result<ComparedPlan> compare_one(const std::string& planner, Split split,
                                 balance::PlannerOptions options, const Comparison& comparison,
                                 base::Progress* progress) {
  options.split = split;
  ComparedPlan result{.planner = planner, .split = split, .plan = {}, .assessment = {}};
  const PlanningInput& input = comparison.input;
  WIDEEP_TRY_ASSIGN(result.plan, planner == kRobust
                                     ? plan_robustly(input, options, progress)
                                     : plan_repeatedly(planner, input, options, progress));
  const auto bounds =
      balance::lower_bounds(input.load, balance::effective_shape(planner, input.shape), split);
  result.assessment = balance::assess({.load = &input.load,
                                       .held_out = input.held_out ? &*input.held_out : nullptr,
                                       .before = &comparison.before,
                                       .bounds = bounds,
                                       .num_live_ranks = input.shape.num_live_ranks()},
                                      result.plan.model);
  WIDEEP_TRY(add_input_spread(input, result.plan.model, &result.assessment));
  return result;
}

// Plans with every planner and split. Returns the reasons of planners that cannot plan this shape;
// they are left out.
std::vector<std::string> compare_all(const CompareOptions& options, Comparison* comparison) {
  const PlanningInput& input = comparison->input;
  std::vector<std::string> names = balance::planner_names();
  if (!input.pairs) std::erase_if(names, balance::needs_pair_counts);
  size_t plans = names.size() * kSplits.size() * kRepetitions * input.load.layers.size();
  if (input.windows.num_windows() > 1) {
    names.insert(names.begin() + 1, kRobust);
    for (const Split split : kSplits) {
      plans += static_cast<size_t>(balance::num_layer_plans(input.windows, split, {}));
    }
  }
  base::Progress progress("planning", static_cast<int64_t>(plans), "layers");
  std::vector<std::string> refusals;
  for (const std::string& name : names) {
    for (const Split split : kSplits) {
      Result<ComparedPlan> plan =
          compare_one(name, split, options.planning.planner_options(), *comparison, &progress);
      if (plan.ok()) {
        comparison->plans.push_back(std::move(plan).value());
      } else if (split == kSplits[0]) {  // the reason is the same for both splits
        refusals.push_back(fmt::format("planner {}: {}", name, plan.status().message()));
      }
    }
  }
  return refusals;
}

void warn_of_doubles(const Comparison& comparison) {
  for (const ComparedPlan& each : comparison.plans) {
    const int doubled = each.plan.num_doubled_layers();
    if (doubled == 0 || each.split != kSplits[0]) continue;
    log::warn("planner {} puts two replicas of an expert on one rank in {} of {} layers",
              each.planner, doubled, comparison.input.load.layers.size());
  }
}

Status write_page(const std::string& path, const Comparison& comparison) {
  if (path.empty()) return {};
  WIDEEP_TRY(formats::write_file(path, compare_html(comparison)));
  log::info("wrote {}", path);
  return {};
}

// Planners that need pairs of experts are compared only if the statistics are a trace.
Status count_pairs_of_trace(const CompareOptions& options, PlanningInput* input) {
  if (input->trace) return count_input_pairs(input);
  if (!options.planning.cooccurrence_tolerance) return {};
  return invalid_input(
      "--cooccurrence-tolerance: has no effect without a per-token trace; leave it out");
}

Status run(const CompareOptions& options) {
  if (!options.html.empty()) WIDEEP_TRY(check_output_file(options.html, "--html"));
  Comparison comparison;
  comparison.file = options.planning.statistics.path;
  WIDEEP_TRY_ASSIGN(comparison.input, read_planning_input(options.planning));
  balance::PlanShape& shape = comparison.input.shape;
  WIDEEP_TRY_ASSIGN(shape.rank_slots, choose_rank_slots(options.planning.ranks, shape));
  WIDEEP_TRY(balance::check_plan_shape(shape));
  WIDEEP_TRY(count_pairs_of_trace(options, &comparison.input));
  const balance::ModelLoad& load = comparison.input.load;
  WIDEEP_TRY_ASSIGN(comparison.bytes_per_expert,
                    choose_expert_bytes(options.bytes, load.num_experts, load.layers));
  comparison.before =
      balance::default_model_placement(comparison.input.load, comparison.input.shape.ep_size);
  const std::vector<std::string> refusals = compare_all(options, &comparison);
  if (comparison.plans.empty()) return invalid_input(refusals.at(0));
  for (const std::string& refusal : refusals) log::warn("left out: {}", refusal);
  warn_of_doubles(comparison);
  WIDEEP_TRY(write_page(options.html, comparison));
  std::fputs((options.json ? compare_json(comparison) : compare_table(comparison)).c_str(), stdout);
  return {};
}

}  // namespace

void add_balance_compare_command(command_line::Command balance, Status* status) {
  auto options = std::make_shared<CompareOptions>();
  const command_line::Command command = balance.add_command(
      "compare",
      "Compare all planners on the same statistics: imbalance, lower bound, moves and time");
  add_planning_options(command, &options->planning);
  add_expert_bytes_options(command, &options->bytes, "which one move copies");
  command.add_option("--html", options->html, "HTML file to write, with pictures of the comparison")
      .path();
  command.add_flag("--json", options->json, "Print JSON");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
