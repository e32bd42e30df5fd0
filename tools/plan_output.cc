// SPDX-License-Identifier: Apache-2.0
//
// Columns depend on what is known: held-out load, a trace, several nodes. The JSON has the same
// figures under the same conditions, so that a key that is absent means "not known" and not zero.
#include "plan_output.h"

#include "formats/json_text.h"

#include <fmt/format.h>

namespace wideep::tools {
namespace {

using balance::Figures;
using nlohmann::ordered_json;

std::string head_line(const Figures& mean, bool crosses) {
  return fmt::format(
      "{:<8}{:>12}{:>12}{:>12}{}{:>10}{}{}{}{}\n", "layer", "now", "planned", "bound",
      mean.imbalance_held_out ? fmt::format("{:>12}{:>12}", "held-out", "re-split") : "", "moves",
      mean.spread ? fmt::format("{:>8}{:>8}", "ranks", "cover") : "",
      mean.spread && crosses ? fmt::format("{:>8}", "nodes") : "",
      mean.spread_held_out ? fmt::format("{:>12}{:>12}", "ranks-held", "cover-held") : "",
      mean.spread_held_out && crosses ? fmt::format("{:>12}", "nodes-held") : "");
}

std::string spread_columns(const Figures& figures, bool crosses) {
  std::string text;
  const auto add = [&](const std::optional<balance::Spread>& spread, int width) {
    if (!spread) return;
    text += fmt::format("{:>{}.3f}{:>{}.3f}", spread->ranks_by_shares, width,
                        spread->ranks_by_cover, width);
    if (crosses) text += fmt::format("{:>{}.3f}", spread->crossings, width);
  };
  add(figures.spread, 8);
  add(figures.spread_held_out, 12);
  return text;
}

std::string line_of(const std::string& label, const Figures& figures, balance::Split split,
                    bool crosses) {
  std::string line = fmt::format("{:<8}{:>12.6f}{:>12.6f}{:>12.6f}", label, figures.imbalance_now,
                                 figures.imbalance(split), figures.lower_bound);
  if (figures.imbalance_held_out) {
    line += fmt::format("{:>12.6f}{:>12.6f}", *figures.imbalance_held_out,
                        *figures.imbalance_held_out_resplit);
  }
  return line + fmt::format("{:>10.6g}{}\n", figures.moves, spread_columns(figures, crosses));
}

std::string what_is_shown(const PlanningInput& input, const PlanResult& result) {
  std::string text = fmt::format(
      "Imbalance ratio (max / mean - 1) of {} over the load of {}\n"
      "now:      {} slots, {}\n"
      "planned:  {}, {} split\n",
      ranks_text(input.shape), count_of(input.num_iterations, "iteration"), result.num_slots_before,
      result.from.empty() ? "experts in order" : result.from, slots_text(input.shape),
      split_name(result.split));
  if (input.trace) {
    text +=
        "ranks:    per token, replicas chosen by shares\n"
        "cover:    the same, but replicas on ranks that the token goes to anyway are preferred\n";
  }
  if (input.trace && input.shape.num_nodes > 1) {
    text += fmt::format("nodes:    other nodes that a token's row crosses to, of {} nodes\n",
                        input.shape.num_nodes);
  }
  if (!input.held_out) return text;
  return text + fmt::format(
                    "held-out: the plan on the {} held out, mean of their windows\n"
                    "re-split: the same with shares computed from that load\n",
                    count_of(input.num_held_out_iterations, "iteration"));
}

std::string summary_line(const PlanResult& result) {
  const Figures& mean = result.assessment.mean;
  const double imbalance = mean.imbalance(result.split);
  const auto layers = static_cast<double>(result.assessment.layers.size());
  const int lost = result.plan.forced_moves;
  const std::string forced =
      lost == 0 ? "" : fmt::format(", {} of them for experts without any replica", lost);
  return fmt::format(
      "planner {}: mean imbalance {:.6f}, lower bound {:.6f}, gap {:.6f}; {:.0f} moves{}; planned "
      "in "
      "{}\n",
      result.planner, imbalance, mean.lower_bound, imbalance - mean.lower_bound,
      mean.moves * layers, forced, duration_text(result.plan.seconds));
}

void add_spread_json(const balance::Spread& spread, const std::string& suffix, ordered_json* json) {
  (*json)["crossings_per_token" + suffix] = spread.crossings;
  (*json)["ranks_per_token" + suffix] = spread.ranks_by_shares;
  (*json)["ranks_per_token_cover" + suffix] = spread.ranks_by_cover;
  (*json)["within_rank_ratio" + suffix] = spread.within_rank_ratio;
  (*json)["imbalance_cover" + suffix] = spread.imbalance_by_cover;
}

}  // namespace

std::string plan_table(const PlanningInput& input, const PlanResult& result) {
  const bool crosses = input.shape.num_nodes > 1;
  std::string text = what_is_shown(input, result) + head_line(result.assessment.mean, crosses);
  for (size_t i = 0; i < input.load.layers.size(); ++i) {
    text += line_of(fmt::format("{}", input.load.layers[i]), result.assessment.layers[i],
                    result.split, crosses);
  }
  text += line_of("mean", result.assessment.mean, result.split, crosses) + summary_line(result);
  text += window_lines(result.windows, result.choice);
  text += fmt::format(
      "wrote {}{}\n", result.output,
      input.shape.all_slots_usable()
          ? ""
          : "; its unused slots are -1, which TensorRT-LLM and wideep generate do not accept");
  return result.shares.empty() ? text : text + fmt::format("wrote {}\n", result.shares);
}

ordered_json to_json(const Figures& figures) {
  ordered_json json = {{"imbalance_now", figures.imbalance_now},
                       {"imbalance_equal", figures.imbalance_equal},
                       {"imbalance_weighted", figures.imbalance_weighted}};
  if (figures.imbalance_held_out) {
    json["imbalance_now_held_out"] = *figures.imbalance_now_held_out;
    json["imbalance_held_out"] = *figures.imbalance_held_out;
    json["imbalance_held_out_resplit"] = *figures.imbalance_held_out_resplit;
  }
  if (figures.spread) add_spread_json(*figures.spread, "", &json);
  if (figures.spread_held_out) add_spread_json(*figures.spread_held_out, "_held_out", &json);
  json["lower_bound"] = figures.lower_bound;
  json["moves"] = figures.moves;
  return json;
}

std::string json_text(const ordered_json& root) { return formats::json_text(root, 2) + "\n"; }

std::string plan_json(const PlanningInput& input, const PlanResult& result) {
  ordered_json root = {
      {"planner", result.planner},
      {"split", split_name(result.split)},
      {"ep_size", input.shape.ep_size},
      {"num_slots_now", result.num_slots_before},
      {"num_slots", input.shape.num_slots},
      {"layer_updates_per_iter", result.plan.model.placement.layer_updates_per_iter},
      {"plan_seconds", result.plan.seconds},
      {"output", result.output}};
  if (!input.shape.rank_slots.empty()) root["rank_slots"] = input.shape.rank_slots;
  if (!result.from.empty()) {
    root["from"] = result.from;
    root["forced_moves"] = result.plan.forced_moves;
  }
  if (!result.shares.empty()) root["shares"] = result.shares;
  if (result.choice) root["robust"] = choice_json(*result.choice);
  root["windows"] = window_json(result.windows);
  root["layers"] = ordered_json::array();
  for (size_t i = 0; i < input.load.layers.size(); ++i) {
    ordered_json line = {{"layer", input.load.layers[i]}};
    line.update(to_json(result.assessment.layers[i]));
    line["moves"] = static_cast<int>(result.assessment.layers[i].moves);
    root["layers"].push_back(line);
  }
  root["mean"] = to_json(result.assessment.mean);
  return json_text(root);
}

}  // namespace wideep::tools
