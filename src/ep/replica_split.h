// SPDX-License-Identifier: Apache-2.0
//
// An expert's tokens divided among its replicas in whole numbers: how many tokens each replica gets
// (its quota), and how many of these come from which rank.
//
// Replicas stand in the order of their slots, so that the replicas of a rank, and of a node, are
// side by side. The arithmetic gives the same on all ranks: from the same numbers each computes the
// same split.
#pragma once

#include <cstdint>
#include <span>

namespace wideep::ep {

// Gives each replica share · total tokens, rounded down or up, together `total`. Tokens that are
// left after rounding down go to the ranks with the least rank_excess: tokens that a rank has got
// so far beyond its exact share. So no rank collects the roundings of all experts of a layer.
// replica_ranks, shares (≥ 0, sum 1), quotas: [replicas]; rank_excess: [ep_size].
void round_shares(int64_t total, std::span<const double> shares,
                  std::span<const int32_t> replica_ranks, std::span<double> rank_excess,
                  std::span<int64_t> quotas);

// One token in the unit of `parts` and `credit` below.
inline constexpr int64_t kWholeToken = int64_t{1} << 20;

// The same for one rank that does not know the others, call after call: credit [replicas] is what
// each replica should have got so far and has not, and is carried on to the next call. parts:
// [replicas], sum kWholeToken.
void round_with_credit(int64_t total, std::span<const int64_t> parts, std::span<int64_t> credit,
                       std::span<int64_t> quotas);

// The rank whose row of the split is wanted.
struct Source {
  int rank = 0;
  int ranks_per_node = 1;
};

// row [replicas]: how many tokens of source.rank go to each replica, if all ranks together fill the
// quotas. As many tokens as possible stay on their rank, then as many as possible on their node;
// the rest is matched in the order of ranks and replicas. counts: [ep_size] tokens of each rank,
// quotas: [replicas], both with the same sum; both are used up.
void split_by_source(std::span<const int32_t> replica_ranks, const Source& source,
                     std::span<int64_t> counts, std::span<int64_t> quotas, std::span<int64_t> row);

}  // namespace wideep::ep
