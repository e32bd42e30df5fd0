// SPDX-License-Identifier: Apache-2.0
//
// Planner cooccurrence: experts that tokens choose together live together, so that a token is sent
// to fewer ranks, while the load stays balanced.
//
// It starts from the plan of planner wideep and keeps its replica counts, then exchanges slots
// between ranks. What it maximises is the mean number of a token's pairs of experts that meet on a
// rank, Σ over ranks and pairs on it of pairs(a, b) / (replicas(a) · replicas(b)): every replica of
// an expert gets an equal part of its tokens, whatever else they chose, as in an engine that takes
// replicas in turn (ep/slot_choice.h). Fewer ranks than by this choice are visited by tokens that
// prefer ranks they go to anyway (token_spread.h measures both).
//
// The imbalance with an equal split stays within PlannerOptions::cooccurrence_tolerance, or that of
// the plan it started from where that is above; with a weighted split the same holds for the
// best shares. No two replicas of an expert share a rank. With groups on nodes, which planner
// wideep then keeps together, experts change ranks within their node only.
//
// The search: threshold accepting over random exchanges, in which overload costs more and more,
// then the best exchanges that keep the balance until none helps; and the latter from the start
// itself. The better end is the plan. Random numbers are a fixed sequence: equal input gives equal
// plans.
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
