// SPDX-License-Identifier: Apache-2.0
//
// Planner cooccurrence: puts experts that tokens choose together on the same rank, so that a token
// is sent to fewer ranks, while the load stays balanced.
//
// It starts from the plan of planner wideep, keeps its replica counts, and exchanges slots between
// ranks. It maximises the mean number of a token's pairs of experts that are on the same rank, Σ
// over ranks and pairs on it of pairs(a, b) / (replicas(a) · replicas(b)): every replica of an
// expert gets an equal part of its tokens, independently of their other experts, as in an engine
// that takes replicas in turn (ep/slot_choice.h). A token that prefers ranks it goes to anyway
// visits fewer ranks than that (token_spread.h measures both).
//
// With several nodes and without groups that are kept on them, messages between nodes come first:
// it maximises what the placement saves of them (node_affinity.h), by replicas on distinct nodes
// and by experts that meet on a node; ranks within a node count a tenth.
//
// The imbalance with an equal split stays within PlannerOptions::cooccurrence_tolerance, or that of
// the starting plan if it is larger; with a weighted split the same holds for the best shares. No
// two replicas of an expert share a rank. If groups are kept on nodes, experts change ranks within
// their node only.
//
// The search runs twice from the starting plan and keeps the better result: hill climbing alone
// (exchanges that help and keep the balance, until none does), and threshold accepting over random
// exchanges with a rising penalty for overload, followed by hill climbing. Random numbers are a
// fixed sequence: equal input gives equal plans.
#pragma once

#include <memory>

#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::balance {

// Its plan() REQUIRES LayerLoad::pair_counts.
// Errors (invalid input): as make_wideep_planner; a tolerance that is not ≥ 0.
Result<std::unique_ptr<LayerPlanner>> make_cooccurrence_planner(const PlanShape& shape,
                                                                const PlannerOptions& options);

}  // namespace wideep::balance
