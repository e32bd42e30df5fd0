// SPDX-License-Identifier: Apache-2.0
//
// The table, the JSON and the page are made from the same figures; columns appear only where the
// input has what they show (held-out load, a trace, several nodes, bytes of an expert). The page
// gets, beside the JSON, the load of every rank, for its pictures.
#include "compare_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/byte_size.h"
#include "compare_page.h"
#include "formats/page.h"
#include "plan_output.h"

namespace wideep::tools {
namespace {

using balance::Figures;
using nlohmann::ordered_json;

std::string facts_line(const Comparison& comparison) {
  const PlanningInput& input = comparison.input;
  std::string text =
      fmt::format("{}, {} experts: {} on {}; load of {}",
                  count_of(static_cast<int>(input.load.layers.size()), "layer"),
                  input.load.num_experts, slots_text(input.shape), ranks_text(input.shape),
                  count_of(input.num_iterations, "iteration"));
  if (input.held_out) {
    text += fmt::format(", {} held out", count_of(input.num_held_out_iterations, "iteration"));
  }
  return text;
}

size_t name_width(const Comparison& comparison) {
  size_t longest = 8;
  for (const ComparedPlan& plan : comparison.plans) {
    longest = std::max(longest, plan.planner.size());
  }
  return longest + 2;
}

std::string head_line(const Comparison& comparison) {
  std::string spread;
  const bool crosses = comparison.input.shape.num_nodes > 1;
  if (comparison.input.trace) spread += fmt::format("{:>8}{:>8}", "ranks", "cover");
  if (comparison.input.trace && crosses) spread += fmt::format("{:>8}", "nodes");
  if (comparison.input.held_out_trace) spread += fmt::format("{:>12}", "ranks-held");
  if (comparison.input.held_out_trace && crosses) spread += fmt::format("{:>12}", "nodes-held");
  return fmt::format("{:<{}}{:<10}{:>10}{:>10}{}{:>10}{}{:>9}{}{:>12}\n", "planner",
                     name_width(comparison), "split", "now", "planned",
                     comparison.input.held_out
                         ? fmt::format("{:>10}{:>10}{:>10}", "now-held", "held-out", "re-split")
                         : "",
                     "bound", spread, "moves",
                     comparison.bytes_per_expert ? fmt::format("{:>12}", "bytes") : "", "time");
}

std::string spread_columns(const Figures& mean, bool crosses) {
  std::string text;
  if (mean.spread) {
    text +=
        fmt::format("{:>8.3f}{:>8.3f}", mean.spread->ranks_by_shares, mean.spread->ranks_by_cover);
    if (crosses) text += fmt::format("{:>8.3f}", mean.spread->crossings);
  }
  if (mean.spread_held_out) {
    text += fmt::format("{:>12.3f}", mean.spread_held_out->ranks_by_shares);
    if (crosses) text += fmt::format("{:>12.3f}", mean.spread_held_out->crossings);
  }
  return text;
}

std::string line_of(const Comparison& comparison, const ComparedPlan& plan) {
  const Figures& mean = plan.assessment.mean;
  std::string line =
      fmt::format("{:<{}}{:<10}{:>10.6f}{:>10.6f}", plan.planner, name_width(comparison),
                  split_name(plan.split), mean.imbalance_now, mean.imbalance(plan.split));
  if (mean.imbalance_held_out) {
    line += fmt::format("{:>10.6f}{:>10.6f}{:>10.6f}", *mean.imbalance_now_held_out,
                        *mean.imbalance_held_out, *mean.imbalance_held_out_resplit);
  }
  line +=
      fmt::format("{:>10.6f}{}{:>9.0f}", mean.lower_bound,
                  spread_columns(mean, comparison.input.shape.num_nodes > 1), plan.total_moves());
  if (comparison.bytes_per_expert) {
    const double bytes = *comparison.bytes_per_expert * plan.total_moves();
    line += fmt::format("{:>12}", base::byte_size(static_cast<uint64_t>(bytes)));
  }
  return line + fmt::format("{:>12}\n", duration_text(plan.plan.seconds));
}

ordered_json plan_json(const Comparison& comparison, const ComparedPlan& plan) {
  ordered_json json = {{"planner", plan.planner},
                       {"split", split_name(plan.split)},
                       {"plan_seconds", plan.plan.seconds},
                       {"mean", to_json(plan.assessment.mean)},
                       {"moves", plan.total_moves()}};
  if (comparison.bytes_per_expert) {
    json["bytes"] = *comparison.bytes_per_expert * plan.total_moves();
  }
  json["layers"] = ordered_json::array();
  for (size_t i = 0; i < plan.assessment.layers.size(); ++i) {
    ordered_json line = {{"layer", comparison.input.load.layers[i]}};
    line.update(to_json(plan.assessment.layers[i]));
    json["layers"].push_back(line);
  }
  return json;
}

ordered_json comparison_json(const Comparison& comparison) {
  const PlanningInput& input = comparison.input;
  ordered_json root = {{"ep_size", input.shape.ep_size},
                       {"num_experts", input.load.num_experts},
                       {"num_slots_now", comparison.before.num_slots},
                       {"num_slots", input.shape.num_slots},
                       {"num_iterations", input.num_iterations}};
  if (!input.shape.rank_slots.empty()) root["rank_slots"] = input.shape.rank_slots;
  if (input.held_out) root["num_held_out_iterations"] = input.num_held_out_iterations;
  if (comparison.bytes_per_expert) root["bytes_per_expert"] = *comparison.bytes_per_expert;
  root["plans"] = ordered_json::array();
  for (const ComparedPlan& plan : comparison.plans) {
    root["plans"].push_back(plan_json(comparison, plan));
  }
  return root;
}

// Tokens of each rank in thousandths of the mean: exact enough for a picture, and it keeps the page
// small.
std::vector<int64_t> permille(const balance::Placement& placement, const std::vector<double>& load,
                              const balance::Shares& shares) {
  const std::vector<double> ranks = balance::rank_loads(placement, load, shares);
  const double total = std::accumulate(ranks.begin(), ranks.end(), 0.0);
  const double scale = total > 0.0 ? 1000.0 * placement.num_ranks_in_use() / total : 0.0;
  std::vector<int64_t> result;
  for (const double tokens : ranks) result.push_back(std::llround(tokens * scale));
  return result;
}

// [layer][R] of a placement, with equal shares where `shares` is null.
ordered_json rank_loads_json(const balance::ModelLoad& load, const balance::ModelPlacement& model,
                             const std::map<int, balance::Shares>* shares) {
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < load.layers.size(); ++i) {
    const balance::Placement& placement = model.layers.at(load.layers[i]);
    rows.push_back(permille(
        placement, load.load[i],
        shares != nullptr ? shares->at(load.layers[i]) : balance::equal_shares(placement)));
  }
  return rows;
}

ordered_json page_data(const Comparison& comparison) {
  const balance::ModelLoad& load = comparison.input.load;
  ordered_json root = comparison_json(comparison);
  root["file"] = std::filesystem::path(comparison.file).filename().string();
  root["facts"] = facts_line(comparison);
  root["layers"] = load.layers;
  root["rank_loads_now"] = rank_loads_json(load, comparison.before, nullptr);
  for (size_t i = 0; i < comparison.plans.size(); ++i) {
    const balance::PlannedModel& model = comparison.plans[i].plan.model;
    root["plans"][i]["rank_loads"] = rank_loads_json(load, model.placement, &model.shares);
  }
  return root;
}

}  // namespace

double ComparedPlan::total_moves() const {
  double moves = 0;
  for (const Figures& layer : assessment.layers) moves += layer.moves;
  return moves;
}

std::string compare_table(const Comparison& comparison) {
  std::string text =
      facts_line(comparison) + ".\n" +
      "Imbalance ratio (max / mean - 1), mean over layers; 0 is perfect. now: " +
      fmt::format("experts in order on {} slots.\n", comparison.before.num_slots) +
      (comparison.input.trace ? "ranks: per token, replicas chosen by shares; cover: the same, but "
                                "replicas on ranks that the token goes to anyway are preferred.\n"
                              : "") +
      (comparison.input.trace && comparison.input.shape.num_nodes > 1
           ? fmt::format("nodes: other nodes that a token's row crosses to, of {} nodes.\n",
                         comparison.input.shape.num_nodes)
           : "") +
      head_line(comparison);
  for (const ComparedPlan& plan : comparison.plans) text += line_of(comparison, plan);
  return text;
}

std::string compare_json(const Comparison& comparison) {
  return json_text(comparison_json(comparison));
}

std::string compare_html(const Comparison& comparison) {
  return formats::fill_marks(compare_page(),
                             {{"SUMMARY", formats::escape_html(compare_table(comparison))},
                              {"DATA", formats::script_json(page_data(comparison))}});
}

}  // namespace wideep::tools
