// SPDX-License-Identifier: Apache-2.0
#include "simulate/what_if.h"

#include "base/try.h"
#include "simulate/expert_cost.h"
#include "wideep/balancer.h"

namespace wideep::simulate {
namespace {

using balance::Placement;
using balance::Split;

// The mean over layers of the imbalance that a planner leaves.
Result<double> planned_imbalance(const char* planner_name, Split split,
                                 const balance::ModelLoad& load, const balance::PlanShape& shape) {
  WIDEEP_TRY_ASSIGN(const auto planner,
                    balance::make_planner(planner_name, shape, {.split = split}));
  balance::LayerPlan plan;
  double sum = 0.0;
  for (const std::vector<double>& layer : load.load) {
    planner->plan(layer, &plan);
    sum += balance::imbalance_ratio(plan.placement, layer, plan.shares);
  }
  return sum / static_cast<double>(load.load.size());
}

Result<double> imbalance_in_order(const balance::ModelLoad& load, const balance::PlanShape& shape) {
  WIDEEP_TRY_ASSIGN(const Placement placement,
                    balance::default_placement(shape.num_experts, shape.ep_size, shape.num_slots));
  const balance::Shares shares = balance::equal_shares(placement);
  double sum = 0.0;
  for (const std::vector<double>& layer : load.load) {
    sum += balance::imbalance_ratio(placement, layer, shares);
  }
  return sum / static_cast<double>(load.load.size());
}

}  // namespace

double bytes_of_expert(const model::ModelConfig& config, kernels::WeightFormat format) {
  return ExpertShape{
      .hidden = config.hidden_size, .intermediate = config.moe_intermediate_size, .format = format}
      .bytes();
}

std::vector<MovableExperts> movable_experts(const Hardware& hardware,
                                            const model::ModelConfig& config,
                                            kernels::WeightFormat format,
                                            const std::vector<double>& iteration_seconds) {
  std::vector<MovableExperts> links = {
      {.link = "host memory", .bandwidth = hardware.host_link.bandwidth},
      {.link = "other ranks of the node", .bandwidth = hardware.node_link.bandwidth},
      {.link = "network", .bandwidth = hardware.network.bandwidth}};
  std::erase_if(links, [](const MovableExperts& link) { return link.bandwidth <= 0.0; });
  const double bytes = bytes_of_expert(config, format);
  for (MovableExperts& link : links) {
    for (const double seconds : iteration_seconds) {
      link.of_seconds.push_back(link.bandwidth * seconds / bytes);
    }
  }
  return links;
}

Result<std::vector<ImbalanceAt>> imbalance_by_ranks(const balance::ModelLoad& load,
                                                    const std::vector<int>& ranks, int redundant) {
  std::vector<ImbalanceAt> found;
  for (const int ep : ranks) {
    const int least = (load.num_experts + ep - 1) / ep;  // slots of a rank
    const balance::PlanShape plain{
        .num_experts = load.num_experts, .ep_size = ep, .num_slots = least * ep};
    balance::PlanShape more = plain;
    more.num_slots += redundant * ep;
    ImbalanceAt at{.ep = ep, .num_slots = more.num_slots};
    WIDEEP_TRY_ASSIGN(at.in_order, imbalance_in_order(load, plain));
    WIDEEP_TRY_ASSIGN(at.placed, planned_imbalance("wideep", Split::kWeighted, load, plain));
    WIDEEP_TRY_ASSIGN(at.eplb, planned_imbalance("deepseek", Split::kEqual, load, more));
    WIDEEP_TRY_ASSIGN(at.replicated, planned_imbalance("wideep", Split::kWeighted, load, more));
    found.push_back(at);
  }
  return found;
}

}  // namespace wideep::simulate
