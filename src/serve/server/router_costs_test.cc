// SPDX-License-Identifier: Apache-2.0
#include "server/router_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace wideep::server {
namespace {

TEST(RouterCosts, TheLeastCostWinsAndEqualOnesTakeTurns) {
  std::vector<ReplicaCost> costs(3);
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 0u);
  EXPECT_EQ(cheapest_replica(costs, 100, 4), 1u);
  costs[2].known = 60;
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 2u);
  costs[2].work = 59;
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 2u);
  costs[2].work = 61;
  EXPECT_EQ(cheapest_replica(costs, 100, 1), 1u);
  costs[2].known = 1000;  // it cannot have more than there is
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 2u);
  costs[2].work = 101;
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 0u);
}

TEST(RouterCosts, ThoseThatAreDownComeLastAndTriedOnesNever) {
  std::vector<ReplicaCost> costs(3);
  costs[0] = {.is_up = false, .known = 100};
  costs[1].work = 1'000'000;
  costs[2].work = 2'000'000;
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 1u);
  costs[1].is_tried = true;
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 2u);
  costs[2].is_tried = true;
  EXPECT_EQ(cheapest_replica(costs, 100, 0), 0u);
  costs[0].is_tried = true;
  EXPECT_EQ(cheapest_replica(costs, 100, 0), kNoReplica);
  EXPECT_EQ(cheapest_replica({}, 100, 0), kNoReplica);
}

// A replica keeps what it was sent; each request runs for a while. Popular beginnings are common to
// many requests.
class Simulation {
 public:
  static constexpr uint64_t kPrompt = 64 << 10;
  static constexpr size_t kReplicas = 4, kRunning = 40;

  // Returns the replica that a request with this beginning goes to.
  size_t place(int beginning, bool counts_known) {
    std::vector<ReplicaCost> costs;
    for (size_t i = 0; i < kReplicas; ++i) {
      costs.push_back({.work = work[i], .known = known(i, beginning)});
      if (!counts_known) costs.back().known = 0;
    }
    const size_t to = cheapest_replica(costs, kPrompt, next_++);
    const uint64_t own = kPrompt - known(to, beginning) + kRequestBytes;
    computed += kPrompt - known(to, beginning);
    // The bound: it has no more than the least busy one, this prompt and the request itself.
    EXPECT_LE(work[to] + own, *std::ranges::min_element(work) + kPrompt + kRequestBytes);
    work[to] += own;
    has_[to].insert(beginning);
    running_.emplace_back(to, own);
    if (running_.size() > kRunning) {
      work[running_.front().first] -= running_.front().second;
      running_.pop_front();
    }
    return to;
  }
  uint64_t known(size_t replica, int beginning) const {
    return has_[replica].contains(beginning) ? kPrompt - 1024 : 0;
  }

  uint64_t computed = 0;
  uint64_t work[kReplicas] = {};

 private:
  size_t next_ = 0;
  std::set<int> has_[kReplicas];
  std::deque<std::pair<size_t, uint64_t>> running_;
};

TEST(RouterCosts, TenThousandRequestsComputeLessAndNoReplicaIsBusierThanItPays) {
  Simulation plain, by_cost;
  std::mt19937 random(3);
  std::map<size_t, int> of_popular;
  for (int i = 0; i < 10'000; ++i) {
    // Half of all begin alike, the others as one of many.
    const int beginning = random() % 2 == 0 ? 0 : static_cast<int>(1 + random() % 400);
    plain.place(beginning, false);
    const size_t to = by_cost.place(beginning, true);
    if (beginning == 0) ++of_popular[to];
  }
  EXPECT_EQ(of_popular.size(), Simulation::kReplicas);
  for (const auto& [replica, count] : of_popular) EXPECT_GT(count, 250) << replica;
  EXPECT_LT(by_cost.computed, plain.computed);
}

}  // namespace
}  // namespace wideep::server
