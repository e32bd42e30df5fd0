// SPDX-License-Identifier: Apache-2.0
//
// How balanced can any placement be? A proven bound, to tell a planner that is not good enough from
// a load that cannot be balanced better.
//
// Valid placements: every expert has a slot, every rank has K = S / R slots, no two replicas of an
// expert on one rank; with groups and nodes, G / N groups on each node. Let T = total / R, X = S −
// E the extra replicas, w_e the loads. All arguments take a level L and show that no placement
// keeps every rank at or below L; bisection finds the largest such L.
//
// Equal split. Expert e has r_e replicas of v_e = w_e / r_e, Σ r_e = S.
//   needs    A rank with a replica of e holds K − 1 others, which weigh ≥ s: r_e ≥ n_e =
//            ceil(w_e / (L − s)). If Σ (n_e − 1) > X, L is impossible. Of the extras x = X −
//            Σ (n_e − 1) remain, so for any price λ ≥ 0 per extra, k replicas of different experts
//            weigh ≥ (sum of the k smallest min_a [w_e / (n_e + a) + λ·a]) − λ·x =: light(k):
//            the loophole of making light replicas lighter is paid for. s = light(K − 1), repeated.
//   rules    A function φ with Σ φ(v) ≤ c over the replicas of any rank of load ≤ L gives
//            Σ_e r_e·φ(v_e) ≤ c·R. The left side is, for any λ, at least
//            Σ_e min_{r ≥ n_e} [r·φ(w_e / r) + λ·r] − λ·S. The rules:
//            crowding  φ = [v ≥ θ], c = m, where (m + 1)·θ + light(K − m − 1) > L: no m + 1 such
//                      replicas fit a rank.
//            pairing   φ = j·[v ≥ θ] − [v ≤ (L − θ) / (K − j)], c = 0, where two replicas ≥ θ do
//                      not fit a rank: with fewer than j replicas that small, the other K − j
//                      would weigh more than L − θ. For K = 2: each heavy replica needs a light
//                      partner.
//   X = 0    packing_bound.
//
// Weighted split. 0 when X ≥ R − 1: then every load can be balanced perfectly. Else:
//   needs       Σ (ceil(w_e / L) − 1) ≤ X.
//   components  Join ranks that share an expert. A component of m ranks contains ≥ m − 1 extras, so
//               the M ranks in components of two and more satisfy 2 ≤ M ≤ 2·X, and they hold all
//               the extras: M·K − X experts, whole. Among these are all experts H too heavy for a
//               rank alone (w_e + the K − 1 lightest others > L): w(H) + the lightest
//               (M·K − X − |H|) others ≤ M·L. The other R − M ranks are a packing of whole
//               experts, at best of the lightest. L is impossible if every M is.
//   X = 0       packing_bound.
//
// Groups that stay on one node (N > 1, G a multiple of N): the loads of groups packed into nodes,
// by packing_bound; with equal split also the extra replicas that the groups need, X / N per node.
//
// Thread safety: pure function.
#pragma once

#include <span>

#include "balance/plan.h"

namespace wideep::balance {

// (Not called lower_bound, which argument-dependent lookup would find in std for vectors.)
// max rank load / mean − 1 of every valid placement is at least this; ≥ 0. load: [E], finite, ≥ 0.
// REQUIRES: check_plan_shape(shape).ok().
double imbalance_lower_bound(std::span<const double> load, const PlanShape& shape, Split split);

}  // namespace wideep::balance
