// SPDX-License-Identifier: Apache-2.0
#include "transport/node_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::transport {
namespace {

using testing::ElementsAre;

TEST(NodeMap, ProxiesAreSpreadEvenly) {
  const NodeMap nodes = NodeMap::even(8, 2);
  EXPECT_THAT(nodes.ranks_of(1), ElementsAre(4, 5, 6, 7));
  EXPECT_TRUE(nodes.is_even());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(nodes.proxy(rank, 1), rank + 4);
    EXPECT_EQ(nodes.proxy(rank + 4, 0), rank);
    EXPECT_EQ(nodes.proxy(rank, 0), rank);  // on its own node: itself
  }
}

TEST(NodeMap, NodesMayHaveDifferentSizesAndRanksAnyOrder) {
  const NodeMap nodes({1, 0, 1, 1});
  EXPECT_FALSE(nodes.is_even());
  EXPECT_THAT(nodes.ranks_of(0), ElementsAre(1));
  EXPECT_THAT(nodes.ranks_of(1), ElementsAre(0, 2, 3));
  EXPECT_EQ(nodes.proxy(3, 0), 1);
  EXPECT_EQ(nodes.proxy(1, 1), 0);
  EXPECT_EQ(nodes.index_on_node(3), 2);
  EXPECT_FALSE(NodeMap::even(5, 2).is_even());
  EXPECT_THAT(NodeMap::even(5, 2).ranks_of(0), ElementsAre(0, 1, 2));
}

TEST(NodeMap, RanksAndNodesMayBeMissing) {
  const NodeMap nodes = NodeMap::even(6, 3).of_members(std::vector{0, 1, 5});
  EXPECT_EQ(nodes.num_ranks(), 6);
  EXPECT_EQ(nodes.num_nodes(), 2);
  EXPECT_EQ(nodes.node_of(2), NodeMap::kAbsent);
  EXPECT_EQ(nodes.node_of(5), 1);
  EXPECT_EQ(nodes.name(1), 2);
  EXPECT_EQ(nodes.index_on_node(5), 0);
  EXPECT_EQ(nodes.proxy(1, 1), 5);
  EXPECT_EQ(nodes.proxy(5, 0), 0);
}

}  // namespace
}  // namespace wideep::transport
