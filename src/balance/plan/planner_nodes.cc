// SPDX-License-Identifier: Apache-2.0
//
// Groups are placed on nodes with the same board and search as experts on ranks. Every node has
// the same shape, so one planner inside plans them one after the other and keeps its work space.
// Groups are placed twice, greedily and after swaps, and the whole plan decides: evener nodes may
// have hotter ranks.
#include "plan/planner_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/search/search.h"

namespace wideep::balance {
namespace {

class NodePlanner : public LayerPlanner {
 public:
  NodePlanner(const PlanShape& shape, std::unique_ptr<LayerPlanner> inside)
      : shape_(shape),
        inside_(std::move(inside)),
        search_(search::best_search()),
        groups_(shape.num_groups, shape.num_nodes, shape.num_groups / shape.num_nodes),
        group_load_(static_cast<size_t>(shape.num_groups)),
        node_load_(static_cast<size_t>(shape.num_experts / shape.num_nodes)) {}

  // Evenly loaded nodes alone are not the goal: the hottest rank counts, and it depends on which
  // experts share a node. So two distributions of the groups are planned, and the better one is
  // kept.
  void plan(const LayerLoad& load, LayerPlan* plan) override {
    sum_groups(load.tokens);
    search::fill_lightest_first(groups_);
    plan_nodes(load.tokens, plan);
    search_.improve(groups_, {.tolerance = 1e-4f, .max_rounds = 100});
    plan_nodes(load.tokens, &other_);
    if (max_rank_load(other_, load.tokens) < max_rank_load(*plan, load.tokens)) {
      std::swap(*plan, other_);
    }
  }

 private:
  int group_size() const { return shape_.num_experts / shape_.num_groups; }

  // A Board places experts on ranks; here its experts are groups and its ranks are nodes.
  void sum_groups(std::span<const double> load) {
    const auto size = static_cast<size_t>(group_size());
    for (size_t group = 0; group < group_load_.size(); ++group) {
      group_load_[group] = 0;
      for (double tokens : load.subspan(group * size, size)) group_load_[group] += tokens;
    }
    groups_.set_load(group_load_);
    groups_.clear_slots();
  }

  void plan_nodes(std::span<const double> load, LayerPlan* plan) {
    plan->placement.num_experts = shape_.num_experts;
    plan->placement.ep_size = shape_.ep_size;
    plan->placement.slot_to_expert.clear();
    plan->shares.clear();
    for (int node = 0; node < shape_.num_nodes; ++node) plan_node(load, node, plan);
  }

  static double max_rank_load(const LayerPlan& plan, std::span<const double> load) {
    const std::vector<double> loads = rank_loads(plan.placement, load, plan.shares);
    return *std::max_element(loads.begin(), loads.end());
  }

  void plan_node(std::span<const double> load, int node, LayerPlan* plan) {
    for (size_t i = 0; i < node_load_.size(); ++i) {
      node_load_[i] = load[static_cast<size_t>(global_expert(node, static_cast<int>(i)))];
    }
    inside_->plan(node_load_, &node_plan_);
    for (int32_t expert : node_plan_.placement.slot_to_expert) {
      plan->placement.slot_to_expert.push_back(global_expert(node, expert));
    }
    plan->shares.insert(plan->shares.end(), node_plan_.shares.begin(), node_plan_.shares.end());
  }

  // A node numbers the experts of its groups one after the other.
  int global_expert(int node, int expert) const {
    const int group = groups_.experts_of(node)[expert / group_size()];
    return group * group_size() + expert % group_size();
  }

  PlanShape shape_;
  std::unique_ptr<LayerPlanner> inside_;
  const search::Search& search_;
  search::Board groups_;
  std::vector<double> group_load_;
  std::vector<double> node_load_;
  LayerPlan node_plan_;
  LayerPlan other_;
};

}  // namespace

Result<PlanShape> shape_of_node(const PlanShape& shape) {
  if (shape.num_groups % shape.num_nodes != 0) {
    return invalid_input(fmt::format("groups: expected a multiple of the {} nodes, found {}",
                                     shape.num_nodes, shape.num_groups));
  }
  return PlanShape{.num_experts = shape.num_experts / shape.num_nodes,
                   .ep_size = shape.ep_size / shape.num_nodes,
                   .num_slots = shape.num_slots / shape.num_nodes};
}

std::unique_ptr<LayerPlanner> make_node_planner(const PlanShape& shape,
                                                std::unique_ptr<LayerPlanner> inside) {
  return std::make_unique<NodePlanner>(shape, std::move(inside));
}

}  // namespace wideep::balance
