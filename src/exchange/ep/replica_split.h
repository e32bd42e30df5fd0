// SPDX-License-Identifier: Apache-2.0
//
// Divides an expert's tokens among its replicas, in whole tokens: how many tokens each replica gets
// (its quota), and how many of these come from each rank.
//
// Replicas are in the order of their slots, so replicas of one rank, and of one node, are adjacent.
// All ranks compute the same split from the same input.
//
// The steps are those of ep/token_split.h, which GPUs take, too.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "ep/token_split.h"

namespace wideep::ep {

// Sets quotas[i] to shares[i] · total, rounded down or up, with sum `total`. Tokens that remain
// after rounding down go to replicas on the ranks with the least rank_excess. rank_excess is the
// number of tokens that a rank has received beyond its exact share, over all experts of the layer
// so far; it is updated. So the roundings of a layer's experts do not add up on one rank.
// replica_ranks, shares (≥ 0, sum 1), quotas: [replicas]; rank_excess: [ep_size].
void round_shares(int64_t total, std::span<const double> shares,
                  std::span<const int32_t> replica_ranks, std::span<double> rank_excess,
                  std::span<int64_t> quotas);

// Rounds the shares of one rank that does not know the other ranks' tokens. credit [replicas]: what
// a replica should have received in earlier calls but has not; it is updated and passed to the next
// call. So the shares are met over time. parts: [replicas] shares, with sum kWholeToken.
void round_with_credit(int64_t total, std::span<const int64_t> parts, std::span<int64_t> credit,
                       std::span<int64_t> quotas);

// The rank whose row of the split is computed.
struct Source {
  int rank = 0;
  int ranks_per_node = 1;
};

// Sets row [replicas] to the number of tokens of source.rank that go to each replica, such that all
// ranks together meet the quotas. As many tokens as possible stay on their rank, then as many as
// possible on their node; the rest is matched in the order of ranks and replicas. counts: [ep_size]
// tokens of each rank; quotas: [replicas]; both have the same sum and are overwritten.
void split_by_source(std::span<const int32_t> replica_ranks, const Source& source,
                     std::span<int64_t> counts, std::span<int64_t> quotas, std::span<int64_t> row);

}  // namespace wideep::ep
