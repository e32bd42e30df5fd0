// SPDX-License-Identifier: Apache-2.0
// wideep balance plan: recorded load in, moe_load_balancer.yaml out.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "balance/balancer_yaml.h"
#include "balance/placement_trt.h"
#include "balance/report.h"
#include "base/try.h"
#include "commands.h"
#include "output_file.h"
#include "statistics_options.h"

namespace wideep::tools {
namespace {

using balance::ExpertStatistics;
using balance::LoadBy;
using balance::LoadReport;
using balance::ModelPlacement;
using nlohmann::ordered_json;

struct PlanOptions {
  StatisticsOptions statistics;
  std::optional<int> num_slots;
  std::string planner = "trt";
  int layer_updates_per_iter = 0;
  std::string output;
  bool json = false;
};

// Imbalance by rank on the same statistics without and with the plan.
struct Comparison {
  int slots_now = 0;
  LoadReport now;
  LoadReport planned;
};

// What runs without a plan: experts in order; where they do not divide among the ranks, TRT's
// default on the next multiple.
Result<ModelPlacement> placement_now(const ExpertStatistics& statistics, int ep_size) {
  const int slots = (statistics.num_experts + ep_size - 1) / ep_size * ep_size;
  WIDEEP_TRY_ASSIGN(const balance::Placement placement,
                    balance::default_placement(statistics.num_experts, ep_size, slots));
  ModelPlacement now;
  now.num_slots = slots;
  for (int layer : statistics.layers) now.layers[layer] = placement;
  return now;
}

Result<Comparison> compare(const ExpertStatistics& statistics, const ModelPlacement& plan,
                           int ep_size) {
  WIDEEP_TRY_ASSIGN(const ModelPlacement now, placement_now(statistics, ep_size));
  Comparison comparison;
  comparison.slots_now = now.num_slots;
  WIDEEP_TRY_ASSIGN(comparison.now, balance::report_load(statistics, now, LoadBy::kRank));
  WIDEEP_TRY_ASSIGN(comparison.planned, balance::report_load(statistics, plan, LoadBy::kRank));
  return comparison;
}

std::string table_text(const Comparison& comparison, const ModelPlacement& plan,
                       const std::string& output) {
  std::string text = fmt::format(
      "Imbalance ratio of {} ranks, now ({} slots, experts in order) and planned ({} slots):\n"
      "{:<8}{:>12}{:>12}\n",
      plan.layers.begin()->second.ep_size, comparison.slots_now, plan.num_slots, "layer", "now",
      "planned");
  for (size_t i = 0; i < comparison.now.rows.size(); ++i) {
    text += fmt::format("{:<8}{:>12.6f}{:>12.6f}\n", comparison.now.rows[i].layer,
                        comparison.now.rows[i].summary.imbalance_ratio,
                        comparison.planned.rows[i].summary.imbalance_ratio);
  }
  return text + fmt::format("{:<8}{:>12.6f}{:>12.6f}\nwrote {}\n", "average",
                            comparison.now.average.imbalance_ratio,
                            comparison.planned.average.imbalance_ratio, output);
}

ordered_json ratios(const balance::LoadSummary& now, const balance::LoadSummary& planned) {
  return {{"imbalance_ratio_now", now.imbalance_ratio},
          {"imbalance_ratio_planned", planned.imbalance_ratio}};
}

std::string json_text(const Comparison& comparison, const ModelPlacement& plan,
                      const PlanOptions& options) {
  ordered_json root = {{"planner", options.planner},
                       {"ep_size", plan.layers.begin()->second.ep_size},
                       {"num_slots_now", comparison.slots_now},
                       {"num_slots", plan.num_slots},
                       {"layer_updates_per_iter", plan.layer_updates_per_iter},
                       {"output", options.output},
                       {"layers", ordered_json::array()}};
  for (size_t i = 0; i < comparison.now.rows.size(); ++i) {
    ordered_json line = {{"layer", comparison.now.rows[i].layer}};
    line.update(ratios(comparison.now.rows[i].summary, comparison.planned.rows[i].summary));
    root["layers"].push_back(line);
  }
  root["average"] = ratios(comparison.now.average, comparison.planned.average);
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Status run(const PlanOptions& options) {
  WIDEEP_TRY(check_output_file(options.output));
  WIDEEP_TRY_ASSIGN(const ExpertStatistics statistics, read_statistics(options.statistics));
  WIDEEP_TRY_ASSIGN(const int ep_size, choose_ep_size(options.statistics, statistics));
  const int num_slots = options.num_slots.value_or(statistics.num_experts);
  WIDEEP_TRY_ASSIGN(ModelPlacement plan, balance::plan_model_trt(statistics, ep_size, num_slots));
  plan.layer_updates_per_iter = options.layer_updates_per_iter;
  WIDEEP_TRY_ASSIGN(const Comparison comparison, compare(statistics, plan, ep_size));
  WIDEEP_TRY(balance::write_balancer_yaml(options.output, plan));
  const std::string text = options.json ? json_text(comparison, plan, options)
                                        : table_text(comparison, plan, options.output);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace

void add_balance_plan_command(CLI::App& balance, Status* status) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = balance.add_subcommand(
      "plan", "Plan a placement for recorded load and write it as moe_load_balancer.yaml");
  add_statistics_options(*command, &options->statistics);
  command->add_option("--num-slots", options->num_slots,
                      "Slots over all ranks, a multiple of --ep-size (default: one per expert)");
  command->add_option("--planner", options->planner, "trt: TensorRT-LLM's greedy")
      ->check(CLI::IsMember({"trt"}));
  command
      ->add_option("--layer-updates-per-iter", options->layer_updates_per_iter,
                   "Written into the file; 0: the placement stays as planned")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--output,--output-path", options->output, "The file to write")->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
