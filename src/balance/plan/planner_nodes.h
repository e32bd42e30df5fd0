// SPDX-License-Identifier: Apache-2.0
//
// Planning with groups and nodes: an expert group (of the router) stays on one node, so that a
// token that is limited to few groups travels to few nodes.
#pragma once

#include <memory>

#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::balance {

// The shape of one node alone: its part of the experts, ranks and slots. Errors (invalid input):
// groups that do not divide among the nodes.
Result<PlanShape> shape_of_node(const PlanShape& shape);

// Gives num_groups / num_nodes whole groups to each node, so that nodes carry about the same load;
// `inside` then plans one node after the other. REQUIRES: shape_of_node(shape).ok(), and `inside`
// was made for that shape.
std::unique_ptr<LayerPlanner> make_node_planner(const PlanShape& shape,
                                                std::unique_ptr<LayerPlanner> inside);

}  // namespace wideep::balance
