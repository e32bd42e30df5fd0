// SPDX-License-Identifier: Apache-2.0
//
// Placements are made for one load and judged by another: judged by its own, a planner leaves next
// to no imbalance, and the answer would flatter it (docs/decisions/0044-costs-for-an-advisor.md).
// Each planner has the shares that it is used with: EPLB equal ones, ours those that are best for
// the judged load. by_ep_size() looks into the candidates of advise(), and weighs nothing anew.
#include "advise/what_if.h"

#include <map>
#include <utility>

#include "base/try.h"
#include "cost/expert_cost.h"
#include "wideep/balancer.h"

namespace wideep::advise {
namespace {

using balance::Placement;
using balance::Split;

// The mean over layers of the imbalance that a planner leaves.
Result<double> planned_imbalance(const char* planner_name, Split split,
                                 const balance::ModelLoad& planned,
                                 const balance::ModelLoad& judged,
                                 const balance::PlanShape& shape) {
  WIDEEP_TRY_ASSIGN(const auto planner,
                    balance::make_planner(planner_name, shape, {.split = split}));
  balance::LayerPlan plan;
  double sum = 0.0;
  for (size_t i = 0; i < judged.load.size(); ++i) {
    planner->plan(planned.load[i], &plan);
    const balance::Shares shares = split == Split::kWeighted
                                       ? balance::resplit(plan.placement, judged.load[i])
                                       : balance::equal_shares(plan.placement);
    sum += balance::imbalance_ratio(plan.placement, judged.load[i], shares);
  }
  return sum / static_cast<double>(judged.load.size());
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
  return cost::ExpertShape{.hidden = config.expert_hidden_size(),
                           .intermediate = config.moe_intermediate_size,
                           .format = format,
                           .has_gate = config.activation.has_gate()}
      .bytes();
}

std::vector<MovableExperts> movable_experts(const cost::Hardware& hardware,
                                            const model::ModelConfig& config,
                                            kernels::WeightFormat format,
                                            const std::vector<double>& iteration_seconds) {
  std::vector<MovableExperts> links = {
      {.link = "host memory", .bandwidth = hardware.host_bandwidth()},
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

Result<std::vector<ImbalanceAt>> imbalance_by_ranks(const balance::ModelLoad& planned,
                                                    const balance::ModelLoad& judged,
                                                    const std::vector<int>& ranks, int redundant) {
  std::vector<ImbalanceAt> found;
  for (const int ep : ranks) {
    const int min = (judged.num_experts + ep - 1) / ep;  // slots of a rank
    const balance::PlanShape plain{
        .num_experts = judged.num_experts, .ep_size = ep, .num_slots = min * ep};
    balance::PlanShape more = plain;
    more.num_slots += redundant * ep;
    ImbalanceAt at{.ep = ep, .num_slots = more.num_slots};
    const auto with = [&](const char* planner, Split split, const balance::PlanShape& shape) {
      return planned_imbalance(planner, split, planned, judged, shape);
    };
    WIDEEP_TRY_ASSIGN(at.in_order, imbalance_in_order(judged, plain));
    WIDEEP_TRY_ASSIGN(at.placed, with("wideep", Split::kWeighted, plain));
    WIDEEP_TRY_ASSIGN(at.eplb, with("deepseek", Split::kEqual, more));
    WIDEEP_TRY_ASSIGN(at.replicated, with("wideep", Split::kWeighted, more));
    found.push_back(at);
  }
  return found;
}

std::vector<EpSize> by_ep_size(const Advice& advice, const Workload& workload) {
  std::map<int, EpSize> sizes;
  for (const Candidate& each : advice.all) {
    const auto [place, is_new] =
        sizes.emplace(each.layout.ep, EpSize{.ep = each.layout.ep, .fastest = each});
    EpSize& size = place->second;
    if (!is_new && each.tpot < size.fastest.tpot) size.fastest = each;
    if (!meets(each, workload)) continue;
    if (!size.best || is_better(each, *size.best, workload)) size.best = each;
  }
  std::vector<EpSize> found;
  for (auto& [ep, size] : sizes) found.push_back(std::move(size));
  return found;
}

}  // namespace wideep::advise
