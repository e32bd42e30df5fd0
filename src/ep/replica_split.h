// SPDX-License-Identifier: Apache-2.0
//
// An expert's tokens in whole numbers: how many each replica gets (its quota), and how many of them
// come from which rank.
//
// Replicas stand in the order of their slots, so that those of a rank, and of a node, are side by
// side. Numbers are exact: every rank that is given the same numbers computes the same split.
#pragma once

#include <cstdint>
#include <span>

namespace wideep::ep {

// share · total of each replica, rounded down or up, together `total`. Tokens left over by rounding
// down go where rank_excess, the tokens that a rank has got beyond its exact share so far, is least
// (and grow it): over the experts of a layer no rank collects the roundings.
// replica_ranks, shares (≥ 0, sum 1), quotas: [replicas]; rank_excess: [ep_size].
void round_shares(int64_t total, std::span<const double> shares,
                  std::span<const int32_t> replica_ranks, std::span<double> rank_excess,
                  std::span<int64_t> quotas);

// A token in the unit of `parts` and `credit` below.
inline constexpr int64_t kWholeToken = int64_t{1} << 20;

// The same from call to call, for one rank that knows only itself: credit [replicas] is what each
// replica should have got and has not yet, and is carried on. parts: [replicas], sum kWholeToken.
void round_with_credit(int64_t total, std::span<const int64_t> parts, std::span<int64_t> credit,
                       std::span<int64_t> quotas);

// Whose row of the split is wanted.
struct Source {
  int rank = 0;
  int ranks_per_node = 1;
};

// row [replicas]: how many tokens of source.rank go to each replica, when all ranks together fill
// the quotas. As many as possible stay on their rank, then as many as possible on their node; the
// rest is matched in the order of ranks and replicas.
// counts: [ep_size] tokens of each rank, quotas: [replicas], both with the same sum. What is left
// in them is of no use.
void split_by_source(std::span<const int32_t> replica_ranks, const Source& source,
                     std::span<int64_t> counts, std::span<int64_t> quotas, std::span<int64_t> row);

}  // namespace wideep::ep
