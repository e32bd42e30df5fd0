// SPDX-License-Identifier: Apache-2.0
#include "online/load_mailbox.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace wideep::online {
namespace {

TEST(LoadMailbox, ALateBalancerGetsAllIterationsAtOnce) {
  LoadMailbox box(2, 3);
  EXPECT_EQ(box.look(), nullptr);
  for (int iteration = 5; iteration < 9; ++iteration) {
    box.add(1, std::vector<int32_t>{1, 0, iteration});
    box.end_iteration(iteration, 2, 10);
  }
  const GroupLoads* first = box.look();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->first_iteration, 5);
  EXPECT_EQ(first->num_iterations, 1);
  EXPECT_EQ(first->tokens, (std::vector<int64_t>{0, 0, 0, 1, 0, 5}));
  box.done();
  EXPECT_EQ(box.look(), nullptr);
  box.end_iteration(9, 2, 10);
  EXPECT_EQ(box.look()->first_iteration, 6);
  EXPECT_EQ(box.look()->num_iterations, 4);
  EXPECT_EQ(box.look()->tokens, (std::vector<int64_t>{0, 0, 0, 3, 0, 6 + 7 + 8}));
}

TEST(LoadMailbox, NothingIsLostBetweenThreads) {
  constexpr int kIterations = 20'000;
  LoadMailbox box(1, 4);
  std::atomic<bool> all_seen{false};
  std::thread engine([&] {
    for (int i = 0; !all_seen; ++i) {
      if (i < kIterations) box.add(0, std::vector<int32_t>{1, 2, 3, 4});
      box.end_iteration(i, 2, 10);
    }
  });
  int64_t iterations = 0, tokens = 0;
  while (tokens < 10 * kIterations) {
    const GroupLoads* loads = box.look();
    if (loads == nullptr) continue;
    EXPECT_EQ(loads->first_iteration, iterations);
    iterations += loads->num_iterations;
    tokens += std::accumulate(loads->tokens.begin(), loads->tokens.end(), int64_t{0});
    box.done();
  }
  all_seen = true;
  engine.join();
  EXPECT_EQ(tokens, 10 * kIterations);
}

}  // namespace
}  // namespace wideep::online
