// SPDX-License-Identifier: Apache-2.0
#include "ep/row_sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace wideep::ep {
namespace {

using ::testing::IsEmpty;

DispatchShape shape_of(int ep_size, int num_nodes = 1, int borrowed_slots = 8) {
  return {.ep_size = ep_size,
          .num_experts = 64,
          .slots_per_rank = 8,
          .borrowed_slots = borrowed_slots,
          .num_nodes = num_nodes};
}

TEST(RowSharing, OneHotExpertIsSharedByAll) {
  RowSharing sharing(shape_of(4));
  const std::vector<RankRows> rows = {{7, 2, 4000}};
  const auto loans = sharing.share(rows);
  ASSERT_EQ(loans.size(), 3u);
  for (const Loan& loan : loans) {
    EXPECT_EQ(loan.expert, 7);
    EXPECT_EQ(loan.from, 2);
    EXPECT_EQ(loan.rows, 1000);
  }
  for (const int64_t load : sharing.loads()) EXPECT_EQ(load, 1000);
}

TEST(RowSharing, EvenLoadNeedsNoLoans) {
  RowSharing sharing(shape_of(4));
  const std::vector<RankRows> rows = {{0, 0, 640}, {1, 1, 641}, {2, 2, 638}, {3, 3, 645}};
  EXPECT_THAT(sharing.share(rows), IsEmpty());
}

TEST(RowSharing, NodesShareOnlyAmongThemselves) {
  RowSharing sharing(shape_of(4, 2));
  const std::vector<RankRows> rows = {{0, 0, 1000}, {1, 3, 100}};
  for (const Loan& loan : sharing.share(rows)) EXPECT_EQ(loan.from / 2, loan.to / 2);
  EXPECT_THAT(sharing.loads(), ::testing::ElementsAre(500, 500, 50, 50));
}

// Rows are neither lost nor made, a rank borrows no expert twice and none that it has, and there
// are never more loans than slots.
TEST(RowSharing, LoansAreConsistentAndEvenOnRandomLoads) {
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 1 + static_cast<int>(rng() % 16);
    const int nodes = ranks % 2 == 0 && rng() % 3 == 0 ? 2 : 1;
    const int borrowed = 1 + static_cast<int>(rng() % 8);
    RowSharing sharing(shape_of(ranks, nodes, borrowed));
    std::vector<RankRows> rows;
    std::map<std::pair<int, int>, int64_t> has;  // (rank, expert)
    for (int expert = 0; expert < 64; ++expert) {
      const int replicas = rng() % 4 == 0 ? std::min(2, ranks) : 1;
      const int rank = static_cast<int>(rng() % static_cast<unsigned>(ranks));
      for (int i = 0; i < replicas; ++i) {
        const auto count = static_cast<int64_t>(rng() % 3 == 0 ? rng() % 900 : rng() % 40);
        rows.push_back({expert, (rank + i) % ranks, count});
        has[{(rank + i) % ranks, expert}] = count;
      }
    }
    std::vector<int64_t> before(static_cast<size_t>(ranks), 0);
    for (const auto& [key, count] : has) before[static_cast<size_t>(key.first)] += count;
    std::vector<int> num_borrowed(static_cast<size_t>(ranks), 0);
    for (const Loan& loan : sharing.share(rows)) {
      ASSERT_GE(loan.rows, RowSharing::kMinRows);
      ASSERT_EQ(loan.from * nodes / ranks, loan.to * nodes / ranks);
      const auto borrower = std::pair(static_cast<int>(loan.to), static_cast<int>(loan.expert));
      ASSERT_EQ(has[borrower], 0);
      has[borrower] = loan.rows;
      ASSERT_GE(
          has[std::pair(static_cast<int>(loan.from), static_cast<int>(loan.expert))] -= loan.rows,
          0);
      ASSERT_LE(++num_borrowed[static_cast<size_t>(loan.to)], borrowed);
    }
    std::vector<int64_t> after(static_cast<size_t>(ranks), 0);
    for (const auto& [key, count] : has) after[static_cast<size_t>(key.first)] += count;
    ASSERT_TRUE(std::ranges::equal(after, sharing.loads()));
    ASSERT_LE(std::ranges::max(after), std::ranges::max(before));
    if (borrowed < 8 || nodes > 1) continue;
    const int64_t all = std::accumulate(after.begin(), after.end(), int64_t{0});
    const int64_t mean = (all + ranks - 1) / ranks;
    EXPECT_LE(std::ranges::max(after), mean + mean / RowSharing::kSlackPart + RowSharing::kMinRows)
        << round;
  }
}

}  // namespace
}  // namespace wideep::ep
