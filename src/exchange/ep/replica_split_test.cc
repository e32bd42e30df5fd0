// SPDX-License-Identifier: Apache-2.0
//
// Random shares and counts are held against the bounds that rounding has, and the split against a
// slow one that deals the whole matrix token by token. That as many tokens as possible stay on
// their rank and node is held against an upper bound, too, since the slow one might be wrong in the
// same way. Each rank computes its own row alone, so that the rows together must meet the quotas: a
// failure means that a replica gets more or fewer tokens than its share, or that tokens cross nodes
// without need.
#include "ep/replica_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace wideep::ep {
namespace {

using testing::ElementsAre;

int64_t sum(std::span<const int64_t> values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

std::vector<double> random_shares(size_t num_replicas, std::mt19937& rng) {
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<double> shares(num_replicas);
  for (double& share : shares) share = rng() % 4 == 0 ? 0.0 : uniform(rng);
  shares[rng() % num_replicas] += 0.5;
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= all;
  return shares;
}

// Ascending ranks; some ranks have two replicas.
std::vector<int32_t> random_ranks(size_t num_replicas, int ep_size, std::mt19937& rng) {
  std::vector<int32_t> ranks(num_replicas);
  for (int32_t& rank : ranks) rank = static_cast<int32_t>(rng() % ep_size);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

TEST(RoundShares, RoundsDownOrUpToTheTotal) {
  std::mt19937 rng(1);
  for (int round = 0; round < 3000; ++round) {
    const int ep_size = 1 + static_cast<int>(rng() % 8);
    const size_t num_replicas = 1 + rng() % 9;
    const auto shares = random_shares(num_replicas, rng);
    const auto ranks = random_ranks(num_replicas, ep_size, rng);
    std::vector<double> excess(ep_size, 0.0);
    std::vector<int64_t> quotas(num_replicas);
    const int64_t total = rng() % 2 == 0 ? rng() % 5 : rng() % 5000;
    round_shares(total, shares, ranks, excess, quotas);
    EXPECT_EQ(sum(quotas), total);
    for (size_t i = 0; i < num_replicas; ++i) {
      EXPECT_LT(std::abs(static_cast<double>(quotas[i]) - shares[i] * total), 1.0);
    }
  }
}

// Rounded separately, every expert would round up its first replica, which is on the same rank.
TEST(RoundShares, RoundingsDoNotAddUpOnOneRank) {
  constexpr int kRanks = 4;
  std::vector<double> excess(kRanks, 0.0);
  std::vector<int64_t> received(kRanks, 0), quotas(kRanks);
  for (int expert = 0; expert < 100; ++expert) {
    round_shares(1, std::vector<double>(kRanks, 0.25), std::vector<int32_t>{0, 1, 2, 3}, excess,
                 quotas);
    for (int rank = 0; rank < kRanks; ++rank) received[rank] += quotas[rank];
  }
  EXPECT_THAT(received, ElementsAre(25, 25, 25, 25));
}

TEST(RoundWithCredit, EveryPrefixMeetsTheShares) {
  std::mt19937 rng(2);
  for (int round = 0; round < 200; ++round) {
    const size_t num_replicas = 1 + rng() % 6;
    const auto shares = random_shares(num_replicas, rng);
    std::vector<int64_t> parts, credit(num_replicas, 0), quotas(num_replicas);
    for (const double share : shares) parts.push_back(static_cast<int64_t>(share * kWholeToken));
    *std::max_element(parts.begin(), parts.end()) += kWholeToken - sum(parts);
    std::vector<int64_t> received(num_replicas, 0);
    int64_t all = 0;
    for (int call = 0; call < 60; ++call) {
      const int64_t total = rng() % 3 == 0 ? rng() % 100 : rng() % 3;
      round_with_credit(total, parts, credit, quotas);
      EXPECT_EQ(sum(quotas), total);
      EXPECT_EQ(sum(credit), 0);
      all += total;
      for (size_t i = 0; i < num_replicas; ++i) {
        EXPECT_GE(quotas[i], 0);
        received[i] += quotas[i];
        const double exact = static_cast<double>(parts[i]) / kWholeToken * all;
        EXPECT_LT(std::abs(static_cast<double>(received[i]) - exact), 2.0);
      }
    }
  }
}

// A slow reference of the split: the whole matrix, one token at a time.
struct SlowSplit {
  std::vector<std::vector<int64_t>> tokens;  // [ep_size][replicas]
  int64_t on_rank = 0, on_node = 0;          // tokens that stay; on_rank ⊆ on_node
};

SlowSplit slow_split(std::span<const int32_t> ranks, int ranks_per_node,
                     std::vector<int64_t> counts, std::vector<int64_t> quotas) {
  SlowSplit split;
  split.tokens.assign(counts.size(), std::vector<int64_t>(quotas.size(), 0));
  const auto give = [&](auto allowed) {
    int64_t given = 0;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      for (size_t i = 0; i < quotas.size(); ++i) {
        while (allowed(static_cast<int>(rank), ranks[i]) && counts[rank] > 0 && quotas[i] > 0) {
          --counts[rank];
          --quotas[i];
          ++split.tokens[rank][i];
          ++given;
        }
      }
    }
    return given;
  };
  split.on_rank = give([](int a, int b) { return a == b; });
  split.on_node =
      split.on_rank + give([&](int a, int b) { return a / ranks_per_node == b / ranks_per_node; });
  give([](int, int) { return true; });
  return split;
}

// Upper bound for every split: a rank (node) keeps at most its tokens and at most its quotas.
int64_t max_that_can_stay(std::span<const int32_t> ranks, int size, std::span<const int64_t> counts,
                          std::span<const int64_t> quotas) {
  int64_t max = 0;
  for (int owner = 0; owner * size < static_cast<int>(counts.size()); ++owner) {
    int64_t room = 0;
    for (size_t i = 0; i < ranks.size(); ++i) room += ranks[i] / size == owner ? quotas[i] : 0;
    max += std::min(sum(counts.subspan(size_t(owner) * size, size)), room);
  }
  return max;
}

TEST(SplitBySource, AllRowsMeetTheQuotasAndKeepAsManyTokensAsPossible) {
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    const int num_nodes = 1 + static_cast<int>(rng() % 3);
    const int ranks_per_node = 1 + static_cast<int>(rng() % 4);
    const int ep_size = num_nodes * ranks_per_node;
    const size_t num_replicas = 1 + rng() % 6;
    const auto ranks = random_ranks(num_replicas, ep_size, rng);
    std::vector<int64_t> counts(ep_size), quotas(num_replicas);
    for (int64_t& count : counts) count = rng() % 2 == 0 ? 0 : static_cast<int64_t>(rng() % 40);
    std::vector<double> excess(ep_size, 0.0);
    round_shares(sum(counts), random_shares(num_replicas, rng), ranks, excess, quotas);

    const SlowSplit slow = slow_split(ranks, ranks_per_node, counts, quotas);
    EXPECT_EQ(slow.on_rank, max_that_can_stay(ranks, 1, counts, quotas));
    EXPECT_EQ(slow.on_node, max_that_can_stay(ranks, ranks_per_node, counts, quotas));
    std::vector<int64_t> received(num_replicas, 0), row(num_replicas);
    for (int rank = 0; rank < ep_size; ++rank) {
      std::vector<int64_t> counts_left = counts, quotas_left = quotas;
      split_by_source(ranks, {rank, ranks_per_node}, counts_left, quotas_left, row);
      EXPECT_EQ(row, slow.tokens[rank]);
      for (size_t i = 0; i < num_replicas; ++i) received[i] += row[i];
    }
    EXPECT_EQ(received, quotas);
  }
}

}  // namespace
}  // namespace wideep::ep
