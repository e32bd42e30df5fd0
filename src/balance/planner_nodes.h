// SPDX-License-Identifier: Apache-2.0
//
// Planning with groups and nodes: an expert group (the router's) stays on one node, so that a token
// which is limited to few groups travels to few nodes.
#pragma once

#include <memory>

#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::balance {

// num_groups / num_nodes whole groups to each node, then planner wideep within each node.
// Errors (invalid input): groups that do not divide among the nodes; what a node's share of experts
// and slots cannot be.
Result<std::unique_ptr<LayerPlanner>> make_node_planner(const PlanShape& shape,
                                                        const PlannerOptions& options);

}  // namespace wideep::balance
