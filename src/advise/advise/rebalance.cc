// SPDX-License-Identifier: Apache-2.0
//
// A window judges the placement before a move and the one after it, both with the shares that are
// best for it: the difference is what the copies have brought, and nothing else. Copies of a rank
// are summed over all layers before the busiest rank is taken, since its link is what they wait
// for.
#include "advise/rebalance.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/what_if.h"
#include "base/try.h"
#include "cost/expert_load.h"
#include "wideep/balancer.h"

namespace wideep::advise {
namespace {

using balance::LayerPlan;
using balance::Split;

Status check_input(const cost::Hardware& hardware, const model::ModelConfig& config,
                   const balance::WindowedLoad& windows, const RebalanceOptions& options) {
  if (windows.num_windows() < 2) {
    return invalid_input(fmt::format(
        "statistics: expected at least 2 windows of iterations, found {}: what one has planned the "
        "next judges",
        windows.num_windows()));
  }
  if (windows.num_experts != config.routing.num_experts) {
    return invalid_input(fmt::format("statistics: {} experts, but the model has {}",
                                     windows.num_experts, config.routing.num_experts));
  }
  if (!hardware.supports(options.format)) {
    return invalid_input(fmt::format("{} has no products of {}", hardware.name,
                                     kernels::weight_format_name(options.format)));
  }
  return {};
}

class Replay {
 public:
  Replay(const cost::Hardware& hardware, const model::ModelConfig& config,
         const RebalanceOptions& options, const balance::Placement& first)
      : hardware_(hardware),
        first_(first),
        options_(options),
        top_k_(config.routing.top_k),
        shape_{.hidden = config.expert_hidden_size(),
               .intermediate = config.moe_intermediate_size,
               .format = options.format,
               .has_gate = config.activation.has_gate()} {}

  // A layer's part of a rebalance: after the window `before`, judged by `window`.
  void add_layer(const std::vector<double>& before, const std::vector<double>& window,
                 balance::Repairer& repairer, LayerPlan* plan, Rebalance* step) {
    const balance::Placement kept = plan->placement;
    step->moves += repairer.repair(before, *plan, plan).moves;
    count_copies(kept, plan->placement);
    judge(kept, window, &step->imbalance_kept, &step->experts_kept);
    judge(plan->placement, window, &step->imbalance_moved, &step->experts_moved);
    double unused = 0.0;
    judge(first_, window, &unused, &step->experts_never);
  }

  void start_step() { copies_.assign(static_cast<size_t>(options_.ep), 0); }
  double busiest_bytes() const {
    return static_cast<double>(*std::ranges::max_element(copies_)) * shape_.bytes();
  }

 private:
  void count_copies(const balance::Placement& kept, const balance::Placement& moved) {
    const std::vector<int64_t> copies = copies_of_ranks(kept, moved);
    for (size_t rank = 0; rank < copies.size(); ++rank) copies_[rank] += copies[rank];
  }

  void judge(const balance::Placement& placement, const std::vector<double>& load,
             double* imbalance, double* seconds) const {
    const cost::PlacedLayer placed = cost::placed_as(placement, load, top_k_);
    const cost::ProductKernel& kernel = hardware_.experts_in(options_.format);
    *imbalance += cost::imbalance_of(placed);
    *seconds += cost::slowest_time(hardware_, kernel, shape_, placed, options_.tokens).seconds();
  }

  const cost::Hardware& hardware_;
  const balance::Placement& first_;
  const RebalanceOptions& options_;
  int top_k_;
  cost::ExpertShape shape_;
  std::vector<int64_t> copies_;  // [ranks] of this step
};

std::vector<MoveLink> links_of(const cost::Hardware& hardware) {
  std::vector<MoveLink> links = {{"host memory", hardware.host_bandwidth()},
                                 {"other ranks of the node", hardware.node_link.bandwidth},
                                 {"network", hardware.network.bandwidth}};
  std::erase_if(links, [](const MoveLink& link) { return link.bandwidth <= 0.0; });
  return links;
}

}  // namespace

Result<Rebalances> replay_rebalances(const cost::Hardware& hardware,
                                     const model::ModelConfig& config,
                                     const balance::WindowedLoad& windows,
                                     const RebalanceOptions& options) {
  WIDEEP_TRY(check_input(hardware, config, windows, options));
  const balance::PlanShape shape{
      .num_experts = windows.num_experts, .ep_size = options.ep, .num_slots = options.num_slots};
  WIDEEP_TRY_ASSIGN(const balance::Placement in_order,
                    balance::default_placement(shape.num_experts, shape.ep_size, shape.num_slots));
  WIDEEP_TRY_ASSIGN(
      const auto repairer,
      balance::make_repairer(shape, {.split = Split::kWeighted, .tolerance = options.tolerance}));
  std::vector<LayerPlan> plans(windows.load.size(), {.placement = in_order});
  Rebalances found{.links = links_of(hardware)};
  Replay replay(hardware, config, options, in_order);
  for (int window = 1; window < windows.num_windows(); ++window) {
    Rebalance step{.window = window};
    replay.start_step();
    for (size_t layer = 0; layer < plans.size(); ++layer) {
      const balance::Windows& load = windows.load[layer];
      replay.add_layer(load[static_cast<size_t>(window) - 1], load[static_cast<size_t>(window)],
                       *repairer, &plans[layer], &step);
    }
    step.busiest_bytes = replay.busiest_bytes();
    step.imbalance_kept /= static_cast<double>(plans.size());
    step.imbalance_moved /= static_cast<double>(plans.size());
    found.steps.push_back(step);
  }
  return found;
}

std::vector<int64_t> copies_of_ranks(const balance::Placement& kept,
                                     const balance::Placement& moved) {
  std::vector<int64_t> copies(static_cast<size_t>(kept.ep_size), 0);
  const size_t slots = kept.slot_to_expert.size() / copies.size();
  for (size_t slot = 0; slot < kept.slot_to_expert.size(); ++slot) {
    if (moved.slot_to_expert[slot] == kept.slot_to_expert[slot]) continue;
    if (moved.slot_to_expert[slot] != balance::kUnusedSlot) ++copies[slot / slots];
  }
  return copies;
}

double iterations_until_paid(const Rebalance& rebalance, const MoveLink& link) {
  if (rebalance.moves == 0) return 0.0;
  const double saved = rebalance.saved_of_iteration();
  return saved > 0.0 ? link.seconds(rebalance) / saved : -1.0;
}

}  // namespace wideep::advise
