// SPDX-License-Identifier: Apache-2.0
//
// wideep simulate imbalance: how a load's imbalance grows with the number of ranks, and what
// replicas give back.
#include <fmt/format.h>

#include <memory>

#include "advise/what_if.h"
#include "base/try.h"
#include "commands.h"
#include "simulate_inputs.h"
#include "what_if_output.h"

namespace wideep::tools {
namespace {

struct ImbalanceOptions {
  StatisticsOptions statistics;
  std::string holdout;
  std::vector<int> ranks = {2, 4, 8, 16, 32, 64};
  int redundant = 1;
  WhatIfOutput output;
};

Status run(const ImbalanceOptions& options) {
  WIDEEP_TRY_ASSIGN(const Loads loads, read_loads(options.statistics, options.holdout));
  const balance::ModelLoad& load = loads.judged;
  for (const int ranks : options.ranks) {
    if (ranks <= load.num_experts) continue;
    return invalid_input(
        fmt::format("--ranks: expected 1 to {} (the experts), found {}", load.num_experts, ranks));
  }
  WIDEEP_TRY_ASSIGN(const auto found, advise::imbalance_by_ranks(loads.planned, loads.judged,
                                                                 options.ranks, options.redundant));
  WhatIf answer{
      .command = "wideep simulate imbalance",
      .title = "Imbalance by the number of ranks",
      .facts = {fmt::format("imbalance (max / mean − 1 of the ranks' rows), mean of {} layers of "
                            "{} experts",
                            load.layers.size(), load.num_experts),
                loads.text},
      .columns = {{.key = "ep", .title = "EP"},
                  {.key = "in_order", .title = "in order", .decimals = 3},
                  {.key = "placed", .title = "placed", .decimals = 3},
                  {.key = "num_slots", .title = "with slots"},
                  {.key = "eplb", .title = "EPLB", .decimals = 3},
                  {.key = "wideep", .title = "wideep", .decimals = 3}},
      .charts = {{.x = "ep",
                  .lines = {"in_order", "placed", "eplb", "wideep"},
                  .y_title = "imbalance ratio"}}};
  for (const auto& at : found) {
    answer.rows.push_back({at.ep, at.in_order, at.placed, at.num_slots, at.eplb, at.replicated});
  }
  return show(answer, options.output);
}

}  // namespace

void add_simulate_imbalance_command(command_line::Command simulate, Status* status) {
  auto options = std::make_shared<ImbalanceOptions>();
  const command_line::Command command = simulate.add_command(
      "imbalance", "Imbalance of a load by the number of ranks, and what replicas give back");
  add_statistics_options(command, &options->statistics);
  add_holdout_option(command, &options->holdout);
  command.add_option("--ranks", options->ranks, "Numbers of ranks: A,B,C")
      .separate_values_by(',')
      .range(1, 1 << 16)
      .show_default();
  command.add_option("--redundant", options->redundant, "Slots of each rank for replicas")
      .not_negative()
      .show_default();
  add_what_if_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
