// SPDX-License-Identifier: Apache-2.0
//
// wideep balance plan: plans a placement for recorded load, or repairs one, and writes it as
// moe_load_balancer.yaml, with shares if asked.
//
// run() checks first which options have an effect together and whether the files can be written.
// The placement before (that of --from, or experts in order) is needed in both cases: a plan is
// judged by what it changes. Planning from windows is the default where there are enough of them to
// leave one out and judge by it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "output_file.h"
#include "plan_output.h"
#include "planning.h"
#include "recordings/balancer_yaml.h"
#include "recordings/shares_file.h"
#include "window_report.h"

namespace wideep::tools {
namespace {

using balance::ModelPlacement;
using balance::RobustObjective;
using balance::Split;

struct PlanOptions {
  PlanningOptions planning;
  std::string planner = "wideep";
  Split split = Split::kEqual;
  std::string from;  // moe_load_balancer.yaml to repair; empty: a new plan
  std::optional<int> max_moves;
  std::string robust;  // off, auto or a method; empty: the default
  std::optional<RobustObjective> robust_objective;
  std::optional<int> layer_updates_per_iter;  // nothing: that of the file to repair, or 0
  std::string output;
  std::string shares;
  bool json = false;
};

Status no_effect(const char* option, const std::string& planner) {
  return invalid_input(
      fmt::format("{}: has no effect on planner {}; leave it out", option, planner));
}

Status check_effects(const PlanOptions& options) {
  if (options.planner != "cooccurrence" && options.planning.cooccurrence_tolerance) {
    return no_effect("--cooccurrence-tolerance", options.planner);
  }
  if (options.planner != "wideep" && options.planning.tolerance) {
    return no_effect("--tolerance", options.planner);
  }
  if (options.planner == "trt" && options.planning.nodes) return no_effect("--nodes", "trt");
  if (options.planner != "wideep" && !options.from.empty()) {
    return no_effect("--from", options.planner);
  }
  if (options.planner != "wideep" && !options.robust.empty()) {
    return no_effect("--robust", options.planner);
  }
  if (!options.from.empty() && !options.robust.empty()) {
    return invalid_input("--robust: has no effect on a repair (--from); leave it out");
  }
  if (options.robust_objective && options.robust != "auto") {
    return invalid_input(
        "--robust-objective: has no effect without a choice of methods; give --robust auto too");
  }
  if (options.max_moves && options.from.empty()) {
    return invalid_input("--max-moves: has no effect on a new plan; give --from too");
  }
  return {};
}

Status check_files(const PlanOptions& options) {
  WIDEEP_TRY(check_output_file(options.output));
  if (options.shares.empty()) return {};
  WIDEEP_TRY(check_output_file(options.shares, "--shares"));
  return check_different_files(options.output, "--output", options.shares, "--shares");
}

// The placement before: that of --from, whose number of slots a repair keeps, or experts in order.
// Moves and imbalance are counted against it.
Result<ModelPlacement> read_before(const PlanOptions& options, PlanningInput* input) {
  if (options.from.empty()) {
    WIDEEP_TRY(balance::check_plan_shape(input->shape));
    return balance::default_model_placement(input->load, input->shape.ep_size);
  }
  WIDEEP_TRY_ASSIGN(ModelPlacement from, recordings::read_balancer_yaml(
                                             options.from, {.moe_layers = input->load.layers,
                                                            .num_experts = input->load.num_experts,
                                                            .ep_size = input->shape.ep_size,
                                                            .unused_slots = true}));
  if (const auto slots = options.planning.num_slots; slots && *slots != from.num_slots) {
    return invalid_input(fmt::format("--num-slots: expected the {} slots of --from {}, found {}",
                                     from.num_slots, options.from, *slots));
  }
  input->shape.num_slots = from.num_slots;
  return from;
}

// How to plan from windows; nullopt: from their sum, without a choice.
Result<std::optional<balance::RobustOptions>> choose_robust(const PlanOptions& options,
                                                            const PlanningInput& input) {
  constexpr int kEnoughWindows =
      4;  // with fewer, too little is left to plan on where one is left out
  const bool can = options.planner == "wideep" && options.from.empty();
  const bool by_default =
      options.robust.empty() && can && input.windows.num_windows() >= kEnoughWindows;
  if (options.robust == "off" || (options.robust.empty() && !by_default)) {
    return std::optional<balance::RobustOptions>();
  }
  balance::RobustOptions robust;
  robust.objective = options.robust_objective.value_or(RobustObjective::kMean);
  if (by_default || options.robust == "auto") {
    if (input.windows.num_windows() < 2) {
      return invalid_input(
          fmt::format("--robust auto: expected at least 2 windows of load to compare methods on, "
                      "found 1 ({}); give statistics of more iterations or a shorter --window",
                      count_of(input.num_iterations, "iteration")));
    }
    return std::optional(robust);
  }
  Result<balance::RobustMethod> method = balance::parse_robust_method(options.robust);
  if (!method.ok()) return method.status().at("--robust");
  robust.method = *method;
  return std::optional(robust);
}

Result<TimedPlan> make_plan(const PlanOptions& options, const PlanningInput& input,
                            std::optional<RobustChoice>* choice) {
  balance::PlannerOptions planner_options = options.planning.planner_options();
  planner_options.split = options.split;
  WIDEEP_TRY_ASSIGN(const auto robust, choose_robust(options, input));
  const int plans = robust ? balance::num_layer_plans(input.windows, planner_options.split, *robust)
                           : static_cast<int>(input.load.layers.size());
  base::Progress progress("planning", plans, "layers");
  if (robust) {
    return plan_robust_layers(input, planner_options, *robust, &progress, &choice->emplace());
  }
  return plan_layers(options.planner, input, planner_options, &progress);
}

Result<TimedPlan> repair_plan(const PlanOptions& options, const PlanningInput& input,
                              const ModelPlacement& before) {
  balance::RepairOptions repair_options;
  repair_options.split = options.split;
  if (options.planning.tolerance) repair_options.tolerance = *options.planning.tolerance;
  if (options.max_moves) repair_options.max_moves = *options.max_moves;
  base::Progress progress("planning", static_cast<int64_t>(input.load.layers.size()), "layers");
  return repair_layers(before, input.load, input.shape, repair_options, &progress);
}

// The reader of moe_load_balancer.yaml refuses settings of updates in a file without updates.
void set_layer_updates(int count, ModelPlacement* placement) {
  placement->layer_updates_per_iter = count;
  if (count > 0) return;
  placement->update_policy = balance::UpdatePolicyKind::kWideep;
  placement->spare_slots = 0;
}

Result<TimedPlan> plan_or_repair(const PlanOptions& options, const PlanningInput& input,
                                 const ModelPlacement& before,
                                 std::optional<RobustChoice>* choice) {
  WIDEEP_TRY_ASSIGN(TimedPlan plan, options.from.empty() ? make_plan(options, input, choice)
                                                         : repair_plan(options, input, before));
  if (options.layer_updates_per_iter) {
    set_layer_updates(*options.layer_updates_per_iter, &plan.model.placement);
  }
  return plan;
}

// The imbalance and moves of the plan, next to those of the placement before.
balance::Assessment assess_plan(const PlanningInput& input, const PlanOptions& options,
                                const ModelPlacement& before, const TimedPlan& plan) {
  const std::vector<double> bounds = balance::lower_bounds(
      input.load, balance::effective_shape(options.planner, input.shape), options.split);
  return balance::assess({.load = &input.load,
                          .held_out = input.held_out ? &*input.held_out : nullptr,
                          .before = &before,
                          .bounds = bounds,
                          .num_live_ranks = input.shape.num_live_ranks()},
                         plan.model);
}

void warn_of_doubles(const PlanOptions& options, const TimedPlan& plan) {
  if (const int doubled = plan.num_doubled_layers(); doubled > 0) {
    log::warn("planner {} puts two replicas of an expert on one rank in {} of {} layers",
              options.planner, doubled, plan.model.placement.layers.size());
  }
}

Status write_files(const PlanOptions& options, const TimedPlan& plan) {
  WIDEEP_TRY(recordings::write_balancer_yaml(options.output, plan.model.placement));
  return options.shares.empty() ? Status()
                                : recordings::write_shares(options.shares, plan.model.shares);
}

Status run(const PlanOptions& options) {
  WIDEEP_TRY(check_effects(options));
  WIDEEP_TRY(check_files(options));
  WIDEEP_TRY_ASSIGN(PlanningInput input, read_planning_input(options.planning));
  if (balance::needs_pair_counts(options.planner)) WIDEEP_TRY(count_input_pairs(&input));
  WIDEEP_TRY_ASSIGN(const ModelPlacement before, read_before(options, &input));
  WIDEEP_TRY_ASSIGN(input.shape.rank_slots, choose_rank_slots(options.planning.ranks, input.shape));
  std::optional<RobustChoice> choice;
  WIDEEP_TRY_ASSIGN(TimedPlan plan, plan_or_repair(options, input, before, &choice));
  balance::Assessment assessment = assess_plan(input, options, before, plan);
  WIDEEP_TRY(add_input_spread(input, plan.model, &assessment));
  WIDEEP_TRY(write_files(options, plan));
  warn_of_doubles(options, plan);
  const PlanResult result{.planner = options.planner,
                          .split = options.split,
                          .from = options.from,
                          .num_slots_before = before.num_slots,
                          .windows = report_windows(input, before, plan.model),
                          .choice = std::move(choice),
                          .plan = std::move(plan),
                          .assessment = assessment,
                          .output = options.output,
                          .shares = options.shares};
  std::fputs((options.json ? plan_json(input, result) : plan_table(input, result)).c_str(), stdout);
  return {};
}

void add_options(command_line::Command command, PlanOptions* options) {
  add_planning_options(command, &options->planning);
  command
      .add_option(
          "--planner", options->planner,
          "wideep (default): closest to the lower bound, never two replicas of an expert on one "
          "rank; trt: TensorRT-LLM's greedy planner; deepseek: DeepSeek's EPLB; cooccurrence: puts "
          "experts that tokens choose together on the same rank (needs a trace)")
      .one_of(balance::planner_names());
  command.add_choice<Split>(
      "--split", options->split,
      "How the engine divides an expert's tokens among its replicas: equal (default), or weighted "
      "by the shares of --shares",
      {{"equal", Split::kEqual}, {"weighted", Split::kWeighted}});
  command.add_option(
      "--robust", options->robust,
      "How to plan from several windows of load: auto (default with 4 or more "
      "windows) chooses the method that was best on windows left out; or one method: "
      "sum, plain (the sum, planned for equal split), mean, std:Z (mean + Z standard deviations), "
      "recent, windows (balances "
      "every window), counts (with other replica counts too). off: plan on the sum, as for one "
      "window");
  command.add_choice<RobustObjective>(
      "--robust-objective", options->robust_objective,
      "For --robust auto: compare methods by the mean (default) or the worst imbalance on "
      "windows left out",
      {{"mean", RobustObjective::kMean}, {"worst", RobustObjective::kWorst}});
  command
      .add_option("--from", options->from,
                  "A moe_load_balancer.yaml to repair with few moves, instead of a new plan")
      .path();
  command
      .add_option("--max-moves", options->max_moves,
                  "For a repair: most experts to move per layer (default: as many as needed)")
      .not_negative();
  command
      .add_option("--layer-updates-per-iter", options->layer_updates_per_iter,
                  "Value to write into the file: layers that online balancing may update per "
                  "iteration; 0: the placement never changes (default: as in --from, else 0)")
      .not_negative();
  command.add_option("--output,--output-path", options->output, "moe_load_balancer.yaml to write")
      .path()
      .required();
  command
      .add_option("--shares", options->shares,
                  "JSON file to write: {layer: [share of its expert's tokens per slot]}")
      .path();
  command.add_flag("--json", options->json, "Print JSON");
}

}  // namespace

void add_balance_plan_command(command_line::Command balance, Status* status) {
  auto options = std::make_shared<PlanOptions>();
  const command_line::Command command = balance.add_command(
      "plan", "Plan a placement for recorded load and write it as moe_load_balancer.yaml");
  add_options(command, options.get());
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
