// SPDX-License-Identifier: Apache-2.0
//
// Hand-made cuts show which node is left out, and that the choice is kept where a new one would end
// a node that serves. Random cuts of up to eight nodes hold what must always be true: those left
// reach each other, node 0 is among them, and nobody is left out who could be taken in alone. A
// failure is a group that can never form, or nodes that stand idle without need.
#include "group/node_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace wideep::transport {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const NodeCuts::Time kStart{};

TEST(NodeCuts, TheSmallerNodeIsLeftOutAndOfEqualOnesTheLater) {
  NodeCuts equal({2, 2, 2});
  equal.cut(2, 1, kStart);
  equal.cut(1, 2, kStart);
  EXPECT_THAT(equal.left_out(), ElementsAre(2));
  NodeCuts uneven({2, 1, 2});
  uneven.cut(1, 2, kStart);
  EXPECT_THAT(uneven.left_out(), ElementsAre(1));
}

TEST(NodeCuts, NodeZeroIsNeverLeftOut) {
  NodeCuts cuts({1, 4, 4});
  cuts.cut(0, 1, kStart);
  EXPECT_THAT(cuts.left_out(), ElementsAre(1));
  cuts.cut(0, 2, kStart);
  EXPECT_THAT(cuts.left_out(), ElementsAre(1, 2));
}

// One that nobody reaches costs one node, not all others.
TEST(NodeCuts, TheNodeWithMostCutsIsLeftOut) {
  NodeCuts cuts({2, 2, 2, 2});
  cuts.cut(1, 2, kStart);
  cuts.cut(1, 3, kStart);
  EXPECT_THAT(cuts.left_out(), ElementsAre(1));
  cuts.mend(1, 2);
  cuts.mend(3, 1);
  EXPECT_THAT(cuts.left_out(), IsEmpty());
}

// Node 3 serves; that it would be left out now, were the choice a new one, is no reason to end it.
TEST(NodeCuts, WhoIsLeftOutStaysSoWhileThatIsEnough) {
  NodeCuts cuts({2, 2, 2, 2});
  cuts.cut(1, 2, kStart);
  cuts.cut(1, 3, kStart);
  ASSERT_THAT(cuts.left_out(), ElementsAre(1));
  cuts.mend(1, 2);
  EXPECT_THAT(cuts.left_out(), ElementsAre(1));
  cuts.forget(2);
  EXPECT_THAT(cuts.left_out(), ElementsAre(1));
  cuts.cut(2, 3, kStart);
  EXPECT_THAT(cuts.left_out(), ElementsAre(3));
}

// Node 2 serves, and would be ended by the choice of two other nodes.
TEST(NodeCuts, AnotherNodeJoinsThoseThatAreLeftOut) {
  NodeCuts cuts({2, 2, 2, 2});
  cuts.cut(1, 2, kStart);
  cuts.cut(1, 3, kStart);
  ASSERT_THAT(cuts.left_out(), ElementsAre(1));
  cuts.cut(2, 3, kStart);
  EXPECT_THAT(cuts.left_out(), ElementsAre(1, 3));
}

// Node 1 comes back, so that one node is left out and not three.
TEST(NodeCuts, AChoiceWithFewerNodesReplacesTheOldOne) {
  NodeCuts cuts({2, 2, 2, 2, 2});
  cuts.cut(1, 4, kStart);
  ASSERT_THAT(cuts.left_out(), ElementsAre(4));
  cuts.cut(1, 2, kStart);
  EXPECT_THAT(cuts.left_out(), ElementsAre(1));
}

// Node 1 goes first, then its neighbours for other reasons.
TEST(NodeCuts, NoNodeIsLeftOutForOthersThatAre) {
  NodeCuts cuts({2, 1, 2, 2, 2, 2});
  for (const auto& [a, b] : {std::pair(1, 4), std::pair(1, 5), std::pair(2, 4), std::pair(3, 5)}) {
    cuts.cut(a, b, kStart);
  }
  EXPECT_THAT(cuts.left_out(), ElementsAre(4, 5));
}

TEST(NodeCuts, AsksTheOneThatIsLeftOut) {
  NodeCuts cuts({2, 2, 2});
  cuts.cut(1, 2, kStart);
  EXPECT_EQ(cuts.next_due(), kStart + 500ms);
  EXPECT_THAT(cuts.due(kStart + 499ms), IsEmpty());
  const auto asks = cuts.due(kStart + 500ms);
  ASSERT_EQ(asks.size(), 1U);
  EXPECT_EQ(asks[0].from, 2);
  EXPECT_EQ(asks[0].to, 1);
  EXPECT_EQ(cuts.next_due(), kStart + 1000ms);
}

// Each cut costs a restart of ranks.
TEST(NodeCuts, APairThatIsCutAgainAndAgainIsLeftAloneForLonger) {
  NodeCuts cuts({2, 2, 2});
  for (const auto pause : {500ms, 1'000ms, 2'000ms, 4'000ms}) {
    cuts.cut(1, 2, kStart);
    EXPECT_EQ(cuts.next_due(), kStart + pause);
    cuts.mend(1, 2);
  }
  for (int i = 0; i < 40; ++i) cuts.cut(1, 2, kStart), cuts.mend(1, 2);
  cuts.cut(1, 2, kStart);
  EXPECT_EQ(cuts.next_due(), kStart + 60s);
  cuts.forget(1);
  EXPECT_TRUE(cuts.is_empty());
  cuts.cut(1, 2, kStart);
  EXPECT_EQ(cuts.next_due(), kStart + 500ms);
}

// Any cuts of up to eight nodes: those that are left reach each other, node 0 is among them, and
// none of those left out could be taken in alone.
TEST(NodeCuts, ThoseThatAreLeftReachEachOther) {
  std::mt19937 random(1);
  for (int round = 0; round < 2'000; ++round) {
    const int nodes = 2 + static_cast<int>(random() % 7);
    std::vector<int> ranks;
    for (int node = 0; node < nodes; ++node) ranks.push_back(1 + static_cast<int>(random() % 3));
    NodeCuts cuts(ranks);
    std::set<std::pair<int, int>> all;
    for (int i = static_cast<int>(random() % 10); i > 0; --i) {
      const int a = static_cast<int>(random() % nodes), b = static_cast<int>(random() % nodes);
      if (a == b) continue;
      cuts.cut(a, b, kStart);
      all.insert({std::min(a, b), std::max(a, b)});
    }
    const std::vector<int> out = cuts.left_out();
    const auto is_out = [&](int node) { return std::ranges::binary_search(out, node); };
    ASSERT_FALSE(is_out(0));
    for (const auto& [a, b] : all) ASSERT_TRUE(is_out(a) || is_out(b));
    for (const auto& ask : cuts.due(kStart + 1s)) ASSERT_TRUE(is_out(ask.from));
    for (const int node : out) {
      ASSERT_TRUE(std::ranges::any_of(all, [&](const auto& each) {
        return (each.first == node && !is_out(each.second)) ||
               (each.second == node && !is_out(each.first));
      }));
    }
  }
}

}  // namespace
}  // namespace wideep::transport
