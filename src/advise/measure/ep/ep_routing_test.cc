// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace wideep::measure {
namespace {

constexpr EpRouting kAll[] = {EpRouting::kRandom, EpRouting::kHot, EpRouting::kSpread};

TEST(EpRouting, ExpertsOfATokenAreDistinct) {
  for (const EpRouting routing : kAll) {
    for (const int num_ranks : {1, 2, 8, 32}) {
      const EpGroup group{
          .num_ranks = num_ranks, .num_experts = 32, .top_k = 8, .routing = routing};
      const std::vector<int32_t> experts = route_tokens(group, 1, 50);
      ASSERT_EQ(experts.size(), 50u * 8);
      for (size_t token = 0; token < 50; ++token) {
        const std::set<int32_t> chosen(experts.begin() + token * 8,
                                       experts.begin() + token * 8 + 8);
        EXPECT_EQ(chosen.size(), 8u) << routing_name(routing) << ", " << num_ranks << " ranks";
        EXPECT_GE(*chosen.begin(), 0);
        EXPECT_LT(*chosen.rbegin(), 32);
      }
    }
  }
}

TEST(EpRouting, SpreadTokensReachAsManyRanksAsPossible) {
  for (const int num_ranks : {2, 4, 8, 32}) {
    const EpGroup group{.num_ranks = num_ranks, .num_experts = 64, .routing = EpRouting::kSpread};
    const std::vector<int32_t> experts = route_tokens(group, 0, 1);
    std::set<int> ranks;
    for (const int32_t expert : experts) ranks.insert(group.rank_of(expert));
    EXPECT_EQ(static_cast<int>(ranks.size()), std::min(num_ranks, 8));
  }
}

TEST(EpRouting, DependsOnlyOnSeedAndRank) {
  const EpGroup group{.seed = 3}, other{.seed = 4};
  EXPECT_EQ(route_tokens(group, 0, 9), route_tokens(group, 0, 9));
  EXPECT_NE(route_tokens(group, 0, 9), route_tokens(group, 1, 9));
  EXPECT_NE(route_tokens(group, 0, 9), route_tokens(other, 0, 9));
  const std::vector<float> weights = weigh_tokens(group, 0, 2);
  EXPECT_NEAR(weights[8] + weights[9] + weights[10] + weights[11] + weights[12] + weights[13] +
                  weights[14] + weights[15],
              1.0f, 1e-6f);
}

TEST(EpRouting, NamesAreReadBack) {
  for (const EpRouting routing : kAll) {
    const auto found = routing_of(std::string(routing_name(routing)));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, routing);
  }
  EXPECT_THAT(routing_of("warm").status().message(), testing::HasSubstr("\"warm\""));
}

}  // namespace
}  // namespace wideep::measure
