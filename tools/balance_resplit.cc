// SPDX-License-Identifier: Apache-2.0
//
// wideep balance resplit: computes the best shares for a placement that does not change.
//
// Replicas on dead ranks are masked first, so that their tokens are divided among the others.
// Shares of different layers have nothing to do with each other, so each is solved by itself.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/try.h"
#include "commands.h"
#include "output_file.h"
#include "plan_output.h"
#include "rank_options.h"
#include "recordings/balancer_yaml.h"
#include "recordings/shares_file.h"
#include "recordings/statistics_load.h"
#include "statistics_options.h"
#include "wideep/balancer.h"

namespace wideep::tools {
namespace {

using balance::ModelLoad;
using balance::Placement;
using nlohmann::ordered_json;

struct ResplitOptions {
  StatisticsOptions statistics;
  RankOptions ranks;
  std::string placement;
  std::string shares;
  bool json = false;
};

struct Ratios {
  double equal = 0;
  double weighted = 0;
};

struct ResplitResult {
  std::vector<Ratios> layers;
  Ratios mean;
  std::map<int, balance::Shares> shares;
};

double imbalance(const Placement& placement, const std::vector<double>& load,
                 const balance::Shares& shares) {
  return balance::imbalance_ratio(placement, load, shares);
}

ResplitResult resplit_model(const ModelLoad& load, const balance::ModelPlacement& model) {
  ResplitResult result;
  const auto count = static_cast<double>(load.layers.size());
  for (size_t i = 0; i < load.layers.size(); ++i) {
    const Placement& placement = model.layers.at(load.layers[i]);
    balance::Shares& shares = result.shares[load.layers[i]];
    shares = balance::resplit(placement, load.load[i]);
    const Ratios ratios{imbalance(placement, load.load[i], balance::equal_shares(placement)),
                        imbalance(placement, load.load[i], shares)};
    result.mean.equal += ratios.equal / count;
    result.mean.weighted += ratios.weighted / count;
    result.layers.push_back(ratios);
  }
  return result;
}

ordered_json ratios_json(const Ratios& ratios) {
  return {{"imbalance_equal", ratios.equal}, {"imbalance_weighted", ratios.weighted}};
}

std::string resplit_json(const ResplitOptions& options, const ModelLoad& load,
                         const balance::ModelPlacement& placement, const ResplitResult& result) {
  ordered_json root = {{"placement", options.placement},
                       {"ep_size", placement.layers.begin()->second.ep_size},
                       {"num_ranks_in_use", placement.layers.begin()->second.num_ranks_in_use()},
                       {"num_slots", placement.num_slots},
                       {"shares", options.shares},
                       {"layers", ordered_json::array()}};
  for (size_t i = 0; i < load.layers.size(); ++i) {
    ordered_json line = {{"layer", load.layers[i]}};
    line.update(ratios_json(result.layers[i]));
    root["layers"].push_back(line);
  }
  root["mean"] = ratios_json(result.mean);
  return json_text(root);
}

std::string resplit_table(const ResplitOptions& options, const ModelLoad& load,
                          const balance::ModelPlacement& placement, const ResplitResult& result) {
  std::string text = fmt::format(
      "Imbalance ratio of {} ranks (max / mean - 1) with equal and with the best shares, no expert "
      "moved:\n{:<8}{:>12}{:>12}\n",
      placement.layers.begin()->second.num_ranks_in_use(), "layer", "equal", "weighted");
  for (size_t i = 0; i < load.layers.size(); ++i) {
    text += fmt::format("{:<8}{:>12.6f}{:>12.6f}\n", load.layers[i], result.layers[i].equal,
                        result.layers[i].weighted);
  }
  return text + fmt::format("{:<8}{:>12.6f}{:>12.6f}\nwrote {}\n", "mean", result.mean.equal,
                            result.mean.weighted, options.shares);
}

// Removes the replicas on dead ranks. An expert without a replica on a live rank is an error:
// shares cannot help it, only new slots can.
Status mask_dead_ranks(const std::vector<int>& dead_ranks, balance::ModelPlacement* model) {
  for (auto& [layer, placement] : model->layers) {
    Result<Placement> masked = balance::mask_ranks(placement, dead_ranks);
    if (!masked.ok()) {
      return masked.status().at(
          fmt::format("--dead-ranks: layer {} (plan --from gives lost experts new slots)", layer));
    }
    placement = std::move(masked).value();
  }
  return {};
}

Status run(const ResplitOptions& options) {
  WIDEEP_TRY(check_output_file(options.shares, "--shares"));
  WIDEEP_TRY(check_different_files(options.placement, "--placement", options.shares, "--shares"));
  WIDEEP_TRY_ASSIGN(const recordings::ExpertStatistics statistics,
                    read_statistics(options.statistics));
  WIDEEP_TRY_ASSIGN(const int ep_size, choose_ep_size(options.statistics, statistics));
  WIDEEP_TRY_ASSIGN(
      balance::ModelPlacement placement,
      recordings::read_balancer_yaml(options.placement, {.moe_layers = statistics.layers,
                                                         .num_experts = statistics.num_experts,
                                                         .ep_size = ep_size,
                                                         .unused_slots = true}));
  WIDEEP_TRY_ASSIGN(const std::vector<int> dead_ranks, choose_dead_ranks(options.ranks, ep_size));
  WIDEEP_TRY(mask_dead_ranks(dead_ranks, &placement));
  const ModelLoad load = recordings::model_load(statistics);
  const ResplitResult result = resplit_model(load, placement);
  WIDEEP_TRY(recordings::write_shares(options.shares, result.shares));
  std::fputs((options.json ? resplit_json(options, load, placement, result)
                           : resplit_table(options, load, placement, result))
                 .c_str(),
             stdout);
  return {};
}

}  // namespace

void add_balance_resplit_command(command_line::Command balance, Status* status) {
  auto options = std::make_shared<ResplitOptions>();
  const command_line::Command command = balance.add_command(
      "resplit",
      "Compute the shares that best balance an existing placement for new load; no weights move");
  add_statistics_options(command, &options->statistics);
  add_dead_ranks_option(command, &options->ranks);
  command.add_option("--placement", options->placement, "The moe_load_balancer.yaml to keep")
      .path()
      .required();
  command
      .add_option("--shares", options->shares,
                  "JSON file to write: {layer: [share of its expert's tokens per slot]}")
      .path()
      .required();
  command.add_flag("--json", options->json, "Print JSON");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
