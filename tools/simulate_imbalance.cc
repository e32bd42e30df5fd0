// SPDX-License-Identifier: Apache-2.0
//
// wideep simulate imbalance: how a load's imbalance grows with the number of ranks, and what
// replicas give back.
#include <fmt/format.h>

#include <memory>

#include "base/try.h"
#include "commands.h"
#include "recordings/statistics_load.h"
#include "simulate/what_if.h"
#include "statistics_options.h"

namespace wideep::tools {
namespace {

struct ImbalanceOptions {
  StatisticsOptions statistics;
  std::vector<int> ranks = {2, 4, 8, 16, 32, 64};
  int redundant = 1;
};

Status run(const ImbalanceOptions& options) {
  WIDEEP_TRY_ASSIGN(const recordings::ExpertStatistics statistics,
                    read_statistics(options.statistics));
  const balance::ModelLoad load = recordings::model_load(statistics);
  for (const int ranks : options.ranks) {
    if (ranks <= load.num_experts) continue;
    return invalid_input(
        fmt::format("--ranks: expected 1 to {} (the experts), found {}", load.num_experts, ranks));
  }
  WIDEEP_TRY_ASSIGN(const auto found,
                    simulate::imbalance_by_ranks(load, options.ranks, options.redundant));
  fmt::print("imbalance (max / mean − 1 of the ranks' rows), mean of {} layers of {} experts\n",
             load.layers.size(), load.num_experts);
  fmt::print("  EP   in order     placed   with slots      EPLB     wideep\n");
  for (const auto& at : found) {
    fmt::print("{:4} {:10.3f} {:10.3f} {:12} {:9.3f} {:10.3f}\n", at.ep, at.in_order, at.placed,
               at.num_slots, at.eplb, at.replicated);
  }
  return {};
}

}  // namespace

void add_simulate_imbalance_command(command_line::Command simulate, Status* status) {
  auto options = std::make_shared<ImbalanceOptions>();
  const command_line::Command command = simulate.add_command(
      "imbalance", "Imbalance of a load by the number of ranks, and what replicas give back");
  add_statistics_options(command, &options->statistics);
  command.add_option("--ranks", options->ranks, "Numbers of ranks: A,B,C")
      .separate_values_by(',')
      .range(1, 1 << 16)
      .show_default();
  command.add_option("--redundant", options->redundant, "Slots of each rank for replicas")
      .not_negative()
      .show_default();
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
