// SPDX-License-Identifier: Apache-2.0
#include "window_report.h"

#include <fmt/format.h>

namespace wideep::tools {
namespace {

using balance::WindowFigures;
using nlohmann::ordered_json;

balance::PlannedModel with_equal_shares(const balance::ModelPlacement& placement) {
  balance::PlannedModel model{.placement = placement, .shares = {}};
  for (const auto& [layer, each] : placement.layers) {
    model.shares[layer] = balance::equal_shares(each);
  }
  return model;
}

WindowReport::Figures report_load(const balance::WindowedLoad& load,
                                  const balance::PlannedModel& before,
                                  const balance::PlannedModel& plan, int live) {
  return {.num_windows = load.num_windows(),
          .now = figures_in_windows(load, before, false, live),
          .planned = figures_in_windows(load, plan, false, live),
          .resplit = figures_in_windows(load, plan, true, live)};
}

std::string figures_text(const WindowFigures& figures) {
  return fmt::format("{:.6f} ± {:.6f}, worst {:.6f}", figures.mean, figures.std, figures.worst);
}

std::string lines_of(const WindowReport::Figures& figures, const std::string& what) {
  return fmt::format("in {} {}, mean ± deviation:\n  now      {}\n  planned  {}\n  re-split {}\n",
                     count_of(figures.num_windows, "window"), what, figures_text(figures.now),
                     figures_text(figures.planned), figures_text(figures.resplit));
}

std::string choice_line(const RobustChoice& choice) {
  std::string text =
      fmt::format("planned from windows of load: {}", balance::name_of(choice.method));
  if (choice.scores.empty()) return text + "\n";
  text += "; imbalance on windows left out with each method:\n ";
  for (const balance::MethodScore& score : choice.scores) {
    text += fmt::format(" {} {:.4f}", balance::name_of(score.method), score.left_out.mean);
  }
  return text + "\n";
}

ordered_json to_json(const WindowFigures& figures) {
  return {{"mean", figures.mean}, {"std", figures.std}, {"worst", figures.worst}};
}

ordered_json to_json(const WindowReport::Figures& figures) {
  return {{"num_windows", figures.num_windows},
          {"now", to_json(figures.now)},
          {"planned", to_json(figures.planned)},
          {"resplit", to_json(figures.resplit)}};
}

}  // namespace

WindowReport report_windows(const PlanningInput& input, const balance::ModelPlacement& before,
                            const balance::PlannedModel& plan) {
  const balance::PlannedModel now = with_equal_shares(before);
  const int live = input.shape.num_live_ranks();
  WindowReport report{.planned_on = report_load(input.windows, now, plan, live), .held_out = {}};
  if (input.held_out) report.held_out = report_load(*input.held_out, now, plan, live);
  return report;
}

std::string window_lines(const WindowReport& report, const std::optional<RobustChoice>& choice) {
  std::string text;
  if (choice) text += choice_line(*choice);
  if (report.planned_on.num_windows > 1) text += lines_of(report.planned_on, "planned on");
  if (report.held_out) text += lines_of(*report.held_out, "held out");
  return text;
}

ordered_json window_json(const WindowReport& report) {
  ordered_json json = {{"planned_on", to_json(report.planned_on)}};
  if (report.held_out) json["held_out"] = to_json(*report.held_out);
  return json;
}

ordered_json choice_json(const RobustChoice& choice) {
  ordered_json json = {{"method", balance::name_of(choice.method)}};
  if (choice.scores.empty()) return json;
  json["windows_left_out"] = ordered_json::object();
  for (const balance::MethodScore& score : choice.scores) {
    json["windows_left_out"][balance::name_of(score.method)] = to_json(score.left_out);
  }
  return json;
}

}  // namespace wideep::tools
