// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek's planner (EPLB, rebalance_experts): experts of a group stay on one node, so that a
// token whose router chooses few groups travels to few nodes.
//
// Hierarchical policy, if num_groups is a multiple of num_nodes:
//   1. Pack the groups onto the nodes by their tokens, the same number of groups on each.
//   2. Within a node, give each spare slot to the expert whose replicas carry most.
//   3. Pack the replicas of the node onto its ranks by their tokens.
// Global policy otherwise: the same with one group and one node.
//
// Packing takes the heaviest item first and puts it into the lightest pack that has room. Ties go
// to the lower index everywhere: item, pack and expert. (The original leaves equal items to torch's
// sort, which keeps their order in some versions and on some processors only; everything else
// agrees.) Two replicas of an expert may share a rank. Two consequences of these rules are kept
// because the plans must be DeepSeek's:
//   - with one item per pack items keep their order, whatever their weight: with one slot per rank
//     the spare slots are simply the last ranks of the node;
//   - in a layer (or node) without load every spare slot is a replica of its first expert.
//
// Loads are rounded to float32, and everything is computed in float32, as in the original. Only the
// sum over a group can differ: exact in both for integral loads that sum to less than 2^24; beyond,
// the original's order of adding depends on the machine, and here the sum is rounded once.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "wideep/balancer.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::balance {

// load: [E] tokens per expert of one layer, finite and ≥ 0 (any unit).
// REQUIRES: load.size() == shape.num_experts.
// Errors (invalid input): as check_plan_shape.
Result<Placement> plan_layer_deepseek(std::span<const double> load, const PlanShape& shape);

}  // namespace wideep::balance
