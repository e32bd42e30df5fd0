// SPDX-License-Identifier: Apache-2.0
//
// The logits go through the real selection of every method, and the pairs of each rank are counted:
// groups and weights of a method must not undo the balance. 100 random models and numbers of ranks
// may be 2 % uneven, but not where groups and ranks fit each other. A failure means that a run
// which is to show the speed without imbalance has some.
#include "model/parts/perfect_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "model/parts/router.h"

namespace wideep::model {
namespace {

using ::testing::HasSubstr;

// (token, expert) pairs that each rank computes, and each expert gets, of tokens_per_rank tokens of
// every rank.
struct Loads {
  std::vector<int> ranks, experts;
};

Loads loads(const RoutingConfig& routing, int ep_size, int tokens_per_rank) {
  Loads loads{std::vector<int>(ep_size), std::vector<int>(routing.num_experts)};
  std::vector<int32_t> chosen(routing.top_k);
  std::vector<float> weights(routing.top_k);
  for (int rank = 0; rank < ep_size; ++rank) {
    PerfectRouter router(routing, ep_size, rank);
    for (int token = 0; token < tokens_per_rank; ++token) {
      const float* logits = router.logits(token + 1) + token * routing.num_experts;
      select_experts(routing, logits, router.zero_bias(), chosen.data(), weights.data());
      for (const int32_t expert : chosen) {
        EXPECT_EQ(logits[expert], 10.0f);
        ++loads.experts[expert];
        ++loads.ranks[expert / (routing.num_experts / ep_size)];
      }
    }
  }
  return loads;
}

int spread(const std::vector<int>& values) {
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return *max - *min;
}

TEST(PerfectRouter, EvenOverRanksAndExpertsForEveryMethod) {
  for (const auto method :
       {RoutingMethod::kDefault, RoutingMethod::kRenormalize, RoutingMethod::kRenormalizeNaive,
        RoutingMethod::kDeepseekV3, RoutingMethod::kDeepseekV2, RoutingMethod::kLlama4,
        RoutingMethod::kSigmoidRenorm, RoutingMethod::kMinimax2, RoutingMethod::kErnie}) {
    for (const int ep_size : {1, 2, 4, 8, 16}) {
      const Loads found = loads({.method = method, .num_experts = 64, .top_k = 8}, ep_size, 128);
      EXPECT_EQ(spread(found.ranks), 0) << ep_size;
      EXPECT_LE(spread(found.experts), 2 * ep_size) << ep_size;
    }
  }
}

TEST(PerfectRouter, EvenWithinTheGroupsOfDeepseek) {
  for (const auto method : {RoutingMethod::kDeepseekV3, RoutingMethod::kDeepseekV2}) {
    const RoutingConfig grouped{
        .method = method, .num_experts = 256, .top_k = 8, .num_groups = 8, .top_k_groups = 4};
    for (const int ep_size : {1, 2, 4, 8, 16, 32, 64}) {
      const Loads found = loads(grouped, ep_size, 64);
      EXPECT_EQ(spread(found.ranks), 0) << ep_size;
    }
  }
}

double imbalance(const std::vector<int>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return *std::ranges::max_element(values) * static_cast<double>(values.size()) / sum - 1.0;
}

int choice(std::mt19937& random, const std::vector<int>& of) { return of[random() % of.size()]; }

// Any experts, groups, choices and ranks that a model and a run may have.
TEST(PerfectRouter, EvenForRandomGroupsAndRanks) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 100; ++trial) {
    RoutingConfig routing{.num_groups = choice(random, {1, 2, 3, 4, 5, 6, 8, 16})};
    const int group_size = 1 + static_cast<int>(random() % 16);
    routing.num_experts = routing.num_groups * group_size;
    routing.top_k_groups = 1 + static_cast<int>(random() % routing.num_groups);
    routing.top_k = 1 + static_cast<int>(random() % std::min(9, routing.top_k_groups * group_size));
    routing.method = routing.num_groups == 1 ? static_cast<RoutingMethod>(random() % 9)
                                             : (random() % 2 == 0 ? RoutingMethod::kDeepseekV3
                                                                  : RoutingMethod::kDeepseekV2);
    std::vector<int> divisors;
    for (int ranks = 1; ranks <= std::min(routing.num_experts, 24); ++ranks) {
      if (routing.num_experts % ranks == 0) divisors.push_back(ranks);
    }
    const int ep_size = choice(random, divisors);
    const int rank_size = routing.num_experts / ep_size;
    const Loads found = loads(routing, ep_size, 256);
    SCOPED_TRACE(testing::Message()
                 << routing.num_experts << " experts, " << routing.num_groups << " groups of which "
                 << routing.top_k_groups << ", top " << routing.top_k << ", " << ep_size
                 << " ranks, method " << static_cast<int>(routing.method));
    EXPECT_LT(imbalance(found.ranks), 0.02);
    EXPECT_LE(spread(found.experts), 2 * ep_size);
    const bool fit = rank_size % group_size == 0 || group_size % rank_size == 0;
    if (fit) {
      EXPECT_EQ(spread(found.ranks), 0);
    }
  }
}

// One choice of a token uses one group of several, six use four of eight unevenly.
TEST(PerfectRouter, ChoicesThatAreNoMultipleOfTheGroupsAreEvenToo) {
  const auto of = [](int top_k, int groups, int top_k_groups) {
    return loads({.method = RoutingMethod::kDeepseekV3,
                  .num_experts = 32,
                  .top_k = top_k,
                  .num_groups = groups,
                  .top_k_groups = top_k_groups},
                 8, 32);
  };
  EXPECT_EQ(spread(of(1, 8, 4).ranks), 0);
  EXPECT_EQ(spread(of(6, 8, 4).ranks), 0);
  EXPECT_EQ(spread(of(5, 4, 2).ranks), 0);
}

TEST(PerfectRouter, FewTokensAreEvenToo) {
  const Loads found = loads({.num_experts = 64, .top_k = 2}, 8, 1);
  EXPECT_EQ(spread(found.ranks), 0);
}

TEST(PerfectRouter, MoreTokensRepeatTheFirst) {
  const RoutingConfig routing{.num_experts = 16, .top_k = 3};
  PerfectRouter router(routing, 4, 1);
  const std::vector<float> few(router.logits(5), router.logits(5) + 5 * 16);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), router.logits(100)));
  EXPECT_TRUE(std::equal(few.begin(), few.end(), router.logits(5)));
}

TEST(PerfectRouter, RanksThatDoNotDivideTheExpertsAreRefused) {
  EXPECT_TRUE(PerfectRouter::check({.num_experts = 64, .top_k = 8}, 8).ok());
  EXPECT_THAT(PerfectRouter::check({.num_experts = 64, .top_k = 8}, 6).message(),
              HasSubstr("divides the 64 experts, found 6"));
}

}  // namespace
}  // namespace wideep::model
