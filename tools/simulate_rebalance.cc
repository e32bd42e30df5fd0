// SPDX-License-Identifier: Apache-2.0
//
// wideep simulate rebalance: was moving experts worth its bytes?
//
// Window after window: experts are moved by what one has shown, and the next one judges, with and
// without the moves. For each kind of link columns say how long the bytes take, and after how many
// iterations that time is saved again, so that the answer holds for machines other than the one at
// hand.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "advise/rebalance.h"
#include "base/try.h"
#include "commands.h"
#include "model/model_division.h"
#include "precision_option.h"
#include "recordings/statistics_load.h"
#include "simulate_inputs.h"
#include "what_if_output.h"

namespace wideep::tools {
namespace {

struct RebalanceCommand {
  std::string model, hardware, holdout;
  StatisticsOptions statistics;
  std::optional<int> num_slots, iterations;
  int window = 0;
  int tokens_of_rank = 64;
  double tolerance = 0.01;
  PrecisionOption precision;
  WhatIfOutput output;
};

// The statistics' windows; with --holdout those of the second follow.
Result<balance::WindowedLoad> read_windows(const RebalanceCommand& command,
                                           const SplitStatistics& split) {
  WIDEEP_TRY_ASSIGN(balance::WindowedLoad windows,
                    recordings::windowed_load(split.planned_on, command.window));
  if (!split.held_out) return windows;
  WIDEEP_TRY_ASSIGN(const balance::WindowedLoad later,
                    recordings::windowed_load(*split.held_out, command.window));
  for (size_t i = 0; i < windows.load.size(); ++i) {
    windows.load[i].insert(windows.load[i].end(), later.load[i].begin(), later.load[i].end());
  }
  return windows;
}

WhatIf answer_of(const advise::Rebalances& found, int iterations) {
  WhatIf answer{
      .command = "wideep simulate rebalance",
      .title = "Was a rebalance worth its bytes",
      .columns = {{.key = "window", .title = "window"},
                  {.key = "moves", .title = "experts moved"},
                  {.key = "busiest_mb", .title = "MB", .decimals = 0},
                  {.key = "imbalance_kept", .title = "imbalance kept", .decimals = 3},
                  {.key = "imbalance_moved", .title = "moved", .decimals = 3},
                  {.key = "saved_us", .title = "µs saved", .decimals = 1},
                  {.key = "saved_ms", .title = "ms saved", .decimals = 1}},
      .charts = {{.x = "window", .y_title = "ms: saved, and of the links", .is_logarithmic = true},
                 {.x = "window",
                  .lines = {"imbalance_kept", "imbalance_moved"},
                  .y_title = "imbalance ratio"}}};
  answer.charts[0].lines.push_back("saved_ms");
  for (size_t link = 0; link < found.links.size(); ++link) {
    const advise::MoveLink& each = found.links[link];
    const std::string key = fmt::format("link{}_ms", link);
    answer.columns.push_back(
        {.key = key, .title = fmt::format("ms of {}", each.name), .decimals = 1});
    answer.columns.push_back({.key = fmt::format("link{}_paid", link), .title = "paid after"});
    answer.charts[0].lines.push_back(key);
  }
  for (const advise::Rebalance& step : found.steps) {
    const double saved = step.saved_of_iteration();
    answer.rows.push_back({step.window, step.moves, step.busiest_bytes / 1e6, step.imbalance_kept,
                           step.imbalance_moved, saved * 1e6, saved * iterations * 1e3});
    for (const advise::MoveLink& link : found.links) {
      const double paid = advise::iterations_until_paid(step, link);
      answer.rows.back().push_back(link.seconds(step) * 1e3);
      answer.rows.back().push_back(nullptr);
      if (paid >= 0.0) answer.rows.back().back() = paid;
    }
  }
  return answer;
}

// What all of it came to, against experts that stay in their order.
std::string verdict(const advise::Rebalances& found, int iterations) {
  double never = 0.0, moved = 0.0;
  int64_t moves = 0;
  for (const advise::Rebalance& step : found.steps) {
    never += step.experts_never * iterations;
    moved += step.experts_moved * iterations;
    moves += step.moves;
  }
  return fmt::format(
      "experts' time of all windows: {:.1f} ms in their order, {:.1f} ms with {} moves ({:+.1f} %)",
      never * 1e3, moved * 1e3, moves, 100.0 * (moved / never - 1.0));
}

std::string links_text(const advise::Rebalances& found) {
  std::string text = "links:";
  for (const advise::MoveLink& link : found.links) {
    text += fmt::format("{} {} {:.0f} GB/s", text.ends_with(':') ? "" : ",", link.name,
                        link.bandwidth / 1e9);
  }
  return text;
}

Status run(const RebalanceCommand& command) {
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config_of_experts(command.model));
  WIDEEP_TRY_ASSIGN(const cost::Hardware hardware, find_hardware(command.hardware));
  WIDEEP_TRY_ASSIGN(const SplitStatistics split,
                    read_split_statistics(command.statistics, command.holdout));
  WIDEEP_TRY_ASSIGN(const int ep, choose_ep_size(command.statistics, split.planned_on));
  WIDEEP_TRY_ASSIGN(balance::WindowedLoad windows, read_windows(command, split));
  keep_layers(model::moe_layers(config), &windows);
  const int each = (windows.num_experts + ep - 1) / ep;
  const advise::RebalanceOptions options{
      .ep = ep,
      .num_slots = command.num_slots.value_or((each + 1) * ep),
      .tokens = static_cast<double>(command.tokens_of_rank) * ep,
      .tolerance = command.tolerance,
      .format = command.precision.format().value_or(config.stored_format)};
  WIDEEP_TRY_ASSIGN(const advise::Rebalances found,
                    advise::replay_rebalances(hardware, config, windows, options));
  const int iterations = command.iterations.value_or(windows.iterations_per_window);
  WhatIf answer = answer_of(found, iterations);
  answer.facts = {
      fmt::format("{}: EP {}, {} slots, {} tokens of a rank in an iteration, {} layers",
                  hardware.name, ep, options.num_slots, command.tokens_of_rank,
                  windows.layers.size()),
      fmt::format("{} windows, each for {} iteration{}; what one has planned the next judges",
                  windows.num_windows(), iterations, iterations == 1 ? "" : "s"),
      "MB: to the rank that receives most, and ms of a link for them; saved: by the experts' "
      "slowest rank in an iteration, and in all of a window; paid after: iterations (-: never)",
      links_text(found), verdict(found, iterations)};
  return show(answer, command.output);
}

}  // namespace

void add_simulate_rebalance_command(command_line::Command simulate, Status* status) {
  auto options = std::make_shared<RebalanceCommand>();
  const command_line::Command command = simulate.add_command(
      "rebalance", "Whether moves of experts were worth their bytes, by recorded load");
  add_model_and_hardware(command, &options->model, &options->hardware);
  add_statistics_options(command, &options->statistics);
  command.add_option("--holdout", options->holdout,
                     "Windows that follow: a second FILE of statistics");
  command.add_option("--num-slots", options->num_slots,
                     "Slots of a layer (default: one of each rank for replicas)");
  command.add_option("--window", options->window,
                     "Iterations of a window (default: 1, or as many as make 32 windows)");
  command
      .add_option("--iterations", options->iterations,
                  "Iterations for which a placement serves (default: those of a window)")
      .positive();
  command.add_option("--tokens", options->tokens_of_rank, "Tokens of a rank in an iteration")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--tolerance", options->tolerance, "Imbalance ratio at which moving stops")
      .not_negative()
      .show_default();
  add_precision_option(command, &options->precision);
  add_what_if_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
