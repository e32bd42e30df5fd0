// SPDX-License-Identifier: Apache-2.0
//
// Rows are routed by hand in the ways that give a position twice or not at all: drafts, slices of
// the batch on other ranks, stages with other layers, a step that stopped between layers. The last
// iteration must win, and a hole ends what is returned. A failure hands out the experts of a draft
// that was thrown away.
#include "run/routed_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kTopK = 2;

class RoutedRowsTest : public testing::Test {
 protected:
  RoutedRowsTest() {
    wanted_.request = {.index = 4, .returns_experts = true};
    unwanted_.request = {.index = 5};
  }
  void route(int64_t iteration, int layer, std::vector<engine::Sequence*> owners,
             std::vector<int32_t> positions, std::vector<int32_t> experts) {
    rows_.add(layer, {.iteration = iteration,
                      .experts = experts,
                      .counts = {},
                      .group_counts = {},
                      .owners = owners,
                      .positions = positions});
  }

  engine::Sequence wanted_, unwanted_;
  RoutedRows rows_{3, 2, kTopK};  // layers 3 and 4 of the model's MoE layers
};

TEST_F(RoutedRowsTest, KeepsWhatIsWantedByPosition) {
  route(0, 3, {&wanted_, &unwanted_, &wanted_}, {1, 0, 0}, {1, 2, 7, 7, 3, 4});
  route(0, 4, {&wanted_, &unwanted_, &wanted_}, {1, 0, 0}, {5, 6, 7, 7, 8, 9});
  const RoutedPart part = rows_.take(4);
  EXPECT_EQ(part.request_index, 4);
  EXPECT_EQ(part.first_layer, 3);
  EXPECT_EQ(part.num_layers, 2);
  EXPECT_THAT(part.positions, ElementsAre(0, 1));
  EXPECT_THAT(part.iterations, ElementsAre(0, 0));
  EXPECT_THAT(part.experts, ElementsAre(3, 4, 8, 9, 1, 2, 5, 6));
  EXPECT_THAT(rows_.take(5).positions, IsEmpty());
  EXPECT_THAT(rows_.take(4).positions, IsEmpty());  // it has been taken
}

TEST_F(RoutedRowsTest, TheLastIterationCountsAndOtherRanksHaveTheHoles) {
  for (const int layer : {3, 4}) {
    route(0, layer, {&wanted_}, {0}, {0, 1});
    route(1, layer, {&wanted_, &wanted_}, {2, 3}, {10, 11, 12, 13});  // drafts
    route(2, layer, {&wanted_}, {2}, {20, 21});
  }
  const RoutedPart part = rows_.take(4);
  EXPECT_THAT(part.positions, ElementsAre(0, 2, 3));
  EXPECT_THAT(part.iterations, ElementsAre(0, 2, 1));
  EXPECT_THAT(part.experts, ElementsAre(0, 1, 0, 1, 20, 21, 20, 21, 12, 13, 12, 13));
}

TEST_F(RoutedRowsTest, LayersThatAStepDidNotReach) {
  route(0, 3, {&wanted_}, {0}, {0, 1});
  EXPECT_THAT(rows_.take(4).experts, ElementsAre(0, 1, -1, -1));
}

RoutedPart part(int first_layer, int num_layers, std::vector<int32_t> positions,
                std::vector<int64_t> iterations, std::vector<int32_t> experts) {
  return {.request_index = 4,
          .first_layer = first_layer,
          .num_layers = num_layers,
          .positions = std::move(positions),
          .iterations = std::move(iterations),
          .experts = std::move(experts)};
}

// Two stages of two ranks, of which the second has a layer more; a third stage has none.
TEST(RoutedParts, StagesAndSlicesOfTheBatch) {
  RoutedParts parts(6, 3, 1);
  EXPECT_FALSE(parts.add(part(0, 1, {0, 2}, {5, 8}, {1, 2})));
  EXPECT_FALSE(parts.add(part(1, 2, {0, 1}, {5, 6}, {11, 12, 13, 14})));
  EXPECT_FALSE(parts.add(part(0, 0, {}, {}, {})));
  EXPECT_FALSE(parts.add(part(0, 1, {1, 2}, {6, 7}, {3, 99})));  // 2: it was a draft here
  EXPECT_FALSE(parts.add(part(1, 2, {2}, {8}, {15, 16})));
  const auto all = parts.add(part(0, 0, {}, {}, {}));
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->request_index, 4);
  EXPECT_EQ(all->num_positions, 3);
  EXPECT_EQ(all->num_layers, 3);
  EXPECT_EQ(all->top_k, 1);
  EXPECT_THAT(all->experts, ElementsAre(1, 11, 12, 3, 13, 14, 2, 15, 16));
}

TEST(RoutedParts, EndsBeforeTheFirstHole) {
  RoutedParts parts(1, 2, 1);
  const auto position = parts.add(part(0, 2, {0, 2}, {0, 0}, {1, 2, 3, 4}));
  EXPECT_EQ(position->num_positions, 1);
  EXPECT_THAT(position->experts, ElementsAre(1, 2));
  const auto layer = parts.add(part(0, 2, {0, 1, 2}, {0, 0, 0}, {1, 2, 3, -1, 5, 6}));
  EXPECT_EQ(layer->num_positions, 1);
  EXPECT_EQ(parts.add(part(0, 2, {}, {}, {}))->num_positions, 0);
}

TEST(RoutedParts, BeginsAgain) {
  RoutedParts parts(2, 1, 1);
  EXPECT_FALSE(parts.add(part(0, 1, {0}, {9}, {1})));
  parts.clear();
  EXPECT_FALSE(parts.add(part(0, 1, {0}, {0}, {2})));
  EXPECT_THAT(parts.add(part(0, 1, {1}, {1}, {3}))->experts, ElementsAre(2, 3));
}

}  // namespace
}  // namespace wideep::run
